"""The state of the connection to each node (Java's ClusterConnectionStates).

This module keeps the state of each connection, and computes the reconnect backoff, the connection
setup timeout and the throttle time. It chooses the next address of a host. It uses no socket, sends
no request and reads no clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import AuthenticationError, IllegalStateError
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client.host_resolver import HostResolver

_log = logging.getLogger(__name__)


class ConnectionState(Enum):
    """The state of a connection (Java's ConnectionState)."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CHECKING_API_VERSIONS = "checking api versions"
    READY = "ready"
    AUTHENTICATION_FAILED = "authentication failed"

    @property
    def is_disconnected(self) -> bool:
        return self in _DISCONNECTED

    @property
    def is_connected(self) -> bool:
        return self in _CONNECTED


# Tuples: members are compared by identity, without a hash.
_DISCONNECTED = (ConnectionState.DISCONNECTED, ConnectionState.AUTHENTICATION_FAILED)
_CONNECTED = (ConnectionState.CHECKING_API_VERSIONS, ConnectionState.READY)


class _Addresses:
    """The addresses to which a host name resolves. Each connection attempt uses the next of these
    addresses.
    """

    __slots__ = ("_addresses", "_index", "_last_attempted", "_resolve", "host")

    def __init__(self, host: str, resolve: HostResolver) -> None:
        self.host = host
        self._resolve = resolve
        self._addresses: list[str] = []
        self._index = 0
        self._last_attempted: str | None = None

    def current(self) -> str | None:
        """The address for the next connection attempt. Resolves the host name if there is no
        address. Returns None while the name is being resolved on another thread.

        Raises OSError if the name can't be resolved.
        """
        if not self._addresses:
            try:
                addresses = self._resolve(self.host)
            except BlockingIOError:
                return None
            _log.debug("%s resolves to %s", self.host, addresses)
            # The host is resolved again after a disconnect; begin with another address than the
            # last, if there is one: that one may be at fault (a load balancer's instance).
            self._index = 1 if len(addresses) > 1 and addresses[0] == self._last_attempted else 0
            self._addresses = addresses
        self._last_attempted = self._addresses[self._index]
        return self._last_attempted

    def move_to_next(self) -> None:
        """Selects the next address. After the last address, the host name is resolved again."""
        self._index += 1
        if self._index >= len(self._addresses):
            self.clear()

    def clear(self) -> None:
        self._addresses = []
        self._index = 0


class _NodeConnectionState:
    """The state of the connection to one node. Times are monotonic milliseconds."""

    __slots__ = (
        "addresses",
        "authentication_error",
        "connection_setup_timeout_ms",
        "failed_attempts",
        "failed_connect_attempts",
        "last_connect_attempt_ms",
        "reconnect_backoff_ms",
        "state",
        "throttled_until_ms",
    )

    def __init__(
        self, now: int, addresses: _Addresses, reconnect_backoff_ms: int, setup_timeout_ms: int
    ) -> None:
        self.state = ConnectionState.CONNECTING
        self.addresses = addresses
        self.authentication_error: AuthenticationError | None = None
        self.last_connect_attempt_ms = now
        self.failed_attempts = 0
        self.failed_connect_attempts = 0
        self.reconnect_backoff_ms = reconnect_backoff_ms
        self.connection_setup_timeout_ms = setup_timeout_ms
        # None: not throttled (a monotonic clock may start at any value).
        self.throttled_until_ms: int | None = None


class ClusterConnectionStates:
    """The states of the connections by node id. A node has no state before the first connection
    attempt.
    """

    def __init__(
        self, config: ProducerConfig, *, resolve: HostResolver, random: Callable[[], float]
    ) -> None:
        self._states: dict[int, _NodeConnectionState] = {}
        #: The ids of the nodes whose connection is being set up.
        self.connecting_nodes: set[int] = set()
        self._resolve = resolve
        self._reconnect_backoff = ExponentialBackoff(
            config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, random=random
        )
        self._setup_timeout = ExponentialBackoff(
            config.socket_connection_setup_timeout_ms,
            config.socket_connection_setup_timeout_max_ms,
            random=random,
        )

    # ---- events ----

    def connecting(self, node_id: int, now: int, host: str) -> None:
        """Notes that a connection attempt to a node begins. The attempt uses the next address of
        ``host``. If the host of the node has changed since the last attempt, the attempt uses the
        first address of ``host``.
        """
        state = self._states.get(node_id)
        if state is not None and state.addresses.host == host:
            state.last_connect_attempt_ms = now
            state.state = ConnectionState.CONNECTING
            state.addresses.move_to_next()
        else:
            if state is not None:
                _log.info("node %d moved from host %s to %s", node_id, state.addresses.host, host)
            self._states[node_id] = _NodeConnectionState(
                now,
                _Addresses(host, self._resolve),
                self._reconnect_backoff.backoff(0),
                self._setup_timeout.backoff(0),
            )
        self.connecting_nodes.add(node_id)

    def checking_api_versions(self, node_id: int) -> None:
        state = self._state(node_id)
        state.state = ConnectionState.CHECKING_API_VERSIONS
        self._reset_setup_timeout(state)
        self.connecting_nodes.discard(node_id)

    def ready(self, node_id: int) -> None:
        state = self._state(node_id)
        state.state = ConnectionState.READY
        state.authentication_error = None
        state.failed_attempts = 0
        state.reconnect_backoff_ms = self._reconnect_backoff.backoff(0)
        self._reset_setup_timeout(state)
        self.connecting_nodes.discard(node_id)

    def disconnected(self, node_id: int, now: int) -> None:
        state = self._state(node_id)
        state.last_connect_attempt_ms = now
        self._count_failed_attempt(state)
        if state.state is ConnectionState.CONNECTING:
            state.failed_connect_attempts += 1
            state.connection_setup_timeout_ms = self._setup_timeout.backoff(
                state.failed_connect_attempts
            )
            self.connecting_nodes.discard(node_id)
        else:
            self._reset_setup_timeout(state)
            if state.state.is_connected:
                # It was connected, so its address was valid; the host may have another by now.
                state.addresses.clear()
        state.state = ConnectionState.DISCONNECTED

    def authentication_failed(self, node_id: int, now: int, error: AuthenticationError) -> None:
        state = self._state(node_id)
        state.state = ConnectionState.AUTHENTICATION_FAILED
        state.authentication_error = error
        state.last_connect_attempt_ms = now
        self._count_failed_attempt(state)

    def throttle(self, node_id: int, until_ms: int) -> None:
        """Notes that no request can be sent to the node before ``until_ms``. If an earlier call has
        set a later time, the later time stays.
        """
        state = self._states.get(node_id)
        if state is not None and (
            state.throttled_until_ms is None or state.throttled_until_ms < until_ms
        ):
            state.throttled_until_ms = until_ms

    # ---- queries ----

    def current_address(self, node_id: int) -> str | None:
        """Returns the address for the next connection attempt, or None while the host name is being
        resolved. Raises OSError if the host name can't be resolved.
        """
        return self._state(node_id).addresses.current()

    def can_connect(self, node_id: int, now: int) -> bool:
        """True if a connection attempt can begin: the node is not connected, and the backoff is
        over.
        """
        state = self._states.get(node_id)
        return state is None or (
            state.state.is_disconnected
            and now - state.last_connect_attempt_ms >= state.reconnect_backoff_ms
        )

    def connection_delay(self, node_id: int, now: int) -> int:
        """The time in ms until the node must be checked again:

        * no connection attempt yet: 0
        * disconnected: the remaining backoff
        * connecting: the whole setup timeout
        * connected: NEVER, because an event of the node's socket wakes the caller
        """
        state = self._states.get(node_id)
        if state is None:
            return 0
        if state.state is ConnectionState.CONNECTING:
            return state.connection_setup_timeout_ms
        if state.state.is_disconnected:
            waited = now - state.last_connect_attempt_ms
            return max(0, state.reconnect_backoff_ms - waited)
        return NEVER

    def poll_delay_ms(self, node_id: int, now: int) -> int:
        """The time in ms until the caller must check the node again. The caller calls this method
        for a node to which no request can be sent now. The result depends on the node's state:

        * connected and throttled: the remaining throttle time
        * connected and not throttled: NEVER, because an event of the node's socket wakes the caller
        * not connected: :meth:`connection_delay`
        """
        state = self._states.get(node_id)
        if state is None or state.state not in _CONNECTED:
            return self.connection_delay(node_id, now)
        if state.throttled_until_ms is None:
            return NEVER
        return max(0, state.throttled_until_ms - now) or NEVER

    def is_ready(self, node_id: int, now: int) -> bool:
        state = self._states.get(node_id)
        return (
            state is not None
            and state.state is ConnectionState.READY
            and (state.throttled_until_ms is None or state.throttled_until_ms <= now)
        )

    def is_connecting(self, node_id: int) -> bool:
        return node_id in self.connecting_nodes

    def is_preparing_connection(self, node_id: int) -> bool:
        """True if the node is connecting, or is connected and its ApiVersions response has not
        arrived.
        """
        state = self._states.get(node_id)
        return state is not None and (
            state.state is ConnectionState.CONNECTING
            or state.state is ConnectionState.CHECKING_API_VERSIONS
        )

    def is_connected(self, node_id: int) -> bool:
        state = self._states.get(node_id)
        return state is not None and state.state.is_connected

    def is_disconnected(self, node_id: int) -> bool:
        """True if the last connection to the node has failed or was closed. False if there was no
        connection attempt.
        """
        state = self._states.get(node_id)
        return state is not None and state.state.is_disconnected

    def connection_state(self, node_id: int) -> ConnectionState | None:
        state = self._states.get(node_id)
        return None if state is None else state.state

    def authentication_error(self, node_id: int) -> AuthenticationError | None:
        state = self._states.get(node_id)
        return None if state is None else state.authentication_error

    def last_connect_attempt_ms(self, node_id: int) -> int | None:
        """Returns the time of the last connection attempt (monotonic ms), or None if there was no
        attempt.
        """
        state = self._states.get(node_id)
        return None if state is None else state.last_connect_attempt_ms

    def connection_setup_timeout_ms(self, node_id: int) -> int:
        return self._state(node_id).connection_setup_timeout_ms

    def nodes_with_connection_setup_timeout(self, now: int) -> list[int]:
        return [n for n in self.connecting_nodes if now > self._setup_deadline_ms(n)]

    def time_to_next_setup_timeout(self, now: int) -> int:
        """Returns the time in ms until the next setup timeout of a connecting node, or NEVER if no
        node is connecting.
        """
        if not self.connecting_nodes:
            return NEVER
        return max(0, min(map(self._setup_deadline_ms, self.connecting_nodes)) + 1 - now)

    def _setup_deadline_ms(self, node_id: int) -> int:
        state = self._states[node_id]
        return state.last_connect_attempt_ms + state.connection_setup_timeout_ms

    def _state(self, node_id: int) -> _NodeConnectionState:
        state = self._states.get(node_id)
        if state is None:
            raise IllegalStateError(f"no connection to node {node_id} was ever initiated")
        return state

    def _count_failed_attempt(self, state: _NodeConnectionState) -> None:
        state.reconnect_backoff_ms = self._reconnect_backoff.backoff(state.failed_attempts)
        state.failed_attempts += 1

    def _reset_setup_timeout(self, state: _NodeConnectionState) -> None:
        state.failed_connect_attempts = 0
        state.connection_setup_timeout_ms = self._setup_timeout.backoff(0)
