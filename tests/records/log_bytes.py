"""Fetched bytes of a log, as a broker or a liar would give them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.log_requests import FetchedPartition
from spark_kafka_sink.records.compression import Codec, CompressionType
from spark_kafka_sink.records.single_record import record_bytes

BASE = 1_700_000_000_000
CODECS = list(CompressionType)


def batch(
    base: int,
    records: Sequence[tuple[int, bytes | None, bytes | None]],
    *,
    last: int | None = None,
    producer: int = -1,
    transactional: bool = True,
    control: bool = False,
    appended: bool = False,
    codec: CompressionType = CompressionType.NONE,
    count: int | None = None,
) -> bytes:
    """A batch with its base offset; each record is (offset delta, key, value)."""
    section = b"".join(record_bytes(delta, delta, key, value) for delta, key, value in records)
    return raw_batch(
        int(codec),
        Codec(codec).compress([section]) if codec else section,
        len(records) if count is None else count,
        base=base,
        last=max((r[0] for r in records), default=0) if last is None else last,
        producer=(producer, 0 if producer >= 0 else -1),
        transactional=transactional,
        control=control,
        appended=appended,
    )


def raw_batch(
    codec: int,
    packed: bytes,
    count: int,
    *,
    base: int = 0,
    last: int | None = None,
    producer: tuple[int, int] | None = None,
    transactional: bool = True,
    control: bool = False,
    appended: bool = False,
) -> bytes:
    """A batch with a section as it is given."""
    attributes = codec | 8 * appended | 16 * transactional | 32 * control
    covered = struct.pack(
        ">hiqqqhii",
        attributes,
        max(0, count - 1) if last is None else last,
        BASE,
        BASE + 1000,
        *(producer or ((7, 0) if transactional else (-1, -1))),
        -1,
        count,
    )
    body = covered + packed
    return struct.pack(">qiibI", base, 9 + len(body), 0, 2, crc32c(body)) + body


def marker(base: int, producer: int, kind: int, key: bytes | None = None) -> bytes:
    named = struct.pack(">hh", 0, kind) if key is None else key
    value = struct.pack(">hi", 0, 7)
    return batch(base, [(0, named, value)], producer=producer, transactional=True, control=True)


def data(base: int, *values: bytes, producer: int = -1, **options: object) -> bytes:
    records = [(i, b"k", value) for i, value in enumerate(values)]
    return batch(base, records, producer=producer, **options)  # type: ignore[arg-type]


def fetched(log: bytes, offset: int = 0) -> FetchedPartition:
    return FetchedPartition(ErrorCode.NONE, offset, memoryview(log))
