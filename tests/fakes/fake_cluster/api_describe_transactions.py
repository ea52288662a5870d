"""DescribeTransactions: what the coordinator has of each transactional id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes.fake_cluster.codec import Request

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 65, (0, 0)


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    return _answer(cluster, request, lambda tid: _describe(cluster, node, request, tid))


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    return _answer(cluster, request, lambda tid: _state(request, tid, error))


def _answer(cluster: FakeCluster, request: Request, describe: Any) -> Any:
    return request.answer.DescribeTransactionsResponse(
        throttle_time=cluster.throttle_ms(),
        transaction_states=[describe(tid) for tid in request.body.transactional_ids],
    )


def _state(request: Request, transactional_id: str, error: ErrorCode, **known: Any) -> Any:
    # (Java's defaults of a new TransactionState: zeros.)
    unknown: dict[str, Any] = {
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": (),
    }
    return request.answer.TransactionState(
        error_code=error, transactional_id=transactional_id, **(unknown | known)
    )


def _describe(cluster: FakeCluster, node: int, request: Request, transactional_id: str) -> Any:
    if not transactional_id:
        return _state(request, transactional_id, ErrorCode.INVALID_REQUEST)
    refused = cluster.coordinators.refused_by(node, transactional_id)
    if refused is not ErrorCode.NONE:
        return _state(request, transactional_id, refused)
    found = next(
        (t for t in cluster.coordinators.known_at(node) if t.transactional_id == transactional_id),
        None,
    )
    if found is None:
        return _state(request, transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    names = sorted({tp.topic for tp in found.partitions})
    return _state(
        request,
        transactional_id,
        ErrorCode.NONE,
        transaction_state=found.state.value,
        transaction_timeout=found.timeout_ms,
        # In wall-clock time, as of brokers.
        transaction_start_time=(
            cluster.wall_ms() - cluster.open_for_ms(found) if found.start_ms >= 0 else -1
        ),
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[
            request.answer.TopicData(
                topic=name,
                partitions=sorted(tp.partition for tp in found.partitions if tp.topic == name),
            )
            for name in names
        ],
    )
