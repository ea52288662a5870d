"""The connections of a client by node, from the connection attempt to the disconnect.

When a connection is opened or closed, :class:`NodeConnections` changes these three together:

* ``states``: the state and backoff of each connection.
* ``api_versions``: the API versions of each node.
* ``failures``: the addresses that have failed.

``network_client.py`` fails the requests of a closed connection.
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
    """The connections of a client by node. Only one thread may use it. Buffer sizes are in bytes.
    -1 means the default of the operating system.
    """

    def __init__(
        self, config: ProducerConfig, selector: Selectable, states: ClusterConnectionStates
    ) -> None:
        self._config = config
        self._selector = selector
        self.states = states
        self.api_versions = ApiVersions()
        self.failures = ConnectionFailures()
        #: The nodes with a connection attempt whose host name is still being resolved.
        self.unresolved: dict[int, Node] = {}
        # Host and port of each node's last attempt.
        self._begun: dict[int, tuple[str, int]] = {}

    def begin(self, node: Node, now: int) -> bool:
        """Begins a connection attempt. Returns False if the attempt has already failed, and True if
        it has not. If the host name is still being resolved, :meth:`resume` continues the attempt
        later.
        """
        self._begun[node.id] = (node.host, node.port)
        self.failures.connecting(node.id, node.host, node.port)
        self.states.connecting(node.id, now, node.host)
        return self._connect(node, now)

    def resume(self, now: int) -> list[int]:
        """Continues the connection attempts whose host names have been resolved meanwhile. Returns
        the ids of the nodes whose connection attempt has failed.
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
        """Notes that the ApiVersions response of a node has arrived. From now on, requests can be
        sent to the node.
        """
        self.states.ready(node_id)
        self.failures.connected(node_id)
        _log.debug("node %d at %s is ready", node_id, self.failures.address(node_id))

    def moved(self, nodes: Iterable[Node]) -> list[int]:
        """The ids of the ``nodes`` that have a connection to an old address: the address of the
        node has changed since the connection was opened.
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
        """Notes that a connection was closed. ``oldest`` is the API of the oldest request in flight
        on this connection.

        Returns the error with which the requests in flight fail, or None if the connection was
        closed without an error.
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
        """Notes that the connection to a node is closed. A new connection attempt can begin after
        the backoff.
        """
        self.states.disconnected(node_id, now)
        self.api_versions.disconnected(node_id)
