"""One record to bytes: format v2 for a record that comes alone (Java's ``DefaultRecord``).

Owns: the bytes of one record and Java's upper bound of them. Never: columns (``record_encoder``
writes the same bytes for thousands of rows at once), a batch.

A record is written in two steps, because its place in a batch is known only under the
accumulator's lock: :func:`record_tail` is everything that does not depend on it (key, value,
headers), :func:`record_bytes` puts the rest before it.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_sink.records.record_batch import HEADER_SIZE
from spark_kafka_sink.records.varint import varint

#: Java's DefaultRecord.MAX_RECORD_OVERHEAD: length, attributes, deltas, lengths at their longest.
_MAX_RECORD_OVERHEAD = 21
#: What a batch of one record has at most besides the record's tail.
LARGEST_OVERHEAD = HEADER_SIZE + _MAX_RECORD_OVERHEAD

#: Varints of the numbers that most lengths and deltas are.
_KNOWN = 8192
#: One byte, or two with the high bit of the first: written out, because each task makes them.
_VARINTS: list[bytes] = [
    *(bytes((2 * n,)) for n in range(64)),
    *(bytes((2 * n & 0x7F | 0x80, n >> 6)) for n in range(64, _KNOWN)),
]
_NULL = varint(-1)
_NO_HEADERS = b"\x00"


def _varint(value: int) -> bytes:
    return _VARINTS[value] if 0 <= value < _KNOWN else varint(value)


def record_tail(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]] = ()
) -> bytes:
    """Key, value and headers, each with its length."""
    if key is None:
        key, key_length = b"", _NULL
    else:
        size = len(key)
        key_length = _VARINTS[size] if size < _KNOWN else varint(size)
    if value is None:
        value, value_length = b"", _NULL
    else:
        size = len(value)
        value_length = _VARINTS[size] if size < _KNOWN else varint(size)
    return b"".join(
        (key_length, key, value_length, value, _headers(headers) if headers else _NO_HEADERS)
    )


def _headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    parts = []
    count = 0
    for key, value in headers:
        name = key.encode()
        parts += [_varint(len(name)), name]
        parts += [_NULL] if value is None else [_varint(len(value)), value]
        count += 1
    return _varint(count) + b"".join(parts)


def record_bytes(offset_delta: int, timestamp_delta: int, tail: bytes) -> bytes:
    """The record number ``offset_delta`` of a batch, ``timestamp_delta`` ms after its first."""
    time = _VARINTS[timestamp_delta] if 0 <= timestamp_delta < _KNOWN else varint(timestamp_delta)
    offset = _VARINTS[offset_delta] if offset_delta < _KNOWN else varint(offset_delta)
    size = 1 + len(time) + len(offset) + len(tail)
    length = _VARINTS[size] if size < _KNOWN else varint(size)
    return b"".join((length, b"\x00", time, offset, tail))


def size_upper_bound(tail: bytes) -> int:
    """At least the bytes of a batch of this record alone, as Java estimates them
    (``AbstractRecords.estimateSizeInBytesUpperBound``).
    """
    return LARGEST_OVERHEAD + len(tail)
