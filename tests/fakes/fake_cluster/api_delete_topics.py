"""DeleteTopics by name, for a principal that may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes.fake_cluster.codec import Request

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 20, (1, 5)
_WITH_MESSAGES = 5


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    results = []
    for name in request.body.topic_names:
        there = name in cluster.topics
        if there:
            cluster.delete_topic(name)
        results.append((name, ErrorCode.NONE if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return _answer(cluster, request, results)


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    return _answer(cluster, request, [(name, error) for name in request.body.topic_names])


def _answer(cluster: FakeCluster, request: Request, results: list[tuple[str, ErrorCode]]) -> Any:
    text = {"error_message": None} if request.version >= _WITH_MESSAGES else {}
    return request.answer.DeleteTopicsResponse(
        throttle_time=cluster.throttle_ms(),
        responses=[
            request.answer.DeletableTopicResult(name=name, error_code=error, **text)
            for name, error in results
        ],
    )
