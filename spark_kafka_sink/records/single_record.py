"""Encodes single records, for the producer's ``send`` (format v2, Java's ``DefaultRecord``).

This module also has Java's upper bound of the size of one record, and makes complete batches with a
few records. ``record_encoder`` writes the same bytes for thousands of rows together.

:func:`record_bytes` is called under the accumulator's lock, because it needs the record's place in
its batch. :func:`headers_section` takes more time than the rest, and is called before the lock is
taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_kafka_sink.base.errors import RemoteProtocolError
from spark_kafka_sink.protocol.producer_ids import ProducerIdAndEpoch
from spark_kafka_sink.records.compression import Codec, CompressionType
from spark_kafka_sink.records.record_batch import HEADER_SIZE, write_header
from spark_kafka_sink.records.varint import read_varint, varint

#: A batch's header, and Java's DefaultRecord.MAX_RECORD_OVERHEAD: length, attributes, deltas and
#: lengths at their longest.
JAVA_OVERHEAD = HEADER_SIZE + 21

#: The number of varints in the table. Most lengths and deltas are smaller.
_KNOWN = 8192
#: The signed varints of 0 to 8191, which have one or two bytes. Each worker process makes the
#: table, and the expression is faster than calls of varint().
_VARINTS: list[bytes] = [
    *(bytes((2 * n,)) for n in range(64)),
    *(bytes((2 * n & 0x7F | 0x80, n >> 6)) for n in range(64, _KNOWN)),
]
_NULL = varint(-1)
_ATTRIBUTES = b"\x00"
#: The headers section of a record without headers.
EMPTY_SECTION = b"\x00"


def _varint(value: int) -> bytes:
    return _VARINTS[value] if 0 <= value < _KNOWN else varint(value)


def headers_section(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Encodes the headers of a record: their number, then the headers."""
    parts = []
    count = 0
    for key, value in headers:
        name = key.encode()
        parts += [_varint(len(name)), name]
        parts += [_NULL] if value is None else [_varint(len(value)), value]
        count += 1
    return _varint(count) + b"".join(parts)


def record_bytes(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: bytes = EMPTY_SECTION,
) -> bytes:
    """Encodes a record.

    ``offset_delta`` is the record's index in its batch. ``timestamp_delta`` is the record's
    timestamp minus the batch's base timestamp, in ms. ``headers`` is the result of
    :func:`headers_section`.
    """
    # One join, and then the length before it, take a third less time than summing lengths first.
    # Most numbers are in the table: reading it costs less than asking whether it has them.
    if timestamp_delta >= 0:
        try:
            body = b"".join(
                (
                    _ATTRIBUTES, _VARINTS[timestamp_delta], _VARINTS[offset_delta],
                    _NULL if key is None else _VARINTS[len(key)], key or b"",
                    _NULL if value is None else _VARINTS[len(value)], value or b"", headers,
                )
            )  # fmt: skip
            return _VARINTS[len(body)] + body
        except IndexError:
            pass
    parts = [_ATTRIBUTES, _varint(timestamp_delta), _varint(offset_delta)]
    for part in (key, value):
        parts += (_NULL,) if part is None else (_varint(len(part)), part)
    body = b"".join((*parts, headers))
    return _varint(len(body)) + body


def size_upper_bound(key: bytes | None, value: bytes | None, headers: bytes = EMPTY_SECTION) -> int:
    """An upper bound of the size of a batch with only this record, in bytes, without compression.
    This is the same estimate as Java's ``AbstractRecords.estimateSizeInBytesUpperBound``.
    ``headers`` is the result of :func:`headers_section`.
    """
    size = JAVA_OVERHEAD + len(headers)
    for part in (key, value):
        size += 1 if part is None else len(_varint(len(part))) + len(part)
    return size


def batch_of(
    records: Sequence[tuple[bytes | None, bytes | None]],
    now_ms: int,
    producer: ProducerIdAndEpoch,
    base_sequence: int,
) -> list[bytes]:
    """Creates a batch from pairs of key and value, compressed with zstd. Returns the header and the
    compressed records, as buffers for a Produce request.

    All records have the timestamp ``now_ms``. If ``producer`` is a valid identity, the batch is
    transactional, and ``base_sequence`` is the sequence number of its first record. If ``producer``
    is NO_PRODUCER_ID, the batch belongs to no producer.
    """
    codec = Codec(CompressionType.ZSTD, 3)
    raw = [record_bytes(i, 0, key, value) for i, (key, value) in enumerate(records)]
    section = codec.compress(raw)
    header, _ = write_header(
        [section],
        codec=codec,
        record_count=len(records),
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=base_sequence if producer.is_valid else -1,
        transactional=producer.is_valid,
    )
    return [header, section]


#: The most bytes by which :func:`size_upper_bound` is above the bytes of key, value and headers
#: section.
MOST_OVERHEAD = JAVA_OVERHEAD + 2 * 5


def read_headers(section: bytes) -> list[tuple[bytes, bytes | None]]:
    """Decodes the bytes that :func:`headers_section` returns. Returns pairs of key and value.

    Raises RemoteProtocolError if ``section`` is not exactly the headers of one record, for example
    if it ends within a value.
    """
    count, at = read_varint(section, 0)
    if count < 0:
        raise RemoteProtocolError(f"a record has {count} headers")
    found = []
    for _ in range(count):
        key, at = read_bytes(section, at)
        value, at = read_bytes(section, at)
        found.append((key or b"", value))
    if at != len(section):
        raise RemoteProtocolError(f"{len(section) - at} bytes follow the headers of a record")
    return found


def read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Reads the byte string at the position ``at``: the length as a varint, then the bytes. Returns
    the bytes, and the position after them. For a negative length (null), returns None in place of
    the bytes.

    Raises RemoteProtocolError if ``data`` ends too early.
    """
    size, at = read_varint(data, at)
    if size < 0:
        return None, at
    end = at + size
    if end > len(data):
        raise RemoteProtocolError(f"a string of {size} bytes at byte {at} runs past the end")
    return data[at:end], end
