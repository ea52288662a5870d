"""Reads the batches that the producer wrote, record by record: what tests compare with.

The package itself only writes batches, and looks into those of its commit log by keys
(``records/log_records.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_sink.base.errors import ErrorCode, InvalidRecordError, RemoteProtocolError
from spark_kafka_sink.protocol.request import Buffer
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.record_batch import HEADER_SIZE, BatchHeader, parse_header
from spark_kafka_sink.records.varint import MAX_VARLONG_BYTES, read_varint


@dataclass(frozen=True, slots=True)
class Record:
    """One record as read: its offset and timestamp are whole, not deltas."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """A batch as read."""

    header: BatchHeader
    records: tuple[Record, ...]


def parse_batch(data: Buffer, max_size: int = 2**30) -> RecordBatch:
    """The whole batch; at most ``max_size`` bytes are decompressed.

    Raises CorruptRecordError for a batch, InvalidRecordError for a record that is not whole.
    """
    header = parse_header(data)
    section = memoryview(data)[HEADER_SIZE:]
    raw = Codec(header.codec).decompress(section, max_size) if header.codec else section
    records = parse_records(raw, header.record_count, header.base_timestamp, header.base_offset)
    return RecordBatch(header, records)


def parse_records(
    section: Buffer,
    count: int,
    base_timestamp: int,
    base_offset: int = 0,
    first_offset_delta: int = 0,
) -> tuple[Record, ...]:
    """The ``count`` records of an uncompressed section, which must end with the last.

    Their offset deltas must be ``first_offset_delta`` and so on, without a gap.
    """
    records: list[Record] = []
    expected = base_offset + first_offset_delta
    at = 0
    for index in range(count):
        if at >= len(section):
            raise _invalid(f"the batch has {index} records and says {count}")
        record, at = _parse_record(section, at, base_timestamp, base_offset)
        if record.offset != expected:
            raise _invalid(f"record {index} has offset delta {record.offset - base_offset}")
        expected = record.offset + 1
        records.append(record)
    if at != len(section):
        raise _invalid(f"{len(section) - at} bytes follow the {count} records of a batch")
    return tuple(records)


def _parse_record(
    section: Buffer, at: int, base_timestamp: int, base_offset: int
) -> tuple[Record, int]:
    try:
        size, at = read_varint(section, at)
        end = at + size
        if size < 0 or end > len(section):
            raise _invalid(f"a record of {size} bytes runs past the end of its batch")
        body = bytes(section[at:end])
        time_delta, at = read_varint(body, 1, MAX_VARLONG_BYTES)
        offset_delta, at = read_varint(body, at)
        key, at = _read_bytes(body, at, "key")
        value, at = _read_bytes(body, at, "value")
        headers, at = _read_headers(body, at)
    except RemoteProtocolError as e:
        raise _invalid(e.message) from e
    if at != len(body):
        raise _invalid(f"{len(body) - at} bytes follow the headers of a record")
    record = Record(base_offset + offset_delta, base_timestamp + time_delta, key, value, headers)
    return record, end


def _read_headers(body: bytes, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = read_varint(body, at)
    if count < 0 or count > len(body) - at:
        raise _invalid(f"a record has {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, at = _read_bytes(body, at, "header key")
        if key is None:
            raise _invalid("a header's key is null")
        value, at = _read_bytes(body, at, "header value")
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), at


def _read_bytes(body: bytes, at: int, what: str) -> tuple[bytes | None, int]:
    size, at = read_varint(body, at)
    if size == -1:
        return None, at
    if size < 0 or at + size > len(body):
        raise _invalid(f"a {what} of {size} bytes runs past the end of its record")
    return body[at : at + size], at + size


def _invalid(message: str) -> InvalidRecordError:
    return InvalidRecordError(message, code=ErrorCode.INVALID_RECORD)
