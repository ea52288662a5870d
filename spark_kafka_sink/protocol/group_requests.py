"""Requests for consumer groups: ListGroups and TxnOffsetCommit. ListGroups requests only the groups
that have members (KIP-518, brokers of version 2.6 or newer).

The callers send the requests and handle the responses
(``datasource/exactly_once/offsets_group.py``, ``transactions/offset_commits.py``,
``transactions/operations/held_partitions.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages.list_groups import ListGroupsRequest
from spark_kafka_sink.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.transaction_requests import versions_of

#: The groups with members, of any type, that a broker coordinates: the states of groups of
#: consumers, of share groups and of streams, except Empty and Dead. (If a broker does not support a
#: state, it has no group in it.) The response has the groups that the principal may describe; READ
#: on a group includes that.
LIST_GROUPS: Final = ListGroupsRequest(
    states_filter=(
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Assigning",
        "Reconciling",
        "NotReady",
    )
)


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset, as in Kafka's class of the same name.

    * ``offset``: the next offset to read.
    * ``leader_epoch``: the leader epoch of the last record that was read. -1 if it is unknown.
    * ``metadata``: a text that the committing client may choose.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def txn_offset_commit(
    to: PreparedTransaction,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> TxnOffsetCommitRequest:
    """Creates the TxnOffsetCommit request, which adds the ``offsets`` of a consumer group to an
    open transaction. ``to`` identifies this transaction.

    Versions below 2 (brokers before 2.1) are sent without leader epochs.
    """
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for tp, committed in offsets.items():
        topics.setdefault(tp.topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=to.transactional_id,
        group_id=group_id,
        producer_id=to.producer_id,
        producer_epoch=to.producer_epoch,
        topics=[
            TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
        versions=versions_of(to.transaction_version),
    )
