"""Reads a topic of dead letters.

Owns: the offsets of its partitions, and their committed records. Never: what a letter says
(``records/letters/letter_fields.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.partition_reader import PartitionReader
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import OffsetSpec
from spark_kafka_sink.records.letters.read_records import CommittedRecords, ReadRecord

_RIGHTS = "READ on the topic"
#: A topic that is missing for so long is misspelt.
_MISSING_TOPIC_TIMEOUT_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class LetterRange:
    """Offsets ``first`` to ``end``, which is not included. Picklable."""

    tp: TopicPartition
    first: int
    end: int


def letter_ranges(client: AdminClient, topic: str) -> Sequence[LetterRange]:
    """All letters that are there now. Each request is bounded by max.block.ms; KafkaTimeoutError
    when there is no such topic.
    """
    reader = PartitionReader(client, "", _RIGHTS)
    cluster = client.describe_topics(
        (topic,),
        missing_topic_timeout_ms=_MISSING_TOPIC_TIMEOUT_MS,
        allow_auto_topic_creation=False,
    )
    found = []
    for info in cluster.topics[topic]:
        first = reader.offset(info.tp, OffsetSpec.EARLIEST, client.deadline())
        end = reader.offset(info.tp, OffsetSpec.LATEST, client.deadline())
        found.append(LetterRange(info.tp, first, end))
    return found


def read_letters(client: AdminClient, wanted: LetterRange) -> Iterator[ReadRecord]:
    """The committed records of a range."""
    reader, tp = PartitionReader(client, "", _RIGHTS), wanted.tp
    client.describe_topics((tp.topic,), allow_auto_topic_creation=False)
    records = CommittedRecords(wanted.first, wanted.end)
    attempts = 0
    while records.next_offset < wanted.end:
        before = records.next_offset
        fetched = reader.fetch(tp, before, client.deadline())
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            # Retention has deleted them since.
            earliest = reader.offset(tp, OffsetSpec.EARLIEST, client.deadline())
            records.next_offset = max(earliest, before + 1)
            continue
        yield from records.of(fetched)
        attempts = 0 if records.next_offset > before else attempts + 1
        if attempts:
            # A follower that has just become the leader has no high watermark yet.
            client.loop.pause(attempts, client.deadline())
