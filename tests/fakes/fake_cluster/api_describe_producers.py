"""DescribeProducers: what a leader remembers of each producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.fakes.fake_cluster.codec import Request

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 61, (0, 0)


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    return _answer(cluster, request, lambda tp: _describe(cluster, node, request, tp))


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    return _answer(cluster, request, lambda tp: _part(request, tp, error, ()))


def _answer(cluster: FakeCluster, request: Request, describe: Any) -> Any:
    answer = request.answer
    return answer.DescribeProducersResponse(
        throttle_time=cluster.throttle_ms(),
        topics=[
            answer.TopicResponse(
                name=topic.name,
                partitions=[
                    describe(TopicPartition(topic.name, p)) for p in topic.partition_indexes
                ],
            )
            for topic in request.body.topics
        ],
    )


def _part(request: Request, tp: TopicPartition, error: ErrorCode, producers: Any) -> Any:
    return request.answer.PartitionResponse(
        partition_index=tp.partition,
        error_code=error,
        error_message=None if error is ErrorCode.NONE else error.name,
        active_producers=producers,
    )


def _describe(cluster: FakeCluster, node: int, request: Request, tp: TopicPartition) -> Any:
    log = cluster.logs.get(tp)
    if log is None:
        return _part(request, tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ())
    if log.leader != node:
        return _part(request, tp, ErrorCode.NOT_LEADER_OR_FOLLOWER, ())
    producers = [
        request.answer.ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=-1
            if entry.transaction_start is None
            else entry.transaction_start,
        )
        for producer_id, entry in log.producers.items()
    ]
    return _part(request, tp, ErrorCode.NONE, producers)
