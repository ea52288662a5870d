"""Requests of a scene: which of them a fault is laid before, and which of them came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.fakes.fake_cluster.codec import Request
from tests.simulation.spark_world import PREFIX

#: The end of the transactional ids that write the commit log.
LOG_OF = log_id("")


@dataclass(eq=False)
class WatchedRequests:
    """Requests as the cluster meets them, in order; ``arrived`` has their times and names."""

    seen: list[Request] = field(default_factory=list)
    arrived: list[tuple[int, str]] = field(default_factory=list)

    def of(self, *apis: int) -> list[Request]:
        return [request for request in self.seen if request.api in apis]


def is_a_logs(request: Request) -> bool:
    """Of the transactions that write the commit log."""
    return str(request.body.transactional_id).endswith(LOG_OF)


def opens_a_log(request: Request) -> bool:
    return request.api == ApiKey.INIT_PRODUCER_ID and is_a_logs(request)


def writes_a_log(request: Request) -> bool:
    return request.api == ApiKey.PRODUCE and is_a_logs(request)


def of_the_log(request: Request) -> bool:
    return bool(request.body.transactional_id == log_id(PREFIX))


def of_data(request: Request) -> bool:
    """Of any key, named ones, too."""
    return "~~" not in request.body.transactional_id


def ends_data(request: Request) -> bool:
    return request.api == ApiKey.END_TXN and of_data(request)


def of_id(transactional_id: str) -> Callable[[Request], bool]:
    return lambda request: bool(request.body.transactional_id == transactional_id)


def of_a_sweep(request: Request) -> bool:
    """A ListTransactions that looks for idle ids, too."""
    return "Empty" in request.body.state_filters
