"""DescribeQuorum: of a controller's answer its time is read, of kio's bytes."""

from __future__ import annotations

import pytest
from kio_oracle import decode, response

from spark_kafka_sink.base.errors import ErrorCode, RemoteProtocolError
from spark_kafka_sink.datasource.checks.clock_difference import QUORUM, error_in, leader_time_ms

ASKED = QUORUM
NOW_MS = 1_795_363_200_000
UNKNOWN = -1


def voter(replica, caught_up):
    times = {"last_fetch_timestamp": UNKNOWN, "last_caught_up_timestamp": caught_up}
    return {"replica_id": replica, "log_end_offset": 7, **times}


def body(*topics, error=ErrorCode.NONE) -> bytes:
    return response("describe_quorum", 1, error_code=error, topics=[*topics])


def answer(*topics, error=ErrorCode.NONE):
    return decode(ASKED, 1, body(*topics, error=error))


def quorum(*voters, leader=2, name="__cluster_metadata", error=ErrorCode.NONE):
    partition = {
        "partition_index": 0,
        "error_code": error,
        "leader_id": leader,
        "leader_epoch": 3,
        "high_watermark": 7,
        "current_voters": [*voters],
        "observers": [],
    }
    return {"topic_name": name, "partitions": [partition]}


def test_the_time_is_the_leaders_alone() -> None:
    early = NOW_MS - 3_600_000
    found = answer(quorum(voter(1, early), voter(2, NOW_MS), voter(3, early)))
    assert found.error_code is ErrorCode.NONE
    assert found.topics[0].partitions[0].leader_id == 2
    assert leader_time_ms(found) == NOW_MS


def test_a_missing_or_silent_leader_has_no_time() -> None:
    assert leader_time_ms(answer(quorum(voter(1, NOW_MS), voter(2, UNKNOWN)))) is None
    assert leader_time_ms(answer(quorum(voter(1, NOW_MS), leader=-1))) is None


def test_an_error_of_the_whole_answer_names_no_partition() -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    found = answer(error=code)
    assert (error_in(found), len(found.topics)) == (code, 0)


def test_an_error_of_the_partition_is_the_answers() -> None:
    found = answer(quorum(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert error_in(found) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_answer_about_something_else_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="a partition is missing"):
        answer(quorum(voter(2, NOW_MS), name="orders"))
