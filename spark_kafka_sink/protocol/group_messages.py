"""Which groups have members, and what they have committed: ListGroups with states (KIP-518, brokers
since 2.6) and OffsetFetch (of many groups since 3.0).

Owns: the requests with their responses. Never: what follows from them
(``datasource/exactly_once/offsets_group.py``, ``cli/operations/held_partitions.py``). Not on a
record's way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.bodies import ControlRequest, Message, by_topic, once_each
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages import list_groups, offset_fetch
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from spark_kafka_sink.protocol.wire import WireReader, error_of

__all__ = [
    "GroupWithMembers",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
]

#: The states of groups of consumers, of share groups and of streams but for Empty and Dead. (A
#: broker that doesn't know a state has no group in it.)
_WITH_MEMBERS: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Assigning",
    "Reconciling",
    "NotReady",
)


@dataclass(frozen=True, slots=True)
class GroupWithMembers:
    """``state`` and ``type`` (classic, consumer, share, streams; empty before Kafka 3.8) are the
    broker's texts.
    """

    state: str
    type: str


@dataclass(frozen=True, slots=True)
class ListGroupsResponse:
    """``groups`` with members, by their ids; none when ``error`` is not NONE."""

    error: ErrorCode
    groups: Mapping[str, GroupWithMembers] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListGroupsRequest(ControlRequest[ListGroupsResponse]):
    """The groups with members, of any type of group, that a broker coordinates; with ``group_id``
    only whether that one has any: sent to its coordinator.

    The response lists every group there that has members, and of these only those that the
    principal may describe; READ on a group includes that.
    """

    group_id: str | None = None

    api_key = ApiKey.LIST_GROUPS
    versions = VersionRange(4, 5)

    def message(self, version: int) -> Message:
        return list_groups.ListGroupsRequest(states_filter=_WITH_MEMBERS)

    def read(self, reader: WireReader, version: int) -> ListGroupsResponse:
        answer = list_groups.ListGroupsResponse.read(reader, version)
        error = error_of(answer.error_code)
        found = answer.groups.checked(_group, lambda one: self.group_id in (None, one[0]))
        return ListGroupsResponse(error, dict(found) if error is ErrorCode.NONE else {})


def _group(one: list_groups.ListedGroup) -> tuple[str, GroupWithMembers]:
    return one.group_id, GroupWithMembers(one.group_state, one.group_type)


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    """``offsets`` that the group has committed, without partitions that have none."""

    error: ErrorCode
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest(ControlRequest[OffsetFetchResponse]):
    """What a group has committed of ``partitions``: sent to its coordinator. Needs DESCRIBE on the
    group.
    """

    group_id: str
    partitions: tuple[TopicPartition, ...]

    api_key = ApiKey.OFFSET_FETCH
    versions = VersionRange(8, 8)

    def message(self, version: int) -> Message:
        wire = offset_fetch
        topics = [
            wire.OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(self.partitions).items()
        ]
        return wire.OffsetFetchRequest(
            groups=[wire.OffsetFetchRequestGroup(group_id=self.group_id, topics=topics)]
        )

    def read(self, reader: WireReader, version: int) -> OffsetFetchResponse:
        """The response, which has the group once and no other."""
        answer = offset_fetch.OffsetFetchResponse.read(reader, version)
        group = once_each(
            ((one.group_id, one) for one in answer.groups), [self.group_id], "a group"
        )
        found = group[self.group_id]
        error = error_of(found.error_code)
        if error is not ErrorCode.NONE:
            return OffsetFetchResponse(error)
        offsets = once_each(
            (
                (TopicPartition(topic.name, one.partition_index), one.committed_offset)
                for topic in found.topics
                for one in topic.partitions
            ),
            self.partitions,
        )
        return OffsetFetchResponse(
            error, {tp: offset for tp, offset in offsets.items() if offset >= 0}
        )
