"""What waits behind an open transaction: the offsets after it, and the consumer groups.

Owns: :class:`HeldPartition`, and the requests for it: ListOffsets, ListGroups, OffsetFetch. Never:
whose the transaction is (``blockers.py``).

No API of Kafka has the host of a transaction's client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from spark_kafka_sink.admin.call import Call, CoordinatorKey, Leader, retry_code
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import ErrorCode, KafkaError, UnsupportedVersionError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_requests import LIST_GROUPS
from spark_kafka_sink.protocol.log_requests import list_offsets, listed_offset
from spark_kafka_sink.protocol.messages.list_groups import ListGroupsResponse
from spark_kafka_sink.protocol.messages.list_offsets import ListOffsetsResponse
from spark_kafka_sink.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from spark_kafka_sink.protocol.transaction_requests import CoordinatorType, by_topic

#: Groups whose members read without offsets of the group.
_SHARE = "share"


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """A partition whose last stable offset is ``offset``, with ``behind`` offsets after it.

    ``groups`` are those with members that have committed ``offset`` or less, with the number of
    offsets that they can still read; without groups that the principal may not describe.
    """

    partition: int
    offset: int
    behind: int
    groups: Mapping[str, int] = field(default_factory=dict)


def held_partitions(
    client: TransactionClient, stable: Mapping[TopicPartition, int], deadline_ms: int
) -> tuple[HeldPartition, ...]:
    """Of each partition with its last stable offset. Raises KafkaTimeoutError, AuthorizationError
    for the offsets; groups are left out when brokers don't support that (before 3.0).
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
    """The high watermarks."""
    ends: dict[TopicPartition, int] = {}

    def handler(tp: TopicPartition) -> Callable[[ListOffsetsResponse], ErrorCode | None]:
        def handle_response(response: ListOffsetsResponse) -> ErrorCode | None:
            found = listed_offset(response)
            ends[tp] = found.offset
            return retry_code(found.error_code, f"ListOffsets of {tp}", f"DESCRIBE on {tp.topic}")

        return handle_response

    calls = [Call(list_offsets(tp), Leader(tp), handler(tp)) for tp in partitions]
    if not client.loop.run(calls, deadline_ms):
        raise client.loop.timeout("ListOffsets", calls)
    return ends


def _committed(
    client: TransactionClient, partitions: tuple[TopicPartition, ...], deadline_ms: int
) -> Mapping[str, Mapping[TopicPartition, int]]:
    """The offsets of every group with members, as far as brokers and rights allow."""
    try:
        groups = _groups(client, deadline_ms)
        calls = {
            group: Call(
                offset_fetch(group, partitions),
                CoordinatorKey(group, CoordinatorType.GROUP),
                _retry_group,
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
    """What a group has committed: sent to its coordinator. Needs DESCRIBE on the group."""
    topics = [
        OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
        for topic, numbers in by_topic(partitions).items()
    ]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])


def committed_offsets(response: OffsetFetchResponse) -> Mapping[TopicPartition, int]:
    """Without partitions that have none."""
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
    calls = [Call(LIST_GROUPS, node, _retry_list) for node in nodes]
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


def _retry_list(response: ListGroupsResponse) -> ErrorCode | None:
    return _unless_final(response.error_code)


def _retry_group(response: OffsetFetchResponse) -> ErrorCode | None:
    return _unless_final(response.groups[0].error_code)


def _unless_final(code: ErrorCode) -> ErrorCode | None:
    """A group that may not be described, or is gone by now, has no offsets here."""
    try:
        return retry_code(code, "", success_only=False)
    except KafkaError:
        return None
