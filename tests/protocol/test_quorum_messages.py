"""DescribeQuorum: of a controller's answer its time is read, of kio's bytes."""

from __future__ import annotations

import io

import pytest
from kio.schema.describe_quorum.v1 import response as kio
from kio.schema.describe_quorum.v1.request import DescribeQuorumRequest as KioRequest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from spark_kafka_sink.base.errors import ErrorCode, RemoteProtocolError
from spark_kafka_sink.datasource.checks.clock_difference import QUORUM, error_in, leader_time_ms
from spark_kafka_sink.protocol.answers import decode

ASKED = QUORUM
NOW_MS = 1_795_363_200_000
UNKNOWN = -1


def voter(replica, caught_up):
    return kio.ReplicaState(
        replica_id=replica,
        log_end_offset=7,
        last_fetch_timestamp=UNKNOWN,
        last_caught_up_timestamp=caught_up,
    )


def body(*topics, error=KioErrorCode.none) -> bytes:
    buffer = io.BytesIO()
    message = kio.DescribeQuorumResponse(error_code=error, topics=topics)
    entity_writer(kio.DescribeQuorumResponse)(buffer, message)
    return buffer.getvalue()


def answer(*topics, error=KioErrorCode.none):
    return decode(ASKED, 1, memoryview(body(*topics, error=error)))


def quorum(*voters, leader=2, name="__cluster_metadata", error=KioErrorCode.none):
    partition = kio.PartitionData(
        partition_index=0,
        error_code=error,
        leader_id=leader,
        leader_epoch=3,
        high_watermark=7,
        current_voters=voters,
        observers=(),
    )
    return kio.TopicData(topic_name=name, partitions=(partition,))


def test_the_log_of_the_metadata_is_asked_for() -> None:
    (body,) = ASKED.encode(1)
    found, _ = entity_reader(KioRequest)(memoryview(body), 0)
    (topic,) = found.topics
    assert (topic.topic_name, [p.partition_index for p in topic.partitions]) == (
        *("__cluster_metadata", [0]),
    )


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
    found = answer(error=KioErrorCode(code.value))
    assert (error_in(found), len(found.topics)) == (code, 0)


def test_an_error_of_the_partition_is_the_answers() -> None:
    found = answer(quorum(error=KioErrorCode.not_leader_or_follower))
    assert error_in(found) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_answer_about_something_else_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="not requested"):
        answer(quorum(voter(2, NOW_MS), name="orders"))
