"""CreateTopics, as far as our clients and tests ask."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes.fake_cluster.api_metadata import is_legal
from tests.fakes.fake_cluster.codec import Request

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 19, (2, 7)


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    names = Counter(topic.name for topic in request.body.topics)
    results = []
    for topic in request.body.topics:
        count = 1 if topic.num_partitions == -1 else topic.num_partitions
        replication = topic.replication_factor
        if replication == -1:
            replication = cluster.default_replication
        error = _judge(cluster, topic, names[topic.name])
        if error is ErrorCode.NONE and not request.body.validate_only:
            configs = {c.name: c.value or "" for c in topic.configs}
            cluster.create_topic(topic.name, count, replication=replication, configs=configs)
        told = (-1, -1) if error else (count, replication)
        results.append((topic.name, error, *told))
    return _answer(cluster, request, list(dict.fromkeys(results)))


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    return _answer(cluster, request, [(topic.name, error, -1, -1) for topic in request.body.topics])


def _judge(cluster: FakeCluster, topic: Any, asked: int) -> ErrorCode:
    if asked > 1:
        return ErrorCode.INVALID_REQUEST
    if not is_legal(topic.name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if topic.name in cluster.topics:
        return ErrorCode.TOPIC_ALREADY_EXISTS
    up = len(cluster.brokers) - len(cluster.down)
    if topic.replication_factor != -1 and not 1 <= topic.replication_factor <= up:
        return ErrorCode.INVALID_REPLICATION_FACTOR
    if topic.num_partitions != -1 and topic.num_partitions < 1:
        return ErrorCode.INVALID_PARTITIONS
    return ErrorCode.NONE


def _answer(
    cluster: FakeCluster, request: Request, results: list[tuple[str, ErrorCode, int, int]]
) -> Any:
    answer = request.answer
    topics = []
    for name, error, count, replication in results:
        made = cluster.topics.get(name) if error is ErrorCode.NONE else None
        topics.append(
            answer.CreatableTopicResult(
                name=name,
                topic_id=None if made is None else made.topic_id,
                error_code=error,
                error_message=None if error is ErrorCode.NONE else error.name,
                num_partitions=count,
                replication_factor=replication,
                configs=None if error else (),
            )
        )
    return answer.CreateTopicsResponse(throttle_time=cluster.throttle_ms(), topics=topics)
