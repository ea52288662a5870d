"""Record batches whose header says what a script wants."""

from __future__ import annotations

import struct

import crc32c

from spark_kafka_sink.records.single_record import record_bytes
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
    """A record batch, right or wrong as wanted."""
    texts = ["v"] * values if isinstance(values, int) else values
    if records is None:
        records = b"".join(record_bytes(i, 0, key, text.encode()) for i, text in enumerate(texts))
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
