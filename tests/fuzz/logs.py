"""A commit log that somebody else wrote to: batches, what they unpack to, states, their parts."""

from __future__ import annotations

import json
import random
import struct

from crc32c import crc32c

from spark_kafka_sink.base.errors import (
    CommitLogError,
    CorruptRecordError,
    ErrorCode,
)
from spark_kafka_sink.protocol.log_requests import FetchedPartition
from spark_kafka_sink.records.compression import Codec, CompressionType
from spark_kafka_sink.records.log_records import read_batches
from spark_kafka_sink.records.varint import varint
from spark_kafka_sink.transactions.commit_log.log_parts import cut, join
from spark_kafka_sink.transactions.commit_state import CommitState
from tests.fuzz.mutate import mutated, refusal

_TAIL = varint(1) + varint(1) + b"h" + varint(-1)
_BODIES = [
    b"\0"
    + varint(0)
    + varint(i)
    + varint(1)
    + (b"k" if i % 2 else b"j")
    + varint(2)
    + b"vv"
    + _TAIL
    for i in range(5)
]
_RECORDS = b"".join(varint(len(body)) + body for body in _BODIES)
_SECTIONS = {kind: Codec(kind).compress([_RECORDS]) for kind in CompressionType}
_MOST = 100_000


def batches(rng: random.Random) -> str:
    """Reading never raises, steps forwards only, and says what it can't read on one short line."""
    log = b"".join(_batch(rng) for _ in range(rng.randrange(1, 4)))
    if rng.random() < 0.3:
        log = mutated(rng, log, least=1)
    fetch_offset = rng.choice((0, 0, 3))
    fetched = FetchedPartition(ErrorCode.NONE, fetch_offset, memoryview(log))
    following, words = 0, set()
    for found in read_batches(fetched, lambda key: key == b"k", b"k", 1000):
        if found.unreadable is None:
            assert found.base_offset >= following
            assert found.next_offset > max(found.base_offset, fetch_offset)
            following = found.next_offset
        else:
            assert found.unreadable.reason.isprintable()
            assert len(found.unreadable.reason) < 200
        words.add(
            "read" if found.records else "unreadable" if found.unreadable else "nothing there"
        )
        offsets = [record.offset for record in found.records]
        assert offsets == sorted(set(offsets))
        assert all(fetch_offset <= offset <= found.last_offset for offset in offsets)
        assert all(record.key == b"k" for record in found.records)
    return ", ".join(sorted(words))


def _batch(rng: random.Random) -> bytes:
    kind = rng.choice(list(CompressionType))
    section = _SECTIONS[kind] if rng.random() < 0.5 else mutated(rng, _SECTIONS[kind])
    covered = struct.pack(
        ">hiqqqhii",
        kind | rng.choice((0, 0x10, 0x10, 0x10, 0x30)),
        rng.choice((4, 4, 0, -1, 2**31 - 1)),
        0,
        0,
        7,
        0,
        0,
        rng.choice((5, 5, 5, 1, 0, 6, 2**31 - 1)),
    )
    base = rng.choice((0, 0, 5, 100, 2**62))
    head = struct.pack(">qiibI", base, 49 + len(section), 0, 2, crc32c(covered + section))
    return head + covered + section


def streams(rng: random.Random) -> str:
    """Unpacked at once or in pieces, the bytes are equal; neither is more than was allowed."""
    kind = rng.choice(list(CompressionType))
    packed = mutated(rng, _SECTIONS[kind])
    whole, parts = bytearray(), bytearray()

    def unpack() -> None:
        whole.extend(Codec(kind).decompress(packed, _MOST))

    def stream() -> None:
        for piece in Codec(kind).stream(packed):
            parts.extend(piece)
            if len(parts) > _MOST:
                return

    refusal(unpack, CorruptRecordError)
    assert len(whole) <= _MOST
    # A second stream may follow, which only this one reads, and may be broken.
    broken = refusal(stream, CorruptRecordError)
    assert parts.startswith(whole) or (broken and whole.startswith(parts))
    return f"{kind.name} {'damaged' if broken else 'unpacked'}"


_STATE = {
    "format": 1,
    "generation": 3,
    "runId": "r",
    "queryId": "q",
    "lastDone": 41,
    "superseded": ["a"],
    "batch": 42,
    "transactions": {"p~7~": [[1, 4711, 12, 2], [2, 4712, 0, 2]]},
    "lost": ["p~7~1"],
}
_ODD = (
    b"1e400",
    b"NaN",
    b"-1",
    b"9" * 30,
    b'"\\u001b"',
    b"[" * 3000,
    b"null",
    b"true",
    b'"x"',
    b"{}",
)


def _decoded(value: bytes) -> CommitState:
    return CommitState.decode("p", value)


def states(rng: random.Random) -> str:
    """CommitLogError, or a state that can be written again, with texts that may be shown."""
    value = json.dumps(_STATE, separators=(",", ":")).encode()
    if rng.random() < 0.5:
        fields = {k: json.dumps(v).encode() for k, v in _STATE.items()}
        fields[rng.choice(list(fields))] = rng.choice(_ODD)
        value = b"{%s}" % b",".join(b'"%s":%s' % (k.encode(), v) for k, v in fields.items())
    else:
        value = mutated(rng, value)
    error = refusal(lambda: _decoded(value), CommitLogError)
    if error is not None:
        assert error.message.isprintable()
    else:
        state = _decoded(value)
        texts = [state.run_id, state.query_id, *state.superseded, *state.lost]
        texts += state.decision.ids if state.decision else ()
        assert all(text.isprintable() and len(text) < 500 for text in texts)
        _decoded(state.encode())
    joined = _parts(rng)
    return f"{'refused' if error else 'decoded'}, {joined}"


def _parts(rng: random.Random) -> str:
    key, state = b"orders", b"0123456789" * 3
    records = cut(key, state, 7, 8)
    changed = rng.choice(list(records))
    records[changed] = mutated(rng, records[changed])
    if rng.random() < 0.2:
        records[changed] = b'{"part":' + rng.choice(_ODD) + b',"of":1}\n'
    error = refusal(lambda: join(key, records), CommitLogError)
    assert error is None or error.message.isprintable()
    return "not whole" if error else "joined"
