"""ListGroups and OffsetFetch: which group has members, and what it committed, of kio's bytes."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio_oracle import THROTTLE, Module, decode, read_request, write

from spark_kafka_sink.base.errors import ErrorCode, RemoteProtocolError
from spark_kafka_sink.cli.operations.held_partitions import committed_offsets, offset_fetch
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_requests import LIST_GROUPS

ALL: list[tuple[Any, int]] = [(LIST_GROUPS, 4), (LIST_GROUPS, 5)]


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
    states = read_request(LIST_GROUPS, version).states_filter
    assert "Stable" in states
    assert not {"Empty", "Dead"} & set(states)


@pytest.mark.parametrize("version", [4, 5])
def test_groups_are_read_with_their_states(version: int) -> None:
    kind = "consumer" if version == 5 else ""
    found = decode(LIST_GROUPS, version, answer(LIST_GROUPS, version))
    assert [(one.group_id, one.group_state, one.group_type) for one in found.groups] == [
        ("another", "Stable", kind),
        ("mine", "Reconciling", kind),
    ]
    assert found.error_code is ErrorCode.NONE


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
    asked = offset_fetch("mine", TPS)
    (group,) = read_request(asked, 8).groups
    assert (group.group_id, group.topics[0].partition_indexes) == ("mine", (0, 3))
    found = decode(asked, 8, offsets("mine", KioErrorCode.none, 0, 3))
    assert committed_offsets(found) == {TPS[1]: 7}


def test_offsets_of_another_group_are_malformed() -> None:
    asked = offset_fetch("mine", TPS)
    for wrong in (offsets("another", KioErrorCode.none, 0, 3), offsets("mine")):
        with pytest.raises(RemoteProtocolError):
            decode(asked, 8, wrong)
    refused = decode(asked, 8, offsets("mine", KioErrorCode.group_authorization_failed))
    assert refused.groups[0].error_code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert committed_offsets(refused) == {}
