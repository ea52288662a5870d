"""EndTxn: version 5 is protocol 2, whatever the cluster's feature level says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes.fake_cluster.codec import Request

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 26, (0, 5)
_FENCED, _TRANSACTIONS_V2 = 2, 5


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    body = request.body
    refused = cluster.coordinators.refused_by(node, body.transactional_id, writes=True)
    if refused is not ErrorCode.NONE:
        return refuse(cluster, request, refused)
    ended = cluster.transactions.end(
        body.transactional_id,
        (body.producer_id, body.producer_epoch),
        commit=body.committed,
        version=2 if request.version >= _TRANSACTIONS_V2 else 0,
        now=cluster.now,
    )
    return _answer(cluster, request, *ended)


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    return _answer(cluster, request, error, -1, -1)


def _answer(
    cluster: FakeCluster, request: Request, error: ErrorCode, producer_id: int, epoch: int
) -> Any:
    if error is ErrorCode.PRODUCER_FENCED and request.version < _FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return request.answer.EndTxnResponse(
        throttle_time=cluster.throttle_ms(),
        error_code=error,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
