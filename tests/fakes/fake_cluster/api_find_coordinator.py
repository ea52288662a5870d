"""FindCoordinator: for groups and transactions, one key or many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes.fake_cluster.codec import Request

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 10, (0, 6)
_BATCHED = 4
_KNOWN_TYPES = (0, 1)


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    known = getattr(request.body, "key_type", 0) in _KNOWN_TYPES
    return _answer(cluster, node, request, ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST)


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    return _answer(cluster, -1, request, error)


def _answer(cluster: FakeCluster, node: int, request: Request, refused: ErrorCode) -> Any:
    answer, body = request.answer, request.body

    def told(key: str) -> dict[str, Any]:
        found = -1 if refused else cluster.coordinators.seen(node, key)
        error = refused
        if found < 0 and not refused:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return {
            "error_code": error,
            "error_message": None,
            "node_id": found,
            "host": "127.0.0.1" if found >= 0 else "",
            "port": cluster.brokers.get(found, -1),
        }

    throttle = cluster.throttle_ms()
    if request.version < _BATCHED:
        return answer.FindCoordinatorResponse(throttle_time=throttle, **told(body.key))
    keys = body.coordinator_keys
    return answer.FindCoordinatorResponse(
        throttle_time=throttle,
        coordinators=[answer.Coordinator(key=key, **told(key)) for key in keys],
    )
