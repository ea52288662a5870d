"""AddOffsetsToTxn: the partition of the group in __consumer_offsets joins the transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.group_offsets import OFFSETS_PARTITION

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 25, (0, 4)
_FENCED = 2


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    body = request.body
    if body.transactional_id and not cluster.coordinators.coordinates(node, body.transactional_id):
        return refuse(cluster, request, ErrorCode.NOT_COORDINATOR)
    error = cluster.transactions.add_partitions(
        body.transactional_id,
        (body.producer_id, body.producer_epoch),
        [OFFSETS_PARTITION],
        cluster.now,
        version=0,
    )
    if error is ErrorCode.NONE:
        cluster.schedule_abort_scan()
    if error is ErrorCode.PRODUCER_FENCED and request.version < _FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return refuse(cluster, request, error)


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    return request.answer.AddOffsetsToTxnResponse(
        throttle_time=cluster.throttle_ms(), error_code=error
    )
