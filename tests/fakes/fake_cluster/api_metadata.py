"""Metadata: brokers, and topics with leaders and epochs. It may make topics."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.fakes.fake_cluster.codec import Request

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster, Topic

KEY, VERSIONS = 3, (0, 13)
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NO_ID = uuid.UUID(int=0)


def is_legal(name: str) -> bool:
    return name not in (".", "..") and _LEGAL.fullmatch(name) is not None


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    asked = request.body.topics
    whole = asked is None or (request.version == 0 and not asked)
    if whole:
        topics = [_known(request, t, cluster, node) for _, t in sorted(cluster.topics.items())]
    else:
        topics = []
        for name, topic_id in dict.fromkeys((t.name, getattr(t, "topic_id", None)) for t in asked):
            topics.append(_topic(cluster, node, request, name, topic_id))
    return _answer(cluster, request, topics, ErrorCode.NONE)


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    """For every topic asked for; the brokers are returned all the same."""
    topics = [
        _failed(request, t.name, getattr(t, "topic_id", None), error)
        for t in request.body.topics or ()
    ]
    return _answer(cluster, request, topics, error)


def _answer(cluster: FakeCluster, request: Request, topics: list[Any], error: ErrorCode) -> Any:
    answer = request.answer
    up = cluster.registered
    return answer.MetadataResponse(
        throttle_time=cluster.throttle_ms(),
        brokers=[
            answer.MetadataResponseBroker(
                node_id=node, host="127.0.0.1", port=cluster.brokers[node], rack=None
            )
            for node in up
        ],
        cluster_id=cluster.cluster_id,
        controller_id=up[0] if up else -1,
        topics=topics,
        error_code=error,
    )


def _topic(
    cluster: FakeCluster, node: int, request: Request, name: str | None, topic_id: Any
) -> Any:
    if name is None:
        found = cluster.topic_of_id(topic_id or _NO_ID)
        if found is None:
            return _failed(request, None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        return _known(request, found, cluster, node)
    if name in cluster.topics:
        return _known(request, cluster.topics[name], cluster, node)
    if not is_legal(name):
        return _failed(request, name, None, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if cluster.auto_create_topics and getattr(request.body, "allow_auto_topic_creation", True):
        # It is there in the next answer, not yet in this one.
        cluster.create_topic(name)
    return _failed(request, name, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _failed(request: Request, name: str | None, topic_id: Any, error: ErrorCode) -> Any:
    if name is None and request.version < 12:
        name = ""
    return request.answer.MetadataResponseTopic(
        error_code=error, name=name, topic_id=topic_id or _NO_ID, is_internal=False, partitions=()
    )


def _known(request: Request, topic: Topic, cluster: FakeCluster, node: int) -> Any:
    answer = request.answer
    seen = [
        cluster.log_at(node, TopicPartition(topic.name, index)) or log
        for index, log in enumerate(topic.partitions)
    ]
    return answer.MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name.startswith("__"),
        partitions=[
            answer.MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if log.leader < 0 else ErrorCode.NONE,
                partition_index=index,
                leader_id=log.leader,
                leader_epoch=log.leader_epoch,
                replica_nodes=log.replicas,
                isr_nodes=tuple(sorted(log.isr)),
                offline_replicas=tuple(n for n in log.replicas if n in cluster.down),
            )
            for index, log in enumerate(seen)
        ],
    )
