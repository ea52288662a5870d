"""What a broker checks of record batches before its log sees them.

Kafka's ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords and LogValidator, in
that order. Header and CRC are read here by hand; the records by our reader, which has its own tests
against independent ones.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import crc32c as castagnoli

from spark_kafka_sink.base.errors import CorruptRecordError, ErrorCode, InvalidRecordError
from tests.fakes.record_reader import parse_batch

HEADER = 61
_PREFIX = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")
_CODECS, _ZSTD = 7, 4
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
#: Of message format 0, the shortest that a length can announce.
_SHORTEST = 14


class RefusedError(Exception):
    """A partition's answer: ``records`` are the guilty ones, where the broker names them."""

    def __init__(self, error: ErrorCode, why: str, records: tuple[int, ...] = ()) -> None:
        super().__init__(error, why)
        self.error, self.why, self.records = error, why, records


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch's header and its bytes."""

    data: bytes
    base_offset: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    leader_epoch: int = -1

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """-1 without a producer. Sequences are 31 bits wide and wrap to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % 2**31

    def at(self, base_offset: int, leader_epoch: int) -> Batch:
        """As the log keeps it: both fields lie outside of the CRC."""
        prefix = _PREFIX.pack(base_offset, len(self.data) - 12, leader_epoch, self.magic, self.crc)
        data = prefix + self.data[_PREFIX.size :]
        return replace(self, data=data, base_offset=base_offset, leader_epoch=leader_epoch)


def read_batch(data: bytes) -> Batch:
    """No check but that there are 61 bytes."""
    base, _, epoch, magic, crc = _PREFIX.unpack_from(data)
    attributes, last, first_ms, max_ms, pid, producer_epoch, sequence, count = _COVERED.unpack_from(
        data, _PREFIX.size
    )
    return Batch(
        data, base, magic, crc, attributes, last, first_ms, max_ms, pid, producer_epoch, sequence,
        count, epoch,
    )  # fmt: skip


def is_transactional(data: bytes) -> bool:
    """Of the first batch, as KafkaApis asks before anything is checked."""
    return len(data) >= HEADER and data[16] == 2 and read_batch(data).transactional


def validate(data: bytes, version: int) -> Batch:
    """ProduceRequest.validateRecords: one whole batch of magic 2."""
    size = _next_size(data)
    if size is None:
        raise RefusedError(ErrorCode.INVALID_RECORD, "no record batch")
    if data[16] != 2:
        raise RefusedError(ErrorCode.INVALID_RECORD, f"magic {data[16]}")
    if size < HEADER:
        raise RefusedError(ErrorCode.CORRUPT_MESSAGE, "shorter than a header")
    batch = read_batch(data[:size])
    if version < 7 and batch.attributes & _CODECS == _ZSTD:
        raise RefusedError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd before version 7")
    if _next_size(data[size:]) is not None:
        raise RefusedError(ErrorCode.INVALID_RECORD, "more than one batch")
    return batch


def _next_size(data: bytes) -> int | None:
    """ByteBufferLogInputStream: None where no whole batch follows."""
    if len(data) < 17:
        return None
    (length,) = struct.unpack_from(">i", data, 8)
    if length < _SHORTEST:
        raise RefusedError(ErrorCode.CORRUPT_MESSAGE, f"a length of {length}")
    if data[16] > 2:
        raise RefusedError(ErrorCode.CORRUPT_MESSAGE, f"magic {data[16]}")
    return 12 + length if 12 + length <= len(data) else None


def check(batch: Batch, *, max_bytes: int, compacted: bool, latest_ms: int) -> None:
    """What the log refuses of a client's batch, whoever the producer is."""
    if batch.base_offset != 0:
        raise RefusedError(ErrorCode.INVALID_RECORD, "base offset is not 0")
    if len(batch.data) > max_bytes:
        raise RefusedError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch.data)} bytes")
    if castagnoli.crc32c(batch.data[_PREFIX.size :]) != batch.crc:
        raise RefusedError(ErrorCode.CORRUPT_MESSAGE, "checksum")
    if batch.attributes & _CODECS > _ZSTD:
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, "no such codec")
    if batch.last_offset_delta < 0:
        raise RefusedError(ErrorCode.INVALID_RECORD, "invalid offset range")
    if batch.count <= 0:
        raise RefusedError(ErrorCode.INVALID_RECORD, "invalid count")
    if batch.last_offset_delta + 1 != batch.count:
        raise RefusedError(ErrorCode.INVALID_RECORD, "inconsistent offset range")
    if batch.control:
        raise RefusedError(ErrorCode.INVALID_RECORD, "clients write no control records")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise RefusedError(ErrorCode.INVALID_RECORD, "a producer id without a sequence")
    try:
        records = parse_batch(batch.data).records
    except CorruptRecordError as e:
        raise RefusedError(ErrorCode.CORRUPT_MESSAGE, str(e)) from e
    except InvalidRecordError as e:
        raise RefusedError(ErrorCode.INVALID_RECORD, str(e)) from e
    keyless = tuple(i for i, r in enumerate(records) if compacted and r.key is None)
    if keyless:
        raise RefusedError(ErrorCode.INVALID_RECORD, "no key", keyless)
    future = tuple(i for i, r in enumerate(records) if r.timestamp > latest_ms)
    if future:
        raise RefusedError(ErrorCode.INVALID_TIMESTAMP, "too late", future)


def marker(
    producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int, timestamp: int
) -> Batch:
    """The control batch that ends a transaction in a partition (EndTxnMarker v0)."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, coordinator_epoch)
    # attributes, timestamp delta, offset delta, key, value, no headers; lengths are zigzag.
    body = b"\0\0\0" + bytes([2 * len(key)]) + key + bytes([2 * len(value)]) + value + b"\0"
    record = bytes([2 * len(body)]) + body
    covered = record_header(
        attributes=_TRANSACTIONAL | _CONTROL,
        last=0,
        timestamp=timestamp,
        producer=(producer_id, epoch, -1),
        count=1,
    )
    crc = castagnoli.crc32c(covered + record)
    size = HEADER - 12 + len(record)
    return read_batch(_PREFIX.pack(0, size, -1, 2, crc) + covered + record)


def record_header(
    *, attributes: int, last: int, timestamp: int, producer: tuple[int, int, int], count: int
) -> bytes:
    return _COVERED.pack(attributes, last, timestamp, timestamp, *producer, count)
