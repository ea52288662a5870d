"""Committed records of fetched batches, with all of their fields.

Owns: :class:`CommittedRecords`, which holds a transaction's records back until its marker.
Never: the fetching; a search that must survive any bytes (``log_records``): here a batch that can't
be read is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from spark_kafka_sink.protocol.log_requests import FetchedPartition
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.log_records import ControlType
from spark_kafka_sink.records.record_batch import HEADER_SIZE, BatchHeader, parse_header
from spark_kafka_sink.records.single_record import read_headers
from spark_kafka_sink.records.varint import MAX_VARLONG_BYTES, read_varint

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_CONTROL_KEY = struct.Struct(">hh")  # version, type


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """One record; ``timestamp`` in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True)
class CommittedRecords:
    """Of one partition, from ``next_offset`` on up to ``end``; records of a transaction that is
    open there are left out.
    """

    next_offset: int
    end: int
    _open: dict[int, list[ReadRecord]] = field(default_factory=dict)

    def of(self, fetched: FetchedPartition) -> Iterator[ReadRecord]:
        """What ``fetched``, from ``next_offset`` on, has of them; those of a transaction when its
        marker comes. Raises CorruptRecordError.
        """
        view, at = fetched.records.cast("B"), 0
        while len(view) - at >= _OFFSET_AND_LENGTH.size:
            size = _OFFSET_AND_LENGTH.size + _OFFSET_AND_LENGTH.unpack_from(view, at)[1]
            if size > len(view) - at:
                return  # cut off; the next fetch has it
            batch = view[at : at + size]
            header = parse_header(batch)
            first, at = self.next_offset, at + size
            self.next_offset = max(first, header.base_offset + header.last_offset_delta + 1)
            records = _records(header, batch[HEADER_SIZE:])
            if header.control:
                ended = self._open.pop(header.producer_id, [])
                if any(_marker(one) == ControlType.COMMIT for one in records):
                    yield from ended
                continue
            wanted = [one for one in records if first <= one.offset < self.end]
            if header.transactional:
                self._open.setdefault(header.producer_id, []).extend(wanted)
            else:
                yield from wanted


def _records(header: BatchHeader, section: memoryview) -> Iterator[ReadRecord]:
    data, at = Codec(header.codec).decompress(section), 0
    for _ in range(header.record_count):
        size, at = read_varint(data, at)
        end = at + size
        time, at = read_varint(data, at + 1, MAX_VARLONG_BYTES)
        delta, at = read_varint(data, at)
        key, at = _bytes(data, at)
        value, at = _bytes(data, at)
        yield ReadRecord(
            header.base_offset + delta,
            header.max_timestamp if header.log_append_time else header.base_timestamp + time,
            key,
            value,
            tuple((k.decode(errors="replace"), v) for k, v in read_headers(data[at:end])),
        )
        at = end


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _marker(record: ReadRecord) -> int | None:
    key = record.key or b""
    return int(_CONTROL_KEY.unpack_from(key)[1]) if len(key) >= _CONTROL_KEY.size else None
