"""Which groups have members: ListGroups with states (KIP-518, brokers since 2.6).

Owns: the request with its response. Never: what follows from it
(``datasource/exactly_once/offsets_group.py``). Not on a record's way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol import messages
from spark_kafka_sink.protocol.bodies import ControlRequest, Message
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from spark_kafka_sink.protocol.wire import WireReader, error_code

if TYPE_CHECKING:
    from spark_kafka_sink.protocol.messages import list_groups

__all__ = ["GroupWithMembers", "ListGroupsRequest", "ListGroupsResponse"]

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
    """``group`` is None when it has no members, or when ``error`` is not NONE."""

    error: ErrorCode
    group: GroupWithMembers | None


@dataclass(frozen=True, slots=True)
class ListGroupsRequest(ControlRequest[ListGroupsResponse]):
    """Whether ``group_id`` has members, of any type of group: sent to its coordinator.

    The response lists every group there that has members, and of these only those that the
    principal may describe; READ on a group includes that.
    """

    group_id: str

    api_key = ApiKey.LIST_GROUPS
    versions = VersionRange(4, 5)

    def message(self, version: int) -> Message:
        return messages.list_groups.ListGroupsRequest(states_filter=_WITH_MEMBERS)

    def read(self, reader: WireReader, version: int) -> ListGroupsResponse:
        answer = messages.list_groups.ListGroupsResponse.read(reader, version)
        error = error_code(answer.error_code)
        found = answer.groups.checked(_group, lambda one: one[0] == self.group_id)
        return ListGroupsResponse(error, found[0][1] if found and error is ErrorCode.NONE else None)


def _group(one: list_groups.ListedGroup) -> tuple[str, GroupWithMembers]:
    return one.group_id, GroupWithMembers(one.group_state, one.group_type)
