"""ListGroups and OffsetFetch: which group has members, and what it committed, of kio's bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from kio_oracle import decode, in_every_version, response

from spark_kafka_sink.base.errors import ErrorCode, RemoteProtocolError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_requests import LIST_GROUPS
from spark_kafka_sink.transactions.operations.held_partitions import committed_offsets, offset_fetch

ALL = in_every_version(LIST_GROUPS)


def answer(_: Any, version: int) -> bytes:
    plain = {"protocol_type": "consumer", "group_type": "consumer"}
    states = {"another": "Stable", "mine": "Reconciling"}
    groups = [{"group_id": name, "group_state": states[name], **plain} for name in states]
    return response("list_groups", version, groups=groups)


TPS = (TopicPartition("t", 0), TopicPartition("t", 3))


def offsets(
    group: str = "mine", error: ErrorCode = ErrorCode.NONE, numbers: Sequence[int] = (0, 3)
) -> bytes:
    partitions = [
        {"partition_index": n, "committed_offset": 7 if n else -1, "metadata": "", "error_code": 0}
        for n in numbers
    ]
    topics = [{"name": "t", "partitions": partitions}] if numbers else []
    one = {"group_id": group, "topics": topics, "error_code": error}
    return response("offset_fetch", 8, groups=[one])


def test_offsets_are_of_partitions_with_a_commit() -> None:
    asked = offset_fetch("mine", TPS)
    found = decode(asked, 8, offsets())
    assert committed_offsets(found) == {TPS[1]: 7}


def test_offsets_of_another_group_are_malformed() -> None:
    asked = offset_fetch("mine", TPS)
    for wrong in (offsets("another"), offsets(numbers=())):
        with pytest.raises(RemoteProtocolError):
            decode(asked, 8, wrong)
    refused = decode(asked, 8, offsets("mine", ErrorCode.GROUP_AUTHORIZATION_FAILED, ()))
    assert refused.groups[0].error_code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert committed_offsets(refused) == {}
