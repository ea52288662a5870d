"""Reads a topic of dead letters.

Owns: the offsets of its partitions, and their committed records. Never: what a letter says
(``records/letters/letter_fields.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.partition_reader import PartitionReader
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import OffsetSpec
from spark_kafka_sink.records.letters.read_records import CommittedRecords
from spark_kafka_sink.records.log_records import LogRecord

#: A topic that is missing for so long is misspelt.
_MISSING_TOPIC_TIMEOUT_MS: Final = 1_000


class LetterReader:
    """Over the connections of ``client``; each request is bounded by its max.block.ms. Raises
    KafkaTimeoutError when there is no such topic.
    """

    def __init__(self, client: AdminClient, topic: str) -> None:
        self._client = client
        self._reader = PartitionReader(client, "", "READ on the topic")
        cluster = client.describe_topics(
            (topic,),
            missing_topic_timeout_ms=_MISSING_TOPIC_TIMEOUT_MS,
            allow_auto_topic_creation=False,
        )
        self._tps = [info.tp for info in cluster.topics[topic]]

    def partitions(self) -> list[CommittedRecords]:
        """All letters that are there now, to be read."""
        both = (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        return [CommittedRecords(tp, *(self._offset(tp, one) for one in both)) for tp in self._tps]

    def read(self, records: CommittedRecords) -> Iterator[LogRecord]:
        """All of them, once."""
        tp, attempts = records.tp, 0
        while records.next_offset < records.end:
            before = records.next_offset
            fetched = self._reader.fetch(tp, before, self._client.deadline())
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                # Retention has deleted them since.
                records.next_offset = max(self._offset(tp, OffsetSpec.EARLIEST), before + 1)
                continue
            yield from records.of(fetched)
            attempts = 0 if records.next_offset > before else attempts + 1
            if attempts:
                # A follower that has just become the leader has no high watermark yet.
                self._client.loop.pause(attempts, self._client.deadline())

    def _offset(self, tp: TopicPartition, spec: OffsetSpec) -> int:
        return self._reader.offset(tp, spec, self._client.deadline())
