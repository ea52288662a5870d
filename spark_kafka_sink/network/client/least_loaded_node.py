"""Chooses a node for a request that any node can handle (Java's ``KafkaClient.leastLoadedNode``).

:func:`find_least_loaded_node` only chooses. The caller opens the connection and sends the request.
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
    """The chosen node.

    * ``node``: None if no node can take a request and no connection attempt can begin.
    * ``any_connection_ready``: true if at least one node is connected. This node can be throttled,
      or can have the maximum number of requests in flight.
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
    """Chooses a node for a request. The search begins with the node at the index ``offset``. The
    result is the first of these nodes that exists:

    1. a connected node without requests in flight
    2. the connected node with the fewest requests in flight
    3. a connecting node
    4. the disconnected node with the oldest connection attempt

    A connected node counts only if it can take another request now. A disconnected node counts only
    if its reconnect backoff is over.
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
