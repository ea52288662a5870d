"""The node for a request that any node can handle (Java's ``KafkaClient.leastLoadedNode``).

Owns: :class:`LeastLoadedNode` and the choice of the node. Never: a connection, a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_kafka_sink.network.channel.selectable import Selectable
from spark_kafka_sink.network.client.cluster_connection_states import (
    ClusterConnectionStates,
    ConnectionState,
)
from spark_kafka_sink.network.client.in_flight_requests import InFlightRequests
from spark_kafka_sink.protocol.cluster import Node


@dataclass(frozen=True, slots=True)
class LeastLoadedNode:
    """The result of the choice. ``node`` is None if no node can be used now, and no node can be
    connected now.

    ``any_connection_ready`` is true if at least one connection is ready. This connection may be
    throttled, or may have the largest allowed number of requests in flight.
    """

    node: Node | None
    any_connection_ready: bool


def find_least_loaded_node(
    nodes: Sequence[Node],
    states: ClusterConnectionStates,
    in_flight: InFlightRequests,
    selector: Selectable,
    offset: int,
    now: int,
) -> LeastLoadedNode:
    """Finds the node for a request. ``offset`` is the index of the node at which the search begins.

    The choice has this order of preference: a ready node without requests in flight; the ready node
    with the fewest requests; a connecting node; of the nodes whose backoff is over, the node with
    the oldest connection attempt.
    """
    any_ready = False
    ready: Node | None = None
    connecting: Node | None = None
    connectable: Node | None = None
    fewest = oldest = 0
    for index in range(len(nodes)):
        node = nodes[(offset + index) % len(nodes)]
        channel_ready = selector.is_channel_ready(node.id)
        # A throttled connection counts: its broker is alive.
        any_ready = any_ready or (
            channel_ready and states.connection_state(node.id) is ConnectionState.READY
        )
        if channel_ready and states.is_ready(node.id, now) and in_flight.can_send_more(node.id):
            count = in_flight.count(node.id)
            if count == 0:
                return LeastLoadedNode(node, any_connection_ready=True)
            if ready is None or count < fewest:
                ready, fewest = node, count
        elif states.is_preparing_connection(node.id):
            connecting = node
        elif states.can_connect(node.id, now):
            attempt = states.last_connect_attempt_ms(node.id)
            # A node that was never tried comes first.
            age = -1 if attempt is None else attempt
            if connectable is None or age < oldest:
                connectable, oldest = node, age
    return LeastLoadedNode(ready or connecting or connectable, any_ready)
