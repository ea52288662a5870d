"""The records of the load: each says by itself what it is, whose it is and whether it is whole.

Key ``run|batch|task|attempt``, value ``u64 seq, u32 crc, padding``, headers ``fate`` (what the load
means to become of it, when it knows) and ``attempt``. The crc is over the key, too, so that a value
under another's key is found.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import Enum

_HEAD = struct.Struct(">QI")
#: The rows that can't be sent, by the code of their letters: partition -7, partition 99, timestamp
#: -1, a null header, and a value of more than a message may have.
BAD_CODES = ("KP0212", "KP0212", "KP0231", "KP0232", "KP0213")
#: Bytes of a batch that the topic of such a load takes, and of a value that is too large for it.
MOST_BYTES, TOO_LARGE = 8_000, 12_000


def bad_kind(seq: int, every: int) -> int | None:
    """Which of BAD_CODES a row has: one of every ``every`` rows each, in places that differ."""
    if every <= 0:
        return None
    kind, rest = divmod(seq % every, every // len(BAD_CODES))
    return kind if rest == 3 and kind < len(BAD_CODES) else None


class Fate(Enum):
    COMMIT = b"commit"
    ABORT = b"abort"
    OPEN = b"open"


@dataclass(frozen=True, slots=True)
class Seen:
    """One record that a reader found. ``intact`` is False when key or value are not what was
    written; its other fields mean nothing then.
    """

    partition: int
    offset: int
    run: str = ""
    batch: int = -1
    task: int = -1
    attempt: str = ""
    seq: int = -1
    fate: Fate = Fate.OPEN
    intact: bool = True
    #: Of a dead letter; empty for a row in its topic.
    code: str = ""

    @property
    def where(self) -> str:
        return f"{self.partition}@{self.offset}"


def key(run: str, batch: int, task: int, attempt: str) -> bytes:
    return f"{run}|{batch}|{task}|{attempt}".encode()


def value(key: bytes, seq: int, size: int = 64) -> bytes:
    """``size`` bytes at least as long as the head."""
    padding = (b"%d." % seq) * (size // 4)
    padding = padding[: max(0, size - _HEAD.size)]
    return _HEAD.pack(seq, _crc(key, seq, padding)) + padding


def headers(fate: Fate, attempt: str) -> list[tuple[str, bytes]]:
    return [("fate", fate.value), ("attempt", attempt.encode())]


def parse(
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> Seen:
    broken = Seen(partition, offset, intact=False)
    if key is None or value is None or len(value) < _HEAD.size:
        return broken
    seq, crc = _HEAD.unpack_from(value)
    named = dict(headers)
    try:
        run, batch, task, attempt = key.decode().split("|")
        code = (named.get("__kprod.errors.code") or b"").decode()
        fate = Fate(named["fate"])
        found = Seen(partition, offset, run, int(batch), int(task), attempt, seq, fate, code=code)
    except (ValueError, KeyError):
        return broken
    whole = _crc(key, seq, value[_HEAD.size :]) == crc and named.get("attempt") == attempt.encode()
    return found if whole else broken


def _crc(key: bytes, seq: int, padding: bytes) -> int:
    return zlib.crc32(padding, zlib.crc32(key + seq.to_bytes(8, "big")))
