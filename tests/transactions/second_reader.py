"""A reader of the commit log that was written from docs/design/commit-protocol.md alone.

It imports nothing of the package: what it can't read, the page does not say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

STATE_FIELDS = {
    "format", "generation", "runId", "queryId", "lastDone", "done", "superseded", "digests",
    "deadLetters", "batch", "payloads", "transactions", "lost", "partsOf", "partsToken",
    "takeOver",
}  # fmt: skip


class InvalidRecordError(Exception):
    """A record that the page says is invalid."""


@dataclass(frozen=True)
class ReadTransaction:
    transactional_id: str
    producer_id: int
    epoch: int
    version: int


@dataclass(frozen=True)
class ReadPayload:
    rows: int
    bytes: int
    topic: str
    letters: int | None


@dataclass(frozen=True)
class ReadState:
    """What a key's records say."""

    generation: int
    owner: str
    query: str
    last_done: int
    done: dict[int, tuple[ReadPayload, ...]]
    superseded: tuple[str, ...]
    digests: dict[int, str]
    decided: int | None
    payloads: tuple[ReadPayload, ...]
    transactions: tuple[ReadTransaction, ...]
    lost: tuple[str, ...]
    block: tuple[int, str] | None
    parts: tuple[tuple[str, ReadPayload, tuple[ReadTransaction, ...]], ...]
    unknown: dict[str, object]
    take_over: tuple[int, int] = (0, 0)

    @property
    def phase(self) -> str:
        if self.decided is None:
            return "DONE"
        return "PARTIAL" if self.lost else "DECIDED"


def partition_of(key: str, partitions: int) -> int:
    if partitions < 16:
        return 0
    return (_murmur2(key.encode()) & 0x7FFFFFFF) % 16


def read_state(key: str, records: Mapping[bytes, bytes]) -> ReadState | None:
    """``records`` are those of the key's partition: the newest value of each record key."""
    document = _document(key, records)
    if document is None:
        return None
    fields = _object(document)
    if _integer(fields["format"]) > 1:
        raise InvalidRecordError("a newer format")
    block = None
    parts: list[tuple[str, ReadPayload, tuple[ReadTransaction, ...]]] = []
    if "partsOf" in fields:
        block = (_integer(fields["partsOf"]), _text(fields["partsToken"]))
        n = 0
        while (part := _document(f"{key}#w{n}", records)) is not None:
            n += 1
            one = _object(part)
            if (one["batch"], one["token"]) != block:
                continue  # a leftover
            (payload,) = _payloads([one["payload"]], [one.get("deadLetters")])
            parts.append((_text(one["name"]), payload, _transactions(key, one["transactions"])))
    letters = _mapping(fields.get("deadLetters", {}))
    return ReadState(
        generation=_integer(fields["generation"]),
        owner=_text(fields["runId"]),
        query=_text(fields["queryId"]),
        last_done=_integer(fields["lastDone"]),
        done={
            _integer(number): _payloads(rest, letters.get(str(number)))
            for number, *rest in _array(fields["done"])
        },
        superseded=tuple(map(_text, _array(fields["superseded"]))),
        digests={
            int(number): _text(digest)
            for number, digest in _mapping(fields.get("digests", {})).items()
        },
        decided=_integer(fields["batch"]) if "batch" in fields else None,
        payloads=_payloads(
            _array(fields.get("payloads", [])), letters.get(str(fields.get("batch")))
        ),
        transactions=_transactions(key, fields.get("transactions", {})),
        lost=tuple(_text(one, 400) for one in _array(fields.get("lost", []))),
        block=block,
        parts=tuple(parts),
        unknown={n: v for n, v in fields.items() if n not in STATE_FIELDS},
        take_over=_two(fields.get("takeOver", [0, 0])),
    )


def _document(name: str, records: Mapping[bytes, bytes]) -> bytes | None:
    first = records.get(name.encode())
    if first is None or not first.startswith(b'{"part":'):
        return first
    line, _, found = first.partition(b"\n")
    head = json.loads(line)
    for piece in range(1, head["of"]):
        line, _, data = records.get(f"{name}#{piece}".encode(), b"{}").partition(b"\n")
        if json.loads(line) != {**head, "part": piece}:
            raise InvalidRecordError(f"piece {piece} of {name} is missing")
        found += data
    return found


def _transactions(key: str, stems: object) -> tuple[ReadTransaction, ...]:
    found = []
    for stem, entries in _mapping(stems).items():
        if not (_text(stem, 400).startswith(f"{key}~") and stem.endswith("~")):
            raise InvalidRecordError(f"an id of another key: {stem}")
        for n, *rest in _array(entries):
            producer_id, epoch, version = map(_integer, rest)
            found.append(ReadTransaction(f"{stem}{_integer(n)}", producer_id, epoch, version))
    return tuple(found)


def _payloads(values: Iterable[object], letters: object = None) -> tuple[ReadPayload, ...]:
    written = [_array(value) for value in values]
    numbers = [] if letters is None else _array(letters)
    if len(numbers) != len(written):
        numbers = [None] * len(written)
    return tuple(
        ReadPayload(
            _integer(rows), _integer(size), _text(topic, 249), None if n is None else _integer(n)
        )
        for (rows, size, topic), n in zip(written, numbers, strict=True)
    )


def _object(document: bytes) -> dict[str, object]:
    return _mapping(json.loads(document))


def _mapping(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise InvalidRecordError("no object")
    return value


def _array(value: object) -> list[object]:
    if not isinstance(value, list):
        raise InvalidRecordError("no array")
    return value


def _text(value: object, longest: int = 200) -> str:
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise InvalidRecordError(f"no text: {value!r}")
    return value


def _two(value: object) -> tuple[int, int]:
    one, other = map(_integer, _array(value))
    return one, other


def _integer(value: object) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise InvalidRecordError(f"no integer: {value!r}")
    return value


def _murmur2(data: bytes) -> int:
    """MurmurHash2 of Kafka's partitioner."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
