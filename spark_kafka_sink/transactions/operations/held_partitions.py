"""Describes the partitions that an open transaction blocks: how many offsets read_committed
consumers have to wait for, and which consumer groups wait.

This module sends the requests ListOffsets, ListGroups and OffsetFetch. ``blockers.py`` finds the
transactions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_kafka_sink.admin.call import Call, CoordinatorKey, Leader, RetryDecision, retry_decision
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import ErrorCode, UnsupportedVersionError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_requests import LIST_GROUPS
from spark_kafka_sink.protocol.log_requests import list_offsets, listed_offset
from spark_kafka_sink.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from spark_kafka_sink.protocol.transaction_requests import CoordinatorType, by_topic

#: The type of share groups. Their members read without committed offsets.
_SHARE = "share"


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """A partition that an open transaction blocks: read_committed consumers can read it only up to
    ``offset``, the last stable offset.

    * ``behind``: the number of offsets from ``offset`` to the high watermark.
    * ``groups``: for each consumer group that waits or soon will, the number of offsets that the
      group can read before it waits. These are the groups that have members, and whose committed
      offset is at most ``offset``. Groups that the principal may not describe are missing.
    """

    partition: int
    offset: int
    behind: int
    groups: Mapping[str, int] = field(default_factory=dict)


def held_partitions(
    client: TransactionClient, stable: Mapping[TopicPartition, int], deadline_ms: int
) -> tuple[HeldPartition, ...]:
    """Describes the partitions in ``stable``, a map of each partition to its last stable offset.
    The result has the same order. With brokers before 3.0, ``groups`` is empty, because these
    brokers can't list groups by state.

    Raises one of these errors:

    * KafkaTimeoutError: a broker does not respond in time.
    * AuthorizationError: the principal has no right to DESCRIBE a topic.
    """
    ends = _ends(client, tuple(stable), deadline_ms)
    committed = _committed(client, tuple(stable), deadline_ms)
    return tuple(
        HeldPartition(
            tp.partition,
            offset,
            max(0, ends[tp] - offset),
            {
                group: offset - offsets[tp]
                for group, offsets in sorted(committed.items())
                if offsets.get(tp, offset + 1) <= offset
            },
        )
        for tp, offset in stable.items()
    )


def _ends(
    client: TransactionClient, partitions: tuple[TopicPartition, ...], deadline_ms: int
) -> Mapping[TopicPartition, int]:
    """Requests the high watermark of each partition from its leader (ListOffsets)."""
    calls = [
        Call(
            list_offsets(tp),
            Leader(tp),
            f"ListOffsets of {tp}",
            lambda response: listed_offset(response).error_code,
            f"DESCRIBE on {tp.topic}",
        )
        for tp in partitions
    ]
    answers = client.loop.receive_all(calls, deadline_ms)
    return {
        tp: listed_offset(answer).offset for tp, answer in zip(partitions, answers, strict=True)
    }


def _committed(
    client: TransactionClient, partitions: tuple[TopicPartition, ...], deadline_ms: int
) -> Mapping[str, Mapping[TopicPartition, int]]:
    """Requests the committed offsets of all consumer groups that have members. Returns the offsets
    by group and partition.

    The groups with members are found by the state of the groups. The result is empty if the brokers
    can't list groups by state. Groups that the principal may not describe are missing.
    """
    try:
        groups = _groups(client, deadline_ms)
        calls = {
            group: Call(
                offset_fetch(group, partitions),
                CoordinatorKey(group, CoordinatorType.GROUP),
                f"OffsetFetch of group {group}",
                lambda response: _unless_final(response.groups[0].error_code),
            )
            for group in groups
        }
        client.loop.run(calls.values(), deadline_ms)
    except UnsupportedVersionError:
        return {}
    return {
        g: committed_offsets(call.response)
        for g, call in calls.items()
        if call.response is not None
    }


def offset_fetch(group_id: str, partitions: tuple[TopicPartition, ...]) -> OffsetFetchRequest:
    """Creates the OffsetFetch request for the committed offsets of a group. It is sent to the
    group's coordinator. The principal needs DESCRIBE on the group.
    """
    topics = [
        OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
        for topic, numbers in by_topic(partitions).items()
    ]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])


def committed_offsets(response: OffsetFetchResponse) -> Mapping[TopicPartition, int]:
    """Returns the committed offsets in a response to OffsetFetch, by partition. Partitions without
    a committed offset are left out. The result is empty if the response has an error.
    """
    group = response.groups[0]
    if group.error_code is not ErrorCode.NONE:
        return {}
    return {
        TopicPartition(topic.name, one.partition_index): one.committed_offset
        for topic in group.topics
        for one in topic.partitions
        if one.committed_offset >= 0
    }


def _groups(client: TransactionClient, deadline_ms: int) -> tuple[str, ...]:
    nodes = client.brokers(deadline_ms)
    calls = [
        Call(LIST_GROUPS, node, "ListGroups", lambda response: _unless_final(response.error_code))
        for node in nodes
    ]
    client.loop.run(calls, deadline_ms)
    answered = (call.response for call in calls if call.response is not None)
    return tuple(
        dict.fromkeys(
            one.group_id
            for response in answered
            if response.error_code is ErrorCode.NONE
            for one in response.groups
            if one.group_type != _SHARE
        )
    )


def _unless_final(code: ErrorCode) -> ErrorCode:
    """Returns ``code`` if the request must be sent again. Returns NONE for success, and also for an
    error that a retry can't resolve, because the caller then leaves out what the response would
    have shown.
    """
    # (After such an error, a group counts as a group without offsets. For example, the group may
    # have been deleted.)
    return ErrorCode.NONE if retry_decision(code) is RetryDecision.FINAL else code
