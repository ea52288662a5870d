"""The batch around records: format v2 (Java's ``DefaultRecordBatch``).

Owns: the 61-byte header, written when a batch is drained; the reader of a whole batch, for the
split and the tests. Never: how records are encoded by columns
(``record_encoder``). Reading walks records one by one: it is not on a record's way.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from crc32c import crc32c

from spark_kafka_sink.errors import (
    CorruptRecordError,
    ErrorCode,
    IllegalStateError,
    InvalidRecordError,
    RemoteProtocolError,
)
from spark_kafka_sink.protocol.request import Buffer
from spark_kafka_sink.records.compression import Codec, CompressionType
from spark_kafka_sink.records.varint import MAX_VARLONG_BYTES, read_varint, varint

#: Base offset, length, leader epoch, magic, CRC; what the CRC does not cover.
_PREFIX = struct.Struct(">qiibI")
#: Attributes, last offset delta, base and max timestamp, producer id and epoch, base sequence,
#: record count; what the CRC covers, together with the records.
_COVERED = struct.Struct(">hiqqqhii")
HEADER_SIZE = _PREFIX.size + _COVERED.size
MAGIC = 2
#: Offset and length themselves are not counted by the length.
_LOG_OVERHEAD = 12
_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1
NO_TIMESTAMP = -1

#: Sequences are counted in 31 bits.
_SEQUENCES = 2**31


def increment_sequence(sequence: int, by: int) -> int:
    """The sequence ``by`` records later: 0 follows the largest (Java's DefaultRecordBatch)."""
    return (sequence + by) % _SEQUENCES


def sequence_before(one: int, other: int) -> bool:
    """Order of two sequences that are in flight together: 0 follows the largest."""
    return one != other and (other - one) % _SEQUENCES < _SEQUENCES // 2


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """A header as read. Length, magic and CRC have been checked and are left out."""

    base_offset: int
    partition_leader_epoch: int
    codec: CompressionType
    log_append_time: bool
    transactional: bool
    control: bool
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def write_header(
    records: Sequence[Buffer],
    *,
    codec: Codec,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    size: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """The 61 bytes before ``records``, the (compressed) records section as it lies.

    The CRC covers both. ``size`` is that of both, for who knows it. Raises IllegalStateError for
    producer fields that contradict each other, as Java does.
    """
    if transactional and producer_id == NO_PRODUCER_ID:
        raise IllegalStateError("a transactional batch needs a valid producer id")
    if producer_id != NO_PRODUCER_ID:
        if producer_epoch < 0:
            raise IllegalStateError("a batch with a producer id needs a valid epoch")
        if base_sequence < 0:
            raise IllegalStateError("a batch with a producer id needs a valid sequence")
    covered = _COVERED.pack(
        int(codec.type) | (_TRANSACTIONAL if transactional else 0),
        record_count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    if size is None:
        size = HEADER_SIZE + sum(map(len, records))
    checksum = crc32c(covered)
    for chunk in records:  # from 32 KiB on, the library releases the interpreter lock
        checksum = crc32c(chunk, checksum)
    return _PREFIX.pack(0, size - _LOG_OVERHEAD, partition_leader_epoch, MAGIC, checksum) + covered


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


def parse_header(data: Buffer) -> BatchHeader:
    """The header of the batch that ``data`` is. The CRC is checked: CorruptRecordError."""
    view = memoryview(data).cast("B")
    if len(view) < HEADER_SIZE:
        raise _corrupt(f"a batch of {len(view)} bytes is shorter than its header")
    base_offset, length, leader_epoch, magic, crc = _PREFIX.unpack_from(view)
    if length != len(view) - _LOG_OVERHEAD:
        raise _corrupt(f"a batch says {length} bytes and has {len(view) - _LOG_OVERHEAD}")
    if magic != MAGIC:
        raise _corrupt(f"a batch has magic {magic}, not {MAGIC}")
    if crc32c(view[_PREFIX.size :]) != crc:
        raise _corrupt("a batch's checksum does not match its bytes")
    attributes, last, base, latest, producer, epoch, sequence, count = _COVERED.unpack_from(
        view, _PREFIX.size
    )
    if count < 0 or attributes & _CODEC_MASK > max(CompressionType):
        raise _corrupt("a batch's header holds an impossible value")
    return BatchHeader(
        record_count=count,
        base_timestamp=base,
        max_timestamp=latest,
        codec=CompressionType(attributes & _CODEC_MASK),
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=bool(attributes & _TRANSACTIONAL),
        control=bool(attributes & _CONTROL),
        log_append_time=bool(attributes & _LOG_APPEND_TIME),
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        last_offset_delta=last,
    )


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
    *,
    gaps: bool = False,
) -> tuple[Record, ...]:
    """The ``count`` records of an uncompressed section, which must end with the last.

    Their offset deltas must be ``first_offset_delta`` and so on, without a gap; with ``gaps`` they
    must only ascend, because compaction takes records out of a batch.
    """
    records: list[Record] = []
    expected = base_offset + first_offset_delta
    at = 0
    for index in range(count):
        if at >= len(section):
            raise _invalid(f"the batch has {index} records and says {count}")
        record, at = _parse_record(section, at, base_timestamp, base_offset)
        if record.offset < expected or (record.offset > expected and not gaps):
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


@dataclass(frozen=True, slots=True)
class RecordSection:
    """Uncompressed records of one batch, with what its header needs of them."""

    data: bytes
    record_count: int
    base_timestamp: int
    max_timestamp: int


def split_records(
    section: Buffer, record_count: int, base_timestamp: int, at: int | None = None
) -> tuple[RecordSection, RecordSection]:
    """Records [0, at) and [at, record_count) of an uncompressed section as two.

    Without ``at``, cut as near to half of the bytes as whole records allow. The offset deltas of
    the second restart at 0, its base timestamp is its first record's; keys, values and headers are
    copied as they lie. Raises InvalidRecordError for a section that is not whole, IllegalStateError
    when a half would be empty.
    """
    if record_count < 2 or not (at is None or 0 < at < record_count):
        raise IllegalStateError(f"a batch of {record_count} records can't be split at {at}")
    half = len(section) / 2
    parts: list[tuple[int, bytes]] = []
    starts: list[int] = []
    position = 0
    for index in range(record_count):
        starts.append(position)
        size, body = read_varint(section, position)
        time_delta, rest = read_varint(section, body + 1, MAX_VARLONG_BYTES)
        _, rest = read_varint(section, rest)
        position = body + size
        if size < 0 or position > len(section) or rest > position:
            raise _invalid(f"record {index} of a batch to split runs past the end")
        parts.append((base_timestamp + time_delta, bytes(section[rest:position])))
    if position != len(section):
        raise _invalid(f"{len(section) - position} bytes follow the records of a batch to split")
    if at is None:
        at = min(range(1, record_count), key=lambda i: abs(starts[i] - half))
    middle = starts[at]
    second_base = parts[at][0]
    out = bytearray()
    for index, (timestamp, content) in enumerate(parts[at:]):
        body_bytes = b"\x00" + varint(timestamp - second_base) + varint(index) + content
        out += varint(len(body_bytes))
        out += body_bytes
    first_times, second_times = [t for t, _ in parts[:at]], [t for t, _ in parts[at:]]
    return (
        RecordSection(bytes(section[:middle]), at, base_timestamp, max(first_times)),
        RecordSection(bytes(out), record_count - at, second_base, max(second_times)),
    )


def _corrupt(message: str) -> CorruptRecordError:
    return CorruptRecordError(message, code=ErrorCode.CORRUPT_MESSAGE)


def _invalid(message: str) -> InvalidRecordError:
    return InvalidRecordError(message, code=ErrorCode.INVALID_RECORD)
