"""A record batch, right or wrong as wanted; written by hand."""

from __future__ import annotations

import struct

import crc32c

from tests.fakes.fake_cluster.batch_checks import record_header

TRANSACTIONAL, CONTROL = 0x10, 0x20
BASE_MS = 1_600_000_000_000


def batch(
    values: list[str] | int = 1,
    own: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    *,
    attributes: int = 0,
    key: bytes | None = b"k",
    timestamp: int = BASE_MS,
    count: int | None = None,
    last: int | None = None,
    magic: int = 2,
    base_offset: int = 0,
    crc: int | None = None,
    records: bytes | None = None,
) -> bytes:
    """A record batch, right or wrong as wanted; written by hand."""
    texts = ["v"] * values if isinstance(values, int) else values
    if records is None:
        records = b"".join(_record(i, key, text.encode()) for i, text in enumerate(texts))
    covered = record_header(
        attributes=attributes,
        last=len(texts) - 1 if last is None else last,
        timestamp=timestamp,
        producer=(*own, sequence),
        count=len(texts) if count is None else count,
    )
    right = crc32c.crc32c(covered + records)
    prefix = struct.pack(
        ">qiibI", base_offset, 49 + len(records), -1, magic, right if crc is None else crc
    )
    return prefix + covered + records


def _zigzag(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _record(index: int, key: bytes | None, value: bytes) -> bytes:
    keyed = _zigzag(-1) if key is None else _zigzag(len(key)) + key
    body = b"\0\0" + _zigzag(index) + keyed + _zigzag(len(value)) + value + b"\0"
    return _zigzag(len(body)) + body
