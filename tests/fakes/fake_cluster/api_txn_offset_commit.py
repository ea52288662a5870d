"""TxnOffsetCommit without members. Version 5 also adds the group to the transaction (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.group_offsets import OFFSETS_PARTITION, Committed

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 28, (0, 5)
_ABORTABLE, _TRANSACTIONS_V2 = 4, 5


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    body = request.body
    offsets = {
        TopicPartition(topic.name, p.partition_index): Committed(
            p.committed_offset, getattr(p, "committed_leader_epoch", -1), p.committed_metadata
        )
        for topic in body.topics
        for p in topic.partitions
    }
    known = {tp: offset for tp, offset in offsets.items() if tp in cluster.logs}
    error = _verified(cluster, node, request) if known else ErrorCode.NONE
    if known and error is ErrorCode.NONE:
        producer = (body.producer_id, body.producer_epoch)
        cluster.groups.add(producer, body.group_id, known)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _answer(cluster, request, {tp: error if tp in known else unknown for tp in offsets})


def _verified(cluster: FakeCluster, node: int, request: Request) -> ErrorCode:
    """As a leader does with a Produce (``api_produce.py``)."""
    body = request.body
    if not body.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not cluster.coordinators.coordinates(node, body.group_id):
        return ErrorCode.NOT_COORDINATOR
    producer = (body.producer_id, body.producer_epoch)
    if cluster.groups.has_ongoing(*producer):
        return ErrorCode.NONE
    v2 = request.version >= _TRANSACTIONS_V2
    if v2:
        error = cluster.transactions.add_partitions(
            body.transactional_id, producer, [OFFSETS_PARTITION], cluster.now, version=2
        )
        if error is ErrorCode.NONE:
            cluster.schedule_abort_scan()
    else:
        error = cluster.transactions.verify(body.transactional_id, producer, OFFSETS_PARTITION)
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and not v2:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error is ErrorCode.TRANSACTION_ABORTABLE and request.version < _ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return error


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    topics = request.body.topics
    errors = {
        TopicPartition(topic.name, p.partition_index): error
        for topic in topics
        for p in topic.partitions
    }
    return _answer(cluster, request, errors)


def _answer(cluster: FakeCluster, request: Request, errors: dict[TopicPartition, ErrorCode]) -> Any:
    answer = request.answer
    return answer.TxnOffsetCommitResponse(
        throttle_time=cluster.throttle_ms(),
        topics=[
            answer.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    answer.TxnOffsetCommitResponsePartition(
                        partition_index=p.partition_index,
                        error_code=errors[TopicPartition(topic.name, p.partition_index)],
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.body.topics
        ],
    )
