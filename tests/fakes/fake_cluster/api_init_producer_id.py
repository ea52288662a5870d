"""InitProducerId: from any broker, or with a transactional id from its coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes.fake_cluster.codec import Request, ms

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 22, (0, 5)
_FENCED = 4


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    body = request.body
    expected = (getattr(body, "producer_id", -1), getattr(body, "producer_epoch", -1))
    if (expected[0] == -1) != (expected[1] == -1):
        return refuse(cluster, request, ErrorCode.INVALID_REQUEST)
    transactional_id = body.transactional_id
    if transactional_id is None:
        found = (ErrorCode.NONE, cluster.transactions.new_producer_id(), 0)
    elif refused := cluster.coordinators.refused_by(node, transactional_id, writes=True):
        found = (refused, -1, -1)
    else:
        found = cluster.transactions.initialize(
            transactional_id,
            ms(body.transaction_timeout),
            expected if expected[0] >= 0 else None,
            cluster.now,
        )
    return _answer(cluster, request, *found)


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    return _answer(cluster, request, error, -1, -1)


def _answer(
    cluster: FakeCluster, request: Request, error: ErrorCode, producer_id: int, epoch: int
) -> Any:
    if error is ErrorCode.PRODUCER_FENCED and request.version < _FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return request.answer.InitProducerIdResponse(
        throttle_time=cluster.throttle_ms(),
        error_code=error,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
