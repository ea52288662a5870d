"""Fetch without sessions and without waiting: whole batches from the one that holds the offset."""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.fakes.fake_cluster.codec import Request

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 1, (4, 12)


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    return _answer(
        cluster, request, lambda name, piece: _fetch(cluster, node, request, name, piece)
    )


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    return _answer(cluster, request, lambda name, piece: _failed(request, piece, error))


def _answer(cluster: FakeCluster, request: Request, part: Any) -> Any:
    answer = request.answer
    return answer.FetchResponse(
        throttle_time=cluster.throttle_ms(),
        error_code=ErrorCode.NONE,
        session_id=0,
        responses=[
            answer.FetchableTopicResponse(
                topic=topic.topic, partitions=[part(topic.topic, p) for p in topic.partitions]
            )
            for topic in request.body.topics
        ],
    )


def _failed(request: Request, piece: Any, error: ErrorCode) -> Any:
    return request.answer.PartitionData(
        partition_index=piece.partition,
        error_code=error,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
    )


def _fetch(cluster: FakeCluster, node: int, request: Request, name: str, piece: Any) -> Any:
    log = cluster.log_at(node, TopicPartition(name, piece.partition))
    if log is None:
        return _failed(request, piece, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if log.leader != node:
        return _failed(request, piece, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    asked_epoch = getattr(piece, "current_leader_epoch", -1)
    if 0 <= asked_epoch < log.leader_epoch:
        return _failed(request, piece, ErrorCode.FENCED_LEADER_EPOCH)
    if asked_epoch > log.leader_epoch:
        return _failed(request, piece, ErrorCode.UNKNOWN_LEADER_EPOCH)
    if not log.start <= piece.fetch_offset <= log.end:
        return _failed(request, piece, ErrorCode.OFFSET_OUT_OF_RANGE)
    committed = request.body.isolation_level == 1
    end = log.last_stable_offset if committed else log.end
    data, last = b"", piece.fetch_offset
    first = bisect_left(log.batches, piece.fetch_offset, key=lambda batch: batch.last_offset)
    for batch in islice(log.batches, first, None):
        if batch.last_offset >= end:
            break
        if data and len(data) + len(batch.data) > piece.partition_max_bytes:
            break
        data += batch.data
        last = batch.last_offset
    answer = request.answer
    gone = [
        a
        for a in log.aborted
        if data and a.first_offset <= last and a.last_offset >= piece.fetch_offset
    ]
    return answer.PartitionData(
        partition_index=piece.partition,
        error_code=ErrorCode.NONE,
        high_watermark=log.end,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start,
        aborted_transactions=[
            answer.AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset)
            for a in gone
        ]
        if committed
        else None,
        records=data,
    )
