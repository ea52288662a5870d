"""The format of a record batch, version 2 (Java's ``DefaultRecordBatch``).

This module writes and parses the 61-byte header of a batch, with its checksum. It also splits a
batch that a broker has rejected as too large. ``record_encoder`` encodes the records.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from google_crc32c import extend

from spark_kafka_sink.base.errors import (
    CorruptRecordError,
    IllegalStateError,
    InvalidRecordError,
)
from spark_kafka_sink.protocol.request import Buffer
from spark_kafka_sink.records.compression import Codec, CompressionType
from spark_kafka_sink.records.varint import MAX_VARLONG_BYTES, read_varint, varint

#: The part of the header that the CRC does not cover: base offset, length, leader epoch, magic,
#: CRC.
_PREFIX = struct.Struct(">qiibI")
#: The part of the header that the CRC covers, together with the records: attributes, last offset
#: delta, base and max timestamp, producer id and epoch, base sequence, record count.
_COVERED = struct.Struct(">hiqqqhii")
HEADER_SIZE = _PREFIX.size + _COVERED.size
MAGIC = 2
#: The bytes of the fields base offset and length, which the length does not count.
_LOG_OVERHEAD = 12
_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1

#: The number of sequence numbers: a sequence number has 31 bits.
_SEQUENCES = 2**31


def increment_sequence(sequence: int, by: int) -> int:
    """Returns the sum of ``sequence`` and ``by``, which is a number of records. After 2147483647,
    sequence numbers begin at 0 again, as in Java's DefaultRecordBatch.
    """
    return (sequence + by) % _SEQUENCES


def sequence_before(one: int, other: int) -> bool:
    """True if ``one`` comes before ``other`` in the order of sequence numbers. In this order, 0
    comes after 2147483647.

    The result is right only for numbers that are near to each other, such as the sequence numbers
    of batches that are in flight at the same time.
    """
    return one != other and (other - one) % _SEQUENCES < _SEQUENCES // 2


def _crc32c(*buffers: Buffer) -> int:
    """The CRC-32C of the bytes in all ``buffers`` together. The buffers are not copied."""
    checksum = 0
    for data in buffers:
        # extend refuses a memoryview, because its bytes might change; it takes Arrow's buffers.
        checksum = extend(checksum, data if type(data) is bytes else pa.py_buffer(data))
    return checksum


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The parsed header of a batch, after its length, magic and checksum were checked. Timestamps
    are in ms.

    ``checksum`` is the CRC-32C (unsigned) of all bytes after the checksum. Brokers keep the
    checksum of the producer, except in three cases:

    * The topic has another ``compression.type`` than the batch.
    * The topic has LogAppendTime.
    * The topic is compacted.
    """

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
    checksum: int


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
) -> tuple[bytes, int]:
    """Creates the 61-byte header of a batch. Returns the header, and the CRC in it. The CRC covers
    the part of the header after the CRC, and the records.

    * ``records``: the records of the batch, compressed with ``codec``.
    * ``size``: the total size of header and records in bytes. If it is None, it is computed.

    Raises IllegalStateError, as Java does, in two cases: a transactional batch has no producer id,
    or a batch with a producer id has no epoch or sequence.
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
    checksum = _crc32c(covered, *records)
    prefix = _PREFIX.pack(0, size - _LOG_OVERHEAD, partition_leader_epoch, MAGIC, checksum)
    return prefix + covered, checksum


def parse_header(data: Buffer) -> BatchHeader:
    """Parses the header of a batch. ``data`` must be exactly one batch. Raises CorruptRecordError
    if the batch is invalid or has a wrong CRC.
    """
    view = memoryview(data).cast("B")
    if len(view) < HEADER_SIZE:
        raise _corrupt(f"a batch of {len(view)} bytes is shorter than its header")
    base_offset, length, leader_epoch, magic, crc = _PREFIX.unpack_from(view)
    if length != len(view) - _LOG_OVERHEAD:
        raise _corrupt(f"a batch of {length} bytes has {len(view) - _LOG_OVERHEAD}")
    if magic != MAGIC:
        raise _corrupt(f"a batch has magic {magic}, not {MAGIC}")
    if _crc32c(view[_PREFIX.size :]) != crc:
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
        checksum=crc,
    )


@dataclass(frozen=True, slots=True)
class RecordSection:
    """The uncompressed records of one batch, and the values about these records that the batch's
    header needs. Timestamps are in ms.
    """

    data: bytes
    record_count: int
    base_timestamp: int
    max_timestamp: int


def split_records(
    section: Buffer, record_count: int, base_timestamp: int, at: int | None = None
) -> tuple[RecordSection, RecordSection]:
    """Splits the uncompressed records of a batch into two parts: the first ``at`` records, and the
    rest. If ``at`` is None, both parts get about half of the bytes.

    Keys, values and headers stay the same. In the second part, the offset deltas begin at 0, and
    the base timestamp is the timestamp of the part's first record.

    Raises InvalidRecordError if the records do not end exactly at the end of ``section``. Raises
    IllegalStateError if a part would be empty.
    """
    if record_count < 2 or not (at is None or 0 < at < record_count):
        raise IllegalStateError(f"a batch of {record_count} records can't be split at {at}")
    # Record by record, which is slow. A split is rare.
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
    return CorruptRecordError(message)


def _invalid(message: str) -> InvalidRecordError:
    return InvalidRecordError(message)
