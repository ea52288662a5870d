"""ListTransactions: those that this node coordinates. One that is only about to load them, or has
just let them go, does not tell that it misses any.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.transaction_coordinator import State

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 66, (0, 2)
_ALL = {state.value for state in State} | {"PrepareEpochFence"}


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    answer, body = request.answer, request.body
    states, producers = set(body.state_filters), set(body.producer_id_filters)
    duration = getattr(body, "duration_filter", -1)
    # (RE2 in a broker, which has less; it must match the whole id.)
    pattern = getattr(body, "transactional_id_pattern", None)
    if cluster.coordinators.is_loading(node):
        return refuse(cluster, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    found = [
        t
        for t in cluster.coordinators.known_at(node)
        if t.state is not State.DEAD
        and (not states or t.state.value in states)
        and (not producers or t.producer_id in producers)
        and (duration < 0 or cluster.open_for_ms(t) > duration)
        and (not pattern or re.fullmatch(pattern, t.transactional_id))
    ]
    return answer.ListTransactionsResponse(
        throttle_time=cluster.throttle_ms(),
        error_code=ErrorCode.NONE,
        unknown_state_filters=sorted(states - _ALL),
        transaction_states=[
            answer.TransactionState(
                transactional_id=t.transactional_id,
                producer_id=t.producer_id,
                transaction_state=t.state.value,
            )
            for t in found
        ],
    )


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    return request.answer.ListTransactionsResponse(
        throttle_time=cluster.throttle_ms(),
        error_code=error,
        unknown_state_filters=(),
        transaction_states=(),
    )
