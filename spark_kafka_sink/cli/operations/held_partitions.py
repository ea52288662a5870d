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
from spark_kafka_sink.protocol.fetch_messages import ListOffsetsRequest, ListOffsetsResponse
from spark_kafka_sink.protocol.group_messages import (
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from spark_kafka_sink.protocol.transaction_requests import CoordinatorType

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
            ends[tp] = response.partitions[tp].offset
            error = response.partitions[tp].error
            return retry_code(error, f"ListOffsets of {tp}", f"DESCRIBE on {tp.topic}")

        return handle_response

    calls = [Call(ListOffsetsRequest((tp,)), Leader(tp), handler(tp)) for tp in partitions]
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
                OffsetFetchRequest(group, partitions),
                CoordinatorKey(group, CoordinatorType.GROUP),
                _retry_group,
            )
            for group in groups
        }
        client.loop.run(calls.values(), deadline_ms)
    except UnsupportedVersionError:
        return {}
    return {g: call.response.offsets for g, call in calls.items() if call.response is not None}


def _groups(client: TransactionClient, deadline_ms: int) -> tuple[str, ...]:
    nodes = client.brokers(deadline_ms)
    calls = [Call(ListGroupsRequest(), node, _retry_list) for node in nodes]
    client.loop.run(calls, deadline_ms)
    found = (call.response.groups.items() for call in calls if call.response is not None)
    return tuple(g for groups in found for g, one in groups if one.type != _SHARE)


def _retry_list(response: ListGroupsResponse) -> ErrorCode | None:
    return _unless_final(response.error)


def _retry_group(response: OffsetFetchResponse) -> ErrorCode | None:
    return _unless_final(response.error)


def _unless_final(code: ErrorCode) -> ErrorCode | None:
    """A group that may not be described, or is gone by now, has no offsets here."""
    try:
        return retry_code(code, "", success_only=False)
    except KafkaError:
        return None
