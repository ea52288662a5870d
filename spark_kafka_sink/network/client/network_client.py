"""Sends requests to brokers and handles their responses (Java's NetworkClient).

The network client chooses the connection and the version for each request, and gives each request a
correlation id. It sends ApiVersions requests, and handles timeouts and throttling. If a connection
is closed, the requests in flight on it fail. The network client never sends a request again.

``Selectable`` has the sockets, and ``MetadataStore`` has the metadata.
"""

from __future__ import annotations

import logging
import random as _random
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

from spark_kafka_sink.base.clock import NEVER, Clock
from spark_kafka_sink.base.errors import (
    ApiError,
    AuthenticationError,
    DisconnectError,
    IllegalStateError,
    RemoteProtocolError,
    UnsupportedVersionError,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.channel.selectable import (
    ChannelState,
    ChannelStateKind,
    NetworkSend,
    Selectable,
)
from spark_kafka_sink.network.client.api_versions import ApiVersionsOutcome
from spark_kafka_sink.network.client.client_request import ClientRequest, ClientResponse
from spark_kafka_sink.network.client.cluster_connection_states import ClusterConnectionStates
from spark_kafka_sink.network.client.connection_failures import SILENT_LISTENER
from spark_kafka_sink.network.client.host_resolver import HostResolver, resolve_host
from spark_kafka_sink.network.client.in_flight_requests import InFlightRequest, InFlightRequests
from spark_kafka_sink.network.client.kafka_client import MetadataStore
from spark_kafka_sink.network.client.least_loaded_node import (
    LeastLoadedNode,
    find_least_loaded_node,
)
from spark_kafka_sink.network.client.metadata_updater import MetadataUpdater
from spark_kafka_sink.network.client.node_connections import NodeConnections
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.frames import MIN_RESERVED_CORRELATION_ID, frame
from spark_kafka_sink.protocol.messages.api_versions import ApiVersionsResponse
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataResponse
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.request import ApiKey, Request

_log = logging.getLogger(__name__)

#: The maximum throttle time that is honoured, in ms. Real quotas throttle for some seconds
#: (quota.window.num x quota.window.size.seconds, 11 s by default).
MAX_THROTTLE_MS: Final = 60_000


class _State(Enum):
    ACTIVE = "active"
    CLOSED = "closed"


class NetworkClient:
    """Implements ``KafkaClient`` with the connections of a ``Selectable``.

    One thread uses the client. Any thread may call :meth:`wakeup` and :meth:`connection_failures`.
    ``_state_lock`` guards ``_state``.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        selector: Selectable,
        metadata: MetadataStore,
        clock: Clock,
        resolve: HostResolver = resolve_host,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._config = config
        self._selector = selector
        self._metadata = metadata
        self._clock = clock
        self._random = random
        states = ClusterConnectionStates(config, resolve=resolve, random=random)
        self._connections = NodeConnections(config, selector, states)
        self._connection_states = states
        self._api_versions = self._connections.api_versions
        self._failures = self._connections.failures
        self._in_flight = InFlightRequests(config.max_in_flight_requests_per_connection)
        self._updater = MetadataUpdater(
            metadata,
            self,
            retry_ms=config.reconnect_backoff_ms,
            rebootstrap_trigger_ms=config.metadata_recovery_rebootstrap_trigger_ms,
        )
        self._aborted_sends: list[ClientResponse] = []
        # A metadata response arrived, and the connections were not checked against it yet.
        self._nodes_updated = False
        self._correlation_id = 0
        self._state = _State.ACTIVE
        self._state_lock = threading.Lock()

    # ---- queries ----

    def ready(self, node: Node, now: int) -> bool:
        node_id = node.id
        if self._connection_states.is_ready(node_id, now):
            # While a metadata update is due no node is ready: the update goes first.
            return (
                self._in_flight.can_send_more(node_id)
                and self._selector.is_channel_ready(node_id)
                and not self._updater.is_update_due(now)
            )
        if self._connection_states.can_connect(node_id, now):
            self.initiate_connect(node, now)
        return False

    def can_send_request(self, node_id: int, now: int) -> bool:
        return (
            self._connection_states.is_ready(node_id, now)
            and self._in_flight.can_send_more(node_id)
            and self._selector.is_channel_ready(node_id)
        )

    def can_connect(self, node: Node, now: int) -> bool:
        return self._connection_states.can_connect(node.id, now)

    def poll_delay_ms(self, node: Node, now: int) -> int:
        return self._connection_states.poll_delay_ms(node.id, now)

    def connection_failed(self, node: Node) -> bool:
        return self._connection_states.is_disconnected(node.id)

    def authentication_error(self, node: Node) -> AuthenticationError | None:
        return self._connection_states.authentication_error(node.id)

    def api_versions(self, node_id: int) -> NodeApiVersions | None:
        return self._api_versions.of(node_id)

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        return self._in_flight.count(node_id)

    def connection_failures(self) -> dict[str, str]:
        """The broker addresses to which connections have failed, each with the last reason. An
        address is removed when the broker at this address responds. Any thread may call this
        method.
        """
        return self._failures.by_address()

    def take_failures(self) -> Mapping[int, str]:
        return self._failures.take()

    def least_loaded_node(self, now: int) -> Node | None:
        return self.find_least_loaded_node(now).node

    def find_least_loaded_node(self, now: int) -> LeastLoadedNode:
        """Chooses a node for a request that any node can handle (``least_loaded_node.py``). The
        search begins at a random node, so that many tasks use different brokers.
        """
        nodes = self._metadata.nodes()
        offset = int(self._random() * len(nodes))
        return find_least_loaded_node(
            nodes, self._connection_states, self._in_flight, self._selector, offset, now
        )

    # ---- sending ----

    def new_client_request(
        self,
        node_id: int,
        request: Request[object],
        now: int,
        *,
        expect_response: bool = True,
        request_timeout_ms: int | None = None,
        callback: Callable[[ClientResponse], None] | None = None,
    ) -> ClientRequest:
        timeout = self._config.request_timeout_ms
        correlation_id = self._correlation_id
        following = correlation_id + 1
        self._correlation_id = 0 if following >= MIN_RESERVED_CORRELATION_ID else following
        return ClientRequest(
            node_id,
            request,
            correlation_id,
            now,
            timeout if request_timeout_ms is None else request_timeout_ms,
            expect_response,
            callback,
        )

    def send(self, request: ClientRequest, now: int) -> None:
        self._ensure_active()
        node_id = request.destination
        if not (
            self._connection_states.is_ready(node_id, now)
            and self._in_flight.can_send_more(node_id)
            and self._selector.is_channel_ready(node_id)
        ):
            raise IllegalStateError(f"node {node_id} is not ready for a request")
        try:
            self._do_send(request, now)
        except UnsupportedVersionError as error:
            # Nothing is sent; the next poll returns the error.
            self._aborted_sends.append(
                ClientResponse(request, request.request.versions.max, now, now, error=error)
            )

    def send_metadata_request(self, request: MetadataRequest, node_id: int, now: int) -> bool:
        try:
            self._do_send(self.new_client_request(node_id, request, now), now, internal=True)
        except ApiError as error:
            # No common version, or a topic's name that can't be encoded.
            self._updater.handle_failed_request(now, error)
            return False
        return True

    def _do_send(
        self,
        client_request: ClientRequest,
        now: int,
        *,
        internal: bool = False,
        version: int | None = None,
    ) -> None:
        node_id, request = client_request.destination, client_request.request
        if version is None:
            version = self._api_versions.usable_version(node_id, request)
        buffers, size = frame(
            request, version, client_request.correlation_id, self._config.client_id
        )
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug(
                "sending %s v%d, correlation id %d, %d bytes, to node %d",
                request.api_key.name,
                version,
                client_request.correlation_id,
                size,
                node_id,
            )
        self._in_flight.add(InFlightRequest(client_request, version, internal, now))
        self._selector.send(NetworkSend(node_id, buffers, size))

    def initiate_connect(self, node: Node, now: int) -> None:
        """Begins a connection attempt to ``node``. If the attempt fails at once, notifies the
        metadata updater now, because no later poll reports the failure. The node then has a
        backoff.
        """
        if not self._connections.begin(node, now):
            self._updater.handle_server_disconnect(node.id, now, None)

    # ---- one poll ----

    def poll(self, timeout_ms: int, now: int) -> Sequence[ClientResponse]:
        """Reads and writes, handles the results, calls the callbacks, and returns the responses.

        If a request could not be sent because there is no common version, this call returns the
        failure of this request without waiting. If ``timeout_ms`` is NEVER and no request is in
        flight, only an event of a socket or :meth:`wakeup` ends the call.
        """
        if self._aborted_sends or self._state is not _State.ACTIVE:
            return self._poll_aborted()
        selector, states = self._selector, self._connection_states
        metadata_timeout = self._updater.maybe_update(now)
        rebootstrap_timeout = self._updater.time_to_rebootstrap(now)
        now = selector.poll(
            min(
                timeout_ms,
                metadata_timeout,
                rebootstrap_timeout,
                self._in_flight.time_to_next_timeout(now),
                states.time_to_next_setup_timeout(now) if states.connecting_nodes else NEVER,
            )
        )
        # In Java's order: sent requests, received responses, disconnects, new connections,
        # ApiVersions requests, timeouts, rebootstrap, callbacks.
        responses: list[ClientResponse] = []
        if selector.completed_sends:
            self._handle_completed_sends(responses, now)
        if selector.completed_receives:
            self._handle_completed_receives(responses, now)
        if selector.disconnected:
            self._handle_disconnections(responses, now)
        if selector.connected:
            self._handle_connections()
        if self._nodes_updated:
            self._handle_moved_nodes(responses, now)
        if self._api_versions.needing_fetch:
            self._handle_initiate_api_version_requests(now)
        if states.connecting_nodes:
            self._handle_connecting(responses, now)
        if now > self._in_flight.earliest_deadline_ms:
            self._handle_timed_out_requests(responses, now)
        if rebootstrap_timeout < NEVER and self._updater.time_to_rebootstrap(now) == 0:
            self._handle_rebootstrap(responses, now)
        if responses:
            self._complete_responses(responses)
        return responses

    def _poll_aborted(self) -> Sequence[ClientResponse]:
        self._ensure_active()
        responses, self._aborted_sends = self._aborted_sends, []
        self._complete_responses(responses)
        return responses

    @staticmethod
    def _complete_responses(responses: Sequence[ClientResponse]) -> None:
        """Calls the callbacks of all responses. If a callback raises an exception, the other
        callbacks are still called, and then this method raises the first exception.
        """
        first: Exception | None = None
        for response in responses:
            try:
                response.complete()
            except Exception as error:  # noqa: BLE001 - raised below, after all callbacks
                first = first or error
        if first is not None:
            raise first

    def _handle_completed_sends(self, responses: list[ClientResponse], now: int) -> None:
        for send in self._selector.completed_sends:
            request = self._in_flight.last_sent(send.destination)
            if request is None:
                continue
            request.sent = True
            if not request.request.expect_response:
                self._in_flight.complete_last_sent(send.destination)
                responses.append(request.completed(None, now))

    def _handle_completed_receives(self, responses: list[ClientResponse], now: int) -> None:
        for receive in self._selector.completed_receives:
            try:
                request = self._in_flight.answered(receive.source)
                body = request.parse(receive.payload)
            except RemoteProtocolError as error:
                # The position in the stream is unknown: close the connection, and fail every
                # request on it with this error.
                self._fail_connection(responses, receive.source, now, error)
                continue
            node_id = receive.source
            self._in_flight.complete_next(node_id)
            self._maybe_throttle(node_id, body, now)
            if node_id in self._failures.logged and not isinstance(body, ApiVersionsResponse):
                self._failures.answered(node_id)
            if not request.internal:
                responses.append(request.completed(body, now))
            elif isinstance(body, ApiVersionsResponse):
                self._handle_api_versions_response(responses, request, body, now)
            else:
                assert isinstance(body, MetadataResponse)
                self._updater.handle_response(body, now)
                self._nodes_updated = True
                self._failures.retain(self._metadata.nodes())

    def _maybe_throttle(self, node_id: int, body: object, now: int) -> None:
        throttle_ms: int = getattr(body, "throttle_time_ms", 0)
        if throttle_ms > 0:
            throttle_ms = min(throttle_ms, MAX_THROTTLE_MS)
            self._in_flight.add_throttle_time(node_id, throttle_ms)
            self._connection_states.throttle(node_id, now + throttle_ms)

    def _handle_api_versions_response(
        self,
        responses: list[ClientResponse],
        request: InFlightRequest,
        response: ApiVersionsResponse,
        now: int,
    ) -> None:
        node_id = request.request.destination
        outcome = self._api_versions.answered(node_id, request.version, response)
        if outcome is ApiVersionsOutcome.REFUSED:
            reason = f"refused ApiVersions: {response.error_code.name}"
            self._selector.close_channel(node_id)
            self._process_disconnection(responses, node_id, now, _local_close(reason))
        elif outcome is ApiVersionsOutcome.KNOWN:
            self._connections.established(node_id)
            if response.throttle_time_ms > 0:
                # It answered, and until then nothing else is sent to it.
                self._failures.record(
                    node_id, f"the broker throttles this client for {response.throttle_time_ms} ms"
                )

    def _handle_disconnections(self, responses: list[ClientResponse], now: int) -> None:
        for node_id, state in self._selector.disconnected.items():
            self._process_disconnection(responses, node_id, now, state)

    def _handle_connections(self) -> None:
        for node_id in self._selector.connected:
            # The state stays CONNECTING until the ApiVersions request can be sent: the channel
            # may have a handshake before it, which the setup timeout covers.
            self._api_versions.connected(node_id)

    def _handle_moved_nodes(self, responses: list[ClientResponse], now: int) -> None:
        """Closes the connections to nodes whose address has changed in the metadata. Another broker
        may now use the old address.
        """
        self._nodes_updated = False
        for node_id in self._connections.moved(self._metadata.nodes()):
            _log.info("node %d has moved: closing its connection", node_id)
            self._selector.close_channel(node_id)
            self._process_disconnection(responses, node_id, now, _local_close(None))

    def _handle_initiate_api_version_requests(self, now: int) -> None:
        for node_id, version in list(self._api_versions.needing_fetch.items()):
            if self._selector.is_channel_ready(node_id) and self._in_flight.can_send_more(node_id):
                self._api_versions.fetching(node_id)
                self._connection_states.checking_api_versions(node_id)
                request = self.new_client_request(node_id, self._api_versions.request, now)
                self._do_send(request, now, internal=True, version=version)

    def _handle_connecting(self, responses: list[ClientResponse], now: int) -> None:
        for node_id in self._connections.resume(now):
            self._updater.handle_server_disconnect(node_id, now, None)
        for node_id in self._connection_states.nodes_with_connection_setup_timeout(now):
            limit = self._connection_states.connection_setup_timeout_ms(node_id)
            looked_up = node_id not in self._connections.unresolved
            missing = "connection" if looked_up else "answer to the lookup of its name"
            reason = f"no {missing} within {limit} ms (socket.connection.setup.timeout.ms)"
            self._selector.close_channel(node_id)
            self._process_disconnection(
                responses, node_id, now, _local_close(reason), timed_out=True
            )

    def _handle_timed_out_requests(self, responses: list[ClientResponse], now: int) -> None:
        for node_id in self._in_flight.nodes_with_timed_out_requests(now):
            oldest = self._in_flight.oldest(node_id)
            assert oldest is not None
            reason = (
                f"no response to {oldest.request.api_key.name} within "
                f"{oldest.request.request_timeout_ms} ms"
            )
            if not oldest.internal:
                reason += " (request.timeout.ms)"
            elif oldest.request.api_key is ApiKey.API_VERSIONS:
                reason += f"; {SILENT_LISTENER}"
            self._selector.close_channel(node_id)
            self._process_disconnection(
                responses, node_id, now, _local_close(reason), timed_out=True
            )

    def _handle_rebootstrap(self, responses: list[ClientResponse], now: int) -> None:
        for node in self._metadata.nodes():
            if self._connection_states.is_connecting(
                node.id
            ) or self._connection_states.is_connected(node.id):
                self._selector.close_channel(node.id)
                self._process_disconnection(responses, node.id, now, _local_close(None))
        self._updater.rebootstrap(now)

    # ---- disconnects ----

    def _fail_connection(
        self,
        responses: list[ClientResponse],
        node_id: int,
        now: int,
        error: RemoteProtocolError,
    ) -> None:
        self._selector.close_channel(node_id)
        state = ChannelState(
            ChannelStateKind.PROTOCOL_ERROR, self._failures.address(node_id), error.message, error
        )
        self._process_disconnection(responses, node_id, now, state)

    def _process_disconnection(
        self,
        responses: list[ClientResponse],
        node_id: int,
        now: int,
        state: ChannelState,
        *,
        timed_out: bool = False,
    ) -> None:
        """Handles a connection that the client or the broker has closed."""
        oldest = self._in_flight.oldest(node_id)
        api_key = None if oldest is None else oldest.request.api_key
        error = self._connections.closed(node_id, now, state, api_key)
        self._cancel_in_flight(responses, node_id, now, timed_out=timed_out, error=error)
        if state.kind is not ChannelStateKind.EXPIRED:
            fatal = error if isinstance(error, AuthenticationError) else None
            self._updater.handle_server_disconnect(node_id, now, fatal)

    def _cancel_in_flight(
        self,
        responses: list[ClientResponse],
        node_id: int,
        now: int,
        *,
        timed_out: bool = False,
        error: ApiError | RemoteProtocolError | None = None,
    ) -> None:
        """Fails all requests in flight to a node, in the order in which they were sent."""
        for request in self._in_flight.clear_all(node_id):
            if not request.internal:
                responses.append(request.failed(now, timed_out=timed_out, error=error))
            elif request.request.api_key is ApiKey.METADATA:
                self._updater.handle_failed_request(now, None)

    # ---- close ----

    def wakeup(self) -> None:
        self._selector.wakeup()

    def close(self) -> None:
        """Closes all connections. The callbacks of requests in flight are not called."""
        with self._state_lock:
            if self._state is _State.CLOSED:
                return
            self._state = _State.CLOSED
        self._selector.close()

    def _ensure_active(self) -> None:
        if self._state is not _State.ACTIVE:
            raise DisconnectError(f"the network client is {self._state.value}")


def _local_close(detail: str | None) -> ChannelState:
    return ChannelState(ChannelStateKind.LOCAL_CLOSE, detail=detail)
