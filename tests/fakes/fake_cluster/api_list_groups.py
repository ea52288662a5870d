"""ListGroups: those whose coordinator this node is. (None has members, unless a test says so.)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes.fake_cluster.codec import Request

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 16, (4, 5)
_TYPED = 5


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    states = {state.lower() for state in request.body.states_filter}
    answer, groups = request.answer, cluster.groups
    typed = {"group_type": "classic"} if request.version >= _TYPED else {}
    listed = [
        answer.ListedGroup(group_id=name, protocol_type="", group_state=state, **typed)
        for name, state in groups.states().items()
        if cluster.coordinators.coordinates(node, name) and (not states or state.lower() in states)
    ]
    return answer.ListGroupsResponse(
        throttle_time=cluster.throttle_ms(), error_code=ErrorCode.NONE, groups=listed
    )


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    return request.answer.ListGroupsResponse(
        throttle_time=cluster.throttle_ms(), error_code=error, groups=()
    )
