"""ListGroups: which group has members, of kio's bytes."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio_oracle import THROTTLE, Module, decode, read_request, write

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.group_messages import GroupWithMembers, ListGroupsRequest

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
    group = decode(ASKED, version, answer(ASKED, version)).group
    assert group == GroupWithMembers("Reconciling", "consumer" if version == 5 else "")
    other = ListGroupsRequest("none")
    assert decode(other, version, answer(other, version)).group is None


def test_an_error_has_no_group() -> None:
    error = KioErrorCode.coordinator_load_in_progress
    found = decode(ASKED, 5, answer(ASKED, 5, error=error))
    assert (found.error, found.group) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None)
