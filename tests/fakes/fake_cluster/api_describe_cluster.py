"""DescribeCluster: the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes.fake_cluster.codec import Request

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 60, (0, 1)


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    return refuse(cluster, request, ErrorCode.NONE)


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    answer = request.answer
    up = [] if error else cluster.registered
    return answer.DescribeClusterResponse(
        throttle_time=cluster.throttle_ms(),
        error_code=error,
        error_message=None,
        cluster_id=cluster.cluster_id,
        controller_id=up[0] if up else -1,
        brokers=[
            answer.DescribeClusterBroker(
                broker_id=n, host="127.0.0.1", port=cluster.brokers[n], rack=None
            )
            for n in up
        ],
    )
