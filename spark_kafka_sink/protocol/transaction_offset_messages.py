"""A consumer group's offsets in a transaction: AddOffsetsToTxn and TxnOffsetCommit.

Owns: both requests, both responses, and :class:`OffsetAndMetadata`. Never: which broker gets which,
and the handling of an error code (``transactions/offset_commits.py``).

They become the group's offsets when the transaction is committed (KIP-98). With transactions of
version 1 the transaction's coordinator is notified of the group first, by AddOffsetsToTxn; with
version 2 the group's coordinator does that when it gets TxnOffsetCommit v5 (KIP-890).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.bodies import ControlRequest, Message, once_each
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages import txn_offset_commit
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from spark_kafka_sink.protocol.wire import WireReader, error_of

__all__ = [
    "OffsetAndMetadata",
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitResponse",
]


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """``offset``: the next one to read, as in Kafka's class of the same name.

    ``leader_epoch``: of the last record that was read; -1 when unknown. ``metadata`` is a
    text of the committer.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitResponse:
    """``errors`` by partition, each for itself: some may be kept and others not."""

    errors: Mapping[TopicPartition, ErrorCode]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitRequest(ControlRequest[TxnOffsetCommitResponse]):
    """The ``offsets`` that the group has from the transaction's commit on.

    For the group's coordinator. It has no member of the group, so the coordinator checks no
    membership. ``transaction_version`` decides the request's version, as with EndTxn: version 5
    adds the group to the transaction, the versions below must not be requested that.
    """

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    transaction_version: int

    api_key = ApiKey.TXN_OFFSET_COMMIT

    @property
    def versions(self) -> VersionRange:
        return VersionRange(5, 5) if self.transaction_version >= 2 else VersionRange(0, 4)

    def message(self, version: int) -> Message:
        """Raises InvalidTopicError for a topic name that is too long even for the wire.

        Before version 2 (brokers before 2.1) leader epochs are left out.
        """
        wire = txn_offset_commit
        topics: dict[str, list[txn_offset_commit.TxnOffsetCommitRequestPartition]] = {}
        for tp, committed in self.offsets.items():
            topics.setdefault(tp.topic, []).append(
                wire.TxnOffsetCommitRequestPartition(
                    partition_index=tp.partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        return wire.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[
                wire.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )

    def read(self, reader: WireReader, version: int) -> TxnOffsetCommitResponse:
        """The response, which has every partition of this request once and no other."""
        answer = txn_offset_commit.TxnOffsetCommitResponse.read(reader, version)
        errors = once_each(
            (
                (TopicPartition(topic.name, one.partition_index), error_of(one.error_code))
                for topic in answer.topics
                for one in topic.partitions
            ),
            self.offsets,
        )
        return TxnOffsetCommitResponse(errors, max(0, answer.throttle_time_ms))
