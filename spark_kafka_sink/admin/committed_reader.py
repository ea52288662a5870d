"""Reads the committed records of a small topic, such as a topic of dead letters or of reports.

Owns: :class:`CommittedReader`: the offsets of the partitions, and the committed records with all
their fields. A damaged batch is an error. Never: the meaning of a record
(``records/letters/letter_fields.py``), reading a topic in which other clients may write invalid
bytes (``records/log_records.py``).
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
    """Reads the committed records of ``topic`` with the connections of ``client``. Raises
    KafkaTimeoutError if the topic does not exist. Each request has the time limit max.block.ms.

    ``left_out`` is the number of records of transactions that are still open at the end of a
    partition.
    """

    def __init__(self, client: AdminClient, topic: str) -> None:
        self._client = client
        self.left_out = 0
        self._reader = PartitionReader(client, "", "READ on the topic")
        self._tps = [info.tp for info in existing_to_read(client, topic).topics[topic]]

    def partitions(self) -> list[tuple[TopicPartition, int]]:
        """The partitions of the topic, each with its end offset (the offset after its last
        record).
        """
        offset = self._reader.offset
        return [(tp, offset(tp, OffsetSpec.LATEST, self._client.deadline())) for tp in self._tps]

    def read(self, tp: TopicPartition, end: int) -> Iterator[LogRecord]:
        """Yields the committed records of a partition before the offset ``end``.

        The records of a transaction are yielded after its commit marker was read. Records of an
        open transaction are not yielded. Raises CorruptRecordError for a damaged batch. Raises
        KafkaTimeoutError if no batch arrives within max.block.ms, for example because the log was
        truncated before ``end``.
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
