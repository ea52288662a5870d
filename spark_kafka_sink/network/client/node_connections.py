"""The connections by node, from the attempt to the disconnect.

Owns: each connection's state and backoff (``states``), its node's API versions (``api_versions``),
and the failed addresses (``failures``). All three change together when a connection is opened or
closed. Never: requests, or their failure (``network_client.py``); sockets (``Selectable``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    RemoteProtocolError,
    WrongListenerError,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.channel.selectable import ChannelState, Selectable
from spark_kafka_sink.network.client.api_versions import ApiVersions
from spark_kafka_sink.network.client.cluster_connection_states import ClusterConnectionStates
from spark_kafka_sink.network.client.connection_failures import ConnectionFailures
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.request import ApiKey

_log = logging.getLogger(__name__)


class NodeConnections:
    """The connections of a client by node. Single-threaded. Buffer sizes are in bytes. -1 stands
    for the operating system's default.
    """

    def __init__(
        self, config: ProducerConfig, selector: Selectable, states: ClusterConnectionStates
    ) -> None:
        self._config = config
        self._selector = selector
        self.states = states
        self.api_versions = ApiVersions()
        self.failures = ConnectionFailures()
        #: The nodes that are connecting, and whose host is being looked up.
        self.unresolved: dict[int, Node] = {}
        # Host and port of each node's last attempt.
        self._begun: dict[int, tuple[str, int]] = {}

    def begin(self, node: Node, now: int) -> bool:
        """Initiates a connection. Returns False if that failed immediately."""
        self._begun[node.id] = (node.host, node.port)
        self.failures.connecting(node.id, node.host, node.port)
        self.states.connecting(node.id, now, node.host)
        return self._connect(node, now)

    def resume(self, now: int) -> list[int]:
        """Continues the connections whose hosts were being looked up. Returns the connections that
        failed.
        """
        waiting, self.unresolved = self.unresolved, {}
        return [
            node.id
            for node in waiting.values()
            if self.states.is_connecting(node.id) and not self._connect(node, now)
        ]

    def _connect(self, node: Node, now: int) -> bool:
        failures = self.failures
        try:
            ip = self.states.current_address(node.id)
            if ip is None:
                self.unresolved[node.id] = node
                return True
            failures.connecting(node.id, node.host, node.port, ip)
            _log.debug("connecting to node %d at %s", node.id, failures.address(node.id))
            self._selector.connect(
                node.id,
                node.host,
                (ip, node.port),
                self._config.send_buffer_bytes,
                self._config.receive_buffer_bytes,
            )
        except (OSError, OverflowError) as error:
            # OverflowError: a broker's advertised port is invalid.
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            failures.record(node.id, reason)
            self.states.disconnected(node.id, now)
            return False
        return True

    def established(self, node_id: int) -> None:
        """Records that the node's API versions are known, so that requests may be sent."""
        self.states.ready(node_id)
        self.failures.connected(node_id)
        _log.debug("node %d at %s is ready", node_id, self.failures.address(node_id))

    def moved(self, nodes: Iterable[Node]) -> list[int]:
        """The ids of the ``nodes`` that have a connection to an old address. Another broker may use
        that address now.
        """
        begun, states = self._begun, self.states
        return [
            node.id
            for node in nodes
            if begun.get(node.id, (node.host, node.port)) != (node.host, node.port)
            and (states.is_connecting(node.id) or states.is_connected(node.id))
        ]

    def closed(
        self, node_id: int, now: int, state: ChannelState, oldest: ApiKey | None
    ) -> AuthenticationError | RemoteProtocolError | None:
        """Records that a connection was closed. ``oldest`` is the API of the oldest request in
        flight.

        Returns the error for the requests in flight, or None for a plain disconnect.
        """
        before = self.states.connection_state(node_id)
        self.close(node_id, now)
        address = self.failures.address(node_id)
        error: AuthenticationError | RemoteProtocolError | None = None
        if isinstance(state.error, AuthenticationError):
            error = state.error
        elif isinstance(state.error, WrongListenerError):
            # Fatal like a wrong password, so it is the error class that fails immediately.
            error = AuthenticationError(f"{address}: {state.error.message}", hint=state.error.hint)
        elif state.error is not None:
            error = RemoteProtocolError(
                f"node {node_id} at {address}: {state.error.message}", hint=state.error.hint
            )
        if isinstance(error, AuthenticationError):
            self.states.authentication_failed(node_id, now, error)
        self.failures.record_disconnect(node_id, before, state, oldest)
        return error

    def close(self, node_id: int, now: int) -> None:
        """Records that the client has closed the connection. The client may reconnect after the
        backoff.
        """
        self.states.disconnected(node_id, now)
        self.api_versions.disconnected(node_id)
