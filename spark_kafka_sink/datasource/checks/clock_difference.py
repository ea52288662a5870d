"""How far this machine's clock is from a broker's.

Owns: :class:`ClockDifference`, and the request for the time. Never: what a wrong clock does
(``topic_checks.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.call import AnyBroker, Call, retry_code
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.admin_messages import DescribeQuorumRequest, DescribeQuorumResponse

#: How often the controller's time is requested; the last response counts.
_ROUNDS: Final = 2


@dataclass(frozen=True, slots=True)
class ClockDifference:
    """How far this machine's wall clock is ahead of that of the ``controller``, a broker's id;
    negative: behind. The error is at most ``error_ms``, half of the round trip.
    """

    controller: int
    ahead_ms: int
    error_ms: int


def clock_difference(client: AdminClient, deadline_ms: int) -> ClockDifference | None:
    """Of this machine and the active controller; None when it does not report its time.

    Raises AuthorizationError without DESCRIBE on the cluster, UnsupportedVersionError of brokers
    before 3.3 and of clusters with ZooKeeper.
    """
    clock, asked_ms, begun_ms = client.clock, 0, 0

    def handle_response(response: DescribeQuorumResponse) -> ErrorCode | None:
        return retry_code(response.error, "DescribeQuorum", "DESCRIBE on the cluster")

    for _ in range(_ROUNDS):  # the first one may have to connect
        asked_ms, begun_ms = clock.now_ms(), clock.wall_ms()
        call = Call(DescribeQuorumRequest(), AnyBroker(), handle_response)
        found = client.loop.send_and_receive(call, deadline_ms, "DescribeQuorum")
    half_ms = (clock.now_ms() - asked_ms) // 2
    if found.leader_time_ms is None:
        return None
    return ClockDifference(found.leader, begun_ms + half_ms - found.leader_time_ms, half_ms)
