"""Reads the committed records of a small topic: dead letters, reports.

Owns: :class:`CommittedReader`: the offsets of the partitions, and their committed records with all
of their fields. A batch that can't be read is an error. Never: the meaning of a record
(``records/letters/letter_fields.py``), or a search that must survive any bytes
(``records/log_records.py``).
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.existing_topic import existing_to_read
from spark_kafka_sink.admin.partition_reader import PartitionReader
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import OffsetSpec
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.log_records import (
    ControlType,
    LogBatch,
    LogRecord,
    marker_of,
    whole_batches,
)
from spark_kafka_sink.records.single_record import read_bytes, read_headers
from spark_kafka_sink.records.varint import MAX_VARLONG_BYTES, read_varint


class CommittedReader:
    """Over the connections of ``client``; each request is bounded by its max.block.ms. Raises
    KafkaTimeoutError when there is no such topic.

    ``left_out`` counts records whose transaction's marker is not there yet.
    """

    def __init__(self, client: AdminClient, topic: str) -> None:
        self._client = client
        self.left_out = 0
        self._reader = PartitionReader(client, "", "READ on the topic")
        self._tps = [info.tp for info in existing_to_read(client, topic).topics[topic]]

    def partitions(self) -> list[tuple[TopicPartition, int]]:
        """Each partition, and the offset after its last record now."""
        offset = self._reader.offset
        return [(tp, offset(tp, OffsetSpec.LATEST, self._client.deadline())) for tp in self._tps]

    def read(self, tp: TopicPartition, end: int) -> Iterator[LogRecord]:
        """All committed records before ``end``; the records of a transaction come with its marker,
        and records of an open transaction are left out. Raises CorruptRecordError, and
        KafkaTimeoutError when nothing comes for max.block.ms: the log was cut before ``end``.
        """
        open_ones: dict[int, list[LogRecord]] = {}
        at, before = 0, -1
        while at < end:
            if at > before:
                before, deadline, tries = at, self._client.deadline(), 0
            else:
                # A follower that has just become the leader has no high watermark yet.
                self._client.loop.pause(tries := tries + 1, deadline)
            fetched = self._reader.fetch(tp, at, deadline)
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                start = self._reader.offset(tp, OffsetSpec.EARLIEST, deadline)
                if start > at:  # retention has deleted them, and it may be markers of others
                    open_ones.clear()
                at = max(start, at)
                continue
            for batch in whole_batches(fetched.records):
                header = batch.header
                if header.control:
                    ended = open_ones.pop(header.producer_id, [])
                    yield from ended if marker_of(batch) is ControlType.COMMIT else ()
                else:
                    found = [one for one in _records(batch) if at <= one.offset < end]
                    if header.transactional:
                        open_ones.setdefault(header.producer_id, []).extend(found)
                    else:
                        yield from found
                at = max(at, batch.next_offset)
        self.left_out += sum(map(len, open_ones.values()))


def _records(batch: LogBatch) -> Iterator[LogRecord]:
    header = batch.header
    data, end = Codec(header.codec).decompress(batch.section), 0
    for _ in range(header.record_count):
        size, at = read_varint(data, end)
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
