"""ListOffsets: begin, end (or the last stable offset), and the first record of a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.fakes.fake_cluster.codec import Request

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster
    from tests.fakes.fake_cluster.partition_log import PartitionLog

KEY, VERSIONS = 2, (1, 10)
_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    committed = getattr(request.body, "isolation_level", 0) == 1
    answers = {}
    for topic in request.body.topics:
        for piece in topic.partitions:
            log = cluster.log_at(node, TopicPartition(topic.name, piece.partition_index))
            if log is None:
                found = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
            elif log.leader != node:
                found = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, -1)
            else:
                found = _find(log, piece.timestamp, committed=committed)
            answers[topic.name, piece.partition_index] = found
    return _answer(cluster, request, answers)


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    answers = {
        (topic.name, piece.partition_index): (error, -1, -1, -1)
        for topic in request.body.topics
        for piece in topic.partitions
    }
    return _answer(cluster, request, answers)


def _find(log: PartitionLog, timestamp: int, *, committed: bool) -> tuple[ErrorCode, int, int, int]:
    """Error, timestamp, offset, leader epoch."""
    end = log.last_stable_offset if committed else log.end
    if timestamp == _LATEST:
        return ErrorCode.NONE, -1, end, log.leader_epoch
    if timestamp == _EARLIEST:
        # The epoch of the first batch; an empty log has none.
        epoch = log.batches[0].leader_epoch if log.batches else log.leader_epoch
        return ErrorCode.NONE, -1, log.start, epoch
    records = [r for r in log.records() if r.offset < end]
    if timestamp == _MAX_TIMESTAMP:
        records.sort(key=lambda r: (-r.timestamp, r.offset))
        timestamp = -(2**62)
    found = next((r for r in records if r.timestamp >= timestamp), None)
    if found is None:
        return ErrorCode.NONE, -1, -1, -1
    epoch = next(b.leader_epoch for b in log.batches if b.last_offset >= found.offset)
    return ErrorCode.NONE, found.timestamp, found.offset, epoch


def _answer(
    cluster: FakeCluster,
    request: Request,
    answers: dict[tuple[str, int], tuple[ErrorCode, int, int, int]],
) -> Any:
    answer = request.answer
    topics = []
    for topic in request.body.topics:
        parts = []
        for piece in topic.partitions:
            error, timestamp, offset, epoch = answers[topic.name, piece.partition_index]
            parts.append(
                answer.ListOffsetsPartitionResponse(
                    partition_index=piece.partition_index,
                    error_code=error,
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=epoch,
                )
            )
        topics.append(answer.ListOffsetsTopicResponse(name=topic.name, partitions=parts))
    return answer.ListOffsetsResponse(throttle_time=cluster.throttle_ms(), topics=topics)
