"""ListGroups and OffsetFetch: which group has members, and what it committed, of kio's bytes."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio_oracle import THROTTLE, Module, decode, read_request, write

from spark_kafka_sink.base.errors import ErrorCode, RemoteProtocolError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_messages import (
    GroupWithMembers,
    ListGroupsRequest,
    OffsetFetchRequest,
)

ASKED = ListGroupsRequest("mine")
ALL: list[tuple[Any, int]] = [(ASKED, 4), (ASKED, 5)]


def answer(request: Any, version: int, *, error: KioErrorCode = KioErrorCode.none) -> bytes:
    kio = Module(request.api_key.name.lower(), version, "response")
    groups = tuple(
        kio.ListedGroup(
            group_id=name, protocol_type="consumer", group_state=state, group_type="consumer"
        )
        for name, state in (("another", "Stable"), ("mine", "Reconciling"))
    )
    return write(kio.ListGroupsResponse(throttle_time=THROTTLE, error_code=error, groups=groups))


@pytest.mark.parametrize("version", [4, 5])
def test_only_groups_with_members_are_requested(version: int) -> None:
    states = read_request(ASKED, version).states_filter
    assert "Stable" in states
    assert not {"Empty", "Dead"} & set(states)


@pytest.mark.parametrize("version", [4, 5])
def test_the_group_itself_is_found_among_others(version: int) -> None:
    kind = "consumer" if version == 5 else ""
    mine = {"mine": GroupWithMembers("Reconciling", kind)}
    assert decode(ASKED, version, answer(ASKED, version)).groups == mine
    other = ListGroupsRequest("none")
    assert decode(other, version, answer(other, version)).groups == {}
    every = ListGroupsRequest()
    both = mine | {"another": GroupWithMembers("Stable", kind)}
    assert decode(every, version, answer(every, version)).groups == both


def test_an_error_has_no_group() -> None:
    error = KioErrorCode.coordinator_load_in_progress
    found = decode(ASKED, 5, answer(ASKED, 5, error=error))
    assert (found.error, found.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {})


TPS = (TopicPartition("t", 0), TopicPartition("t", 3))


def offsets(group: str = "mine", error: KioErrorCode = KioErrorCode.none, *numbers: int) -> bytes:
    kio = Module("offset_fetch", 8, "response")
    partitions = tuple(
        kio.OffsetFetchResponsePartitions(
            partition_index=number,
            committed_offset=7 if number else -1,
            metadata="",
            error_code=KioErrorCode.none,
        )
        for number in numbers
    )
    topics = (kio.OffsetFetchResponseTopics(name="t", partitions=partitions),) if numbers else ()
    one = kio.OffsetFetchResponseGroup(group_id=group, topics=topics, error_code=error)
    return write(kio.OffsetFetchResponse(throttle_time=THROTTLE, groups=(one,)))


def test_offsets_are_of_partitions_with_a_commit() -> None:
    asked = OffsetFetchRequest("mine", TPS)
    (group,) = read_request(asked, 8).groups
    assert (group.group_id, group.topics[0].partition_indexes) == ("mine", (0, 3))
    assert decode(asked, 8, offsets("mine", KioErrorCode.none, 0, 3)).offsets == {TPS[1]: 7}


def test_offsets_of_another_group_are_malformed() -> None:
    asked = OffsetFetchRequest("mine", TPS)
    for wrong in (offsets("another", KioErrorCode.none, 0, 3), offsets("mine")):
        with pytest.raises(RemoteProtocolError):
            decode(asked, 8, wrong)
    refused = decode(asked, 8, offsets("mine", KioErrorCode.group_authorization_failed))
    assert (refused.error, refused.offsets) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, {})
