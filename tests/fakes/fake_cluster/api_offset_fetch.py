"""OffsetFetch of groups without members, by topic names (versions 8 and 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.group_offsets import Committed

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 9, (8, 9)
_NONE = Committed(-1, -1, "")


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    return _answer(cluster, request, lambda group: _group(cluster, node, request, group))


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    return _answer(cluster, request, lambda group: _refused(request, group, error))


def _answer(cluster: FakeCluster, request: Request, tell: Any) -> Any:
    return request.answer.OffsetFetchResponse(
        throttle_time=cluster.throttle_ms(), groups=[tell(group) for group in request.body.groups]
    )


def _refused(request: Request, group: Any, error: ErrorCode) -> Any:
    return request.answer.OffsetFetchResponseGroup(
        group_id=group.group_id, topics=(), error_code=error
    )


def _group(cluster: FakeCluster, node: int, request: Request, group: Any) -> Any:
    if not cluster.coordinators.coordinates(node, group.group_id):
        return _refused(request, group, ErrorCode.NOT_COORDINATOR)
    committed = cluster.groups.committed.get(group.group_id, {})
    unstable = cluster.groups.unstable(group.group_id) if request.body.require_stable else set()
    answer = request.answer

    def one(tp: TopicPartition) -> Any:
        moving = tp in unstable
        found = _NONE if moving else committed.get(tp, _NONE)
        return answer.OffsetFetchResponsePartitions(
            partition_index=tp.partition,
            committed_offset=found.offset,
            committed_leader_epoch=found.leader_epoch,
            metadata=found.metadata,
            error_code=_UNSTABLE_OFFSET_COMMIT if moving else ErrorCode.NONE,
        )

    return answer.OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            answer.OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[one(TopicPartition(topic.name, p)) for p in topic.partition_indexes],
            )
            for topic in group.topics
        ],
        error_code=ErrorCode.NONE,
    )


#: No producer is ever told this one.
_UNSTABLE_OFFSET_COMMIT = 88
