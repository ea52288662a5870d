"""AddPartitionsToTxn up to version 3, which is what clients send (protocol 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.fakes.fake_cluster.codec import Request

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 24, (0, 3)
_FENCED = 2


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    body = request.body
    wanted = [TopicPartition(t.name, p) for t in body.v3_and_below_topics for p in t.partitions]
    unknown = {tp for tp in wanted if tp not in cluster.logs}
    if unknown:
        errors = {
            tp: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if tp in unknown
            else ErrorCode.OPERATION_NOT_ATTEMPTED
            for tp in wanted
        }
        return _answer(cluster, request, errors)
    transactional_id = body.v3_and_below_transactional_id
    refused = cluster.coordinators.refused_by(node, transactional_id, writes=True)
    if refused is not ErrorCode.NONE:
        return refuse(cluster, request, refused)
    producer = (body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
    error = cluster.transactions.add_partitions(
        transactional_id, producer, wanted, cluster.now, version=0
    )
    if error is ErrorCode.NONE:
        cluster.schedule_abort_scan()
    if error is ErrorCode.PRODUCER_FENCED and request.version < _FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return refuse(cluster, request, error)


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    topics = request.body.v3_and_below_topics
    errors = {TopicPartition(t.name, p): error for t in topics for p in t.partitions}
    return _answer(cluster, request, errors)


def _answer(cluster: FakeCluster, request: Request, errors: dict[TopicPartition, ErrorCode]) -> Any:
    answer = request.answer
    return answer.AddPartitionsToTxnResponse(
        throttle_time=cluster.throttle_ms(),
        results_by_topic_v3_and_below=[
            answer.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    answer.AddPartitionsToTxnPartitionResult(
                        partition_index=p,
                        partition_error_code=errors[TopicPartition(topic.name, p)],
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.body.v3_and_below_topics
        ],
    )
