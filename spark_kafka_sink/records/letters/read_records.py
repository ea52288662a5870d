"""Committed records of fetched batches, with all of their fields.

Owns: :class:`CommittedRecords`, which holds a transaction's records back until its marker.
Never: the fetching; a search that must survive any bytes (``log_records``): here a batch that can't
be read is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import FetchedPartition
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.log_records import (
    OFFSET_AND_LENGTH,
    ControlType,
    LogBatch,
    LogRecord,
    marker_of,
)
from spark_kafka_sink.records.record_batch import HEADER_SIZE, parse_header
from spark_kafka_sink.records.single_record import read_bytes, read_headers
from spark_kafka_sink.records.varint import MAX_VARLONG_BYTES, read_varint


@dataclass(slots=True)
class CommittedRecords:
    """Of partition ``tp``, from ``next_offset`` on up to ``end``; records of a transaction that is
    open there are left out. Picklable.
    """

    tp: TopicPartition
    next_offset: int
    end: int
    _open: dict[int, list[LogRecord]] = field(default_factory=dict, init=False)

    def of(self, fetched: FetchedPartition) -> Iterator[LogRecord]:
        """What ``fetched``, from ``next_offset`` on, has of them; those of a transaction when its
        marker comes. Raises CorruptRecordError.
        """
        view, at = fetched.records.cast("B"), 0
        while len(view) - at >= OFFSET_AND_LENGTH.size:
            end = at + OFFSET_AND_LENGTH.size + OFFSET_AND_LENGTH.unpack_from(view, at)[1]
            if end > len(view):
                return  # cut off; the next fetch has it
            batch = LogBatch(parse_header(view[at:end]), view[at + HEADER_SIZE : end])
            first, at, header = self.next_offset, end, batch.header
            self.next_offset = max(first, batch.next_offset)
            if header.control:
                ended = self._open.pop(header.producer_id, [])
                if marker_of(batch) is ControlType.COMMIT:
                    yield from ended
                continue
            wanted = [one for one in _records(batch) if first <= one.offset < self.end]
            if header.transactional:
                self._open.setdefault(header.producer_id, []).extend(wanted)
            else:
                yield from wanted


def _records(batch: LogBatch) -> Iterator[LogRecord]:
    header = batch.header
    data, at = Codec(header.codec).decompress(batch.section), 0
    for _ in range(header.record_count):
        size, at = read_varint(data, at)
        end = at + size
        time, at = read_varint(data, at + 1, MAX_VARLONG_BYTES)
        delta, at = read_varint(data, at)
        key, at = read_bytes(data, at)
        value, at = read_bytes(data, at)
        yield LogRecord(
            header.base_offset + delta,
            header.max_timestamp if header.log_append_time else header.base_timestamp + time,
            key,
            value,
            tuple((k.decode(errors="replace"), v) for k, v in read_headers(data[at:end])),
        )
        at = end
