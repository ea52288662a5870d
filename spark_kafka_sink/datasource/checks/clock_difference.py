"""Measures the difference between this machine's clock and the active controller's clock.

``topic_checks.py`` decides whether the difference is a problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.call import AnyBroker, Call
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)

#: How often the controller's time is requested; the last response counts.
_ROUNDS: Final = 2
#: The only request that changes nothing and whose response has a broker's time. It asks for the
#: state of KRaft's metadata log (Java: ``Topic.CLUSTER_METADATA_TOPIC_NAME``). Any broker of a
#: KRaft cluster since 3.3 forwards it to the active controller. Needs DESCRIBE on the cluster.
QUORUM: Final = DescribeQuorumRequest(
    topics=[
        TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    ]
)


@dataclass(frozen=True, slots=True)
class ClockDifference:
    """The difference between this machine's clock and the active controller's clock.

    ``ahead_ms`` is positive if this machine's clock is ahead, and negative if it is behind. The
    true value is at most ``error_ms`` away: half of the request's round trip. ``controller`` is the
    broker id of the controller.
    """

    controller: int
    ahead_ms: int
    error_ms: int


def clock_difference(client: AdminClient, deadline_ms: int) -> ClockDifference | None:
    """Measures the difference between this machine's clock and the active controller's clock.
    Returns None if the controller does not report its time.

    Raises AuthorizationError if the principal lacks DESCRIBE on the cluster. Raises
    UnsupportedVersionError for brokers before Kafka 3.3, and for clusters with ZooKeeper.
    """
    clock, asked_ms, begun_ms = client.clock, 0, 0
    for _ in range(_ROUNDS):  # the first one may have to connect
        asked_ms, begun_ms = clock.now_ms(), clock.wall_ms()
        call = Call(QUORUM, AnyBroker(), "DescribeQuorum", error_in, "DESCRIBE on the cluster")
        found = client.loop.send_and_receive(call, deadline_ms)
    half_ms = (clock.now_ms() - asked_ms) // 2
    leader, leader_ms = found.topics[0].partitions[0].leader_id, leader_time_ms(found)
    if leader_ms is None:
        return None
    return ClockDifference(leader, begun_ms + half_ms - leader_ms, half_ms)


def error_in(response: DescribeQuorumResponse) -> ErrorCode:
    """Returns the error code of a DescribeQuorum response. If the response as a whole has no error,
    returns the error code of its only partition.
    """
    code = response.error_code
    return response.topics[0].partitions[0].error_code if code is ErrorCode.NONE else code


def leader_time_ms(response: DescribeQuorumResponse) -> int | None:
    """The active controller's wall clock in milliseconds since the epoch. None if there is no
    controller, or if it does not report its time.
    """
    quorum = response.topics[0].partitions[0]
    times = (
        voter.last_caught_up_timestamp
        for voter in quorum.current_voters
        if voter.replica_id == quorum.leader_id and voter.last_caught_up_timestamp > 0
    )
    return next(times, None)
