"""Reads a topic of dead letters.

Owns: the offsets of its partitions, and their committed records. Never: what a letter says
(``records/letters/letter_fields.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.partition_reader import PartitionReader
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import OffsetSpec
from spark_kafka_sink.records.letters.read_records import CommittedRecords
from spark_kafka_sink.records.log_records import LogRecord


@dataclass(frozen=True, slots=True)
class LetterRange:
    """Offsets ``first`` to ``end``, which is not included. Picklable."""

    tp: TopicPartition
    first: int
    end: int


class LetterReader:
    """Over the connections of ``client``; each request is bounded by its max.block.ms. Raises
    KafkaTimeoutError when there is no such topic.
    """

    def __init__(self, client: AdminClient, topic: str) -> None:
        self._client = client
        self._reader = PartitionReader(client, "", "READ on the topic")
        cluster = client.describe_topics((topic,), allow_auto_topic_creation=False)
        self._partitions = [info.tp for info in cluster.topics[topic]]

    def ranges(self) -> list[LetterRange]:
        """All letters that are there now."""
        both = (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        return [
            LetterRange(tp, *(self._offset(tp, spec) for spec in both)) for tp in self._partitions
        ]

    def read(self, wanted: LetterRange) -> Iterator[LogRecord]:
        """The committed records of a range."""
        records, attempts = CommittedRecords(wanted.first, wanted.end), 0
        while records.next_offset < wanted.end:
            before = records.next_offset
            fetched = self._reader.fetch(wanted.tp, before, self._client.deadline())
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                # Retention has deleted them since.
                earliest = self._offset(wanted.tp, OffsetSpec.EARLIEST)
                records.next_offset = max(earliest, before + 1)
                continue
            yield from records.of(fetched)
            attempts = 0 if records.next_offset > before else attempts + 1
            if attempts:
                # A follower that has just become the leader has no high watermark yet.
                self._client.loop.pause(attempts, self._client.deadline())

    def _offset(self, tp: TopicPartition, spec: OffsetSpec) -> int:
        return self._reader.offset(tp, spec, self._client.deadline())
