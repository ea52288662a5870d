"""Sends Metadata requests (Java's NetworkClient.DefaultMetadataUpdater).

At most one Metadata request is in flight. This module chooses the node for the request, and decides
when the client must rebootstrap (KIP-899, KIP-1102). ``metadata.py`` reads the response.
"""

from __future__ import annotations

import logging
from typing import Protocol

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import AuthenticationError, ErrorCode, KafkaError, warn
from spark_kafka_sink.network.client.kafka_client import MetadataStore
from spark_kafka_sink.network.client.least_loaded_node import LeastLoadedNode
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataResponse

_log = logging.getLogger(__name__)

#: The minimum time in ms until the next search for a node, if reconnect.backoff.ms is shorter.
_LEAST_RETRY_MS = 50

#: Maximum number of partitions in a warning.
_SHOWN = 10


class MetadataCarrier(Protocol):
    """The interface by which the updater uses the network client."""

    def find_least_loaded_node(self, now: int) -> LeastLoadedNode: ...

    def can_send_request(self, node_id: int, now: int) -> bool: ...

    def can_connect(self, node: Node, now: int) -> bool: ...

    def initiate_connect(self, node: Node, now: int) -> None: ...

    def send_metadata_request(self, request: MetadataRequest, node_id: int, now: int) -> bool:
        """Sends a Metadata request to a node. If the request can't be sent, calls
        ``handle_failed_request`` and returns False.
        """
        ...


class MetadataUpdater:
    """Sends Metadata requests, one at a time. Reports failures to the ``MetadataStore``, which then
    waits for a backoff.
    """

    def __init__(
        self,
        store: MetadataStore,
        carrier: MetadataCarrier,
        *,
        retry_ms: int,
        rebootstrap_trigger_ms: int,
    ) -> None:
        """Creates the updater. ``retry_ms`` is the time until the next attempt if no node can be
        used now (reconnect.backoff.ms).
        """
        self._store = store
        self._carrier = carrier
        # Never 0: with reconnect.backoff.ms=0 a busy node would make the loop spin.
        self._retry_ms = max(retry_ms, _LEAST_RETRY_MS)
        self._trigger_ms = rebootstrap_trigger_ms
        # The token of the request in flight.
        self._in_progress: int | None = None
        # Since when an update has been due without a response.
        self._attempt_start_ms: int | None = None
        self._rebootstrap_required = False
        # The number of missing listeners of a topic that was reported.
        self._warned: dict[str, int] = {}

    def is_update_due(self, now: int) -> bool:
        return self._in_progress is None and self._store.time_to_next_update(now) == 0

    def maybe_update(self, now: int) -> int:
        """Sends a Metadata request if the metadata must be updated now. If no node can take the
        request yet, begins a connection attempt to a broker instead.

        Returns the time in ms after which this method must be called again. NEVER means that the
        caller must first wait for an event: a response, a change of a connection, or a wakeup.
        """
        if self._in_progress is not None:
            return NEVER
        wait = self._store.time_to_next_update(now)
        if wait > 0:
            if wait >= NEVER:
                # No update is needed; the idle time does not count towards the rebootstrap trigger.
                self._attempt_start_ms = None
            return wait
        if self._attempt_start_ms is None:
            self._attempt_start_ms = now
        least_loaded = self._carrier.find_least_loaded_node(now)
        if (
            least_loaded.node is None
            and not least_loaded.any_connection_ready
            and self._store.rebootstrap_enabled
            and self._knows_brokers()
        ):
            self.rebootstrap(now)
            least_loaded = self._carrier.find_least_loaded_node(now)
        if least_loaded.node is None:
            _log.debug("the metadata is due for a refresh, but no node can be used now")
            return self._retry_ms
        return self._request_from(least_loaded.node, now)

    def _request_from(self, node: Node, now: int) -> int:
        if self._carrier.can_send_request(node.id, now):
            request, token = self._store.new_request(now)
            _log.debug("sending a metadata request to node %s", node)
            self._in_progress = token
            sent = self._carrier.send_metadata_request(request, node.id, now)
            return NEVER if sent else self._retry_ms
        if self._carrier.can_connect(node, now):
            self._carrier.initiate_connect(node, now)
            return self._retry_ms
        # It is connecting, or has too many requests in flight: an event or a timeout follows.
        # Meanwhile no other is tried: a connecting node is preferred to an unconnected one.
        return NEVER

    # ---- responses and failures ----

    def handle_response(self, response: MetadataResponse, now: int) -> None:
        token, self._in_progress = self._in_progress, None
        assert token is not None
        if response.error is ErrorCode.REBOOTSTRAP_REQUIRED and self._store.rebootstrap_enabled:
            self._rebootstrap_required = True
        elif response.error is not ErrorCode.NONE:
            warn(
                _log,
                response.error.kp_code,
                "a metadata request failed with %s",
                response.error.name,
            )
            self._store.failed_update(now, None)
        elif not response.brokers:
            # A broker that is starting does not know the other brokers yet.
            _log.debug("ignoring a metadata response without brokers")
            self._store.failed_update(now, None)
        else:
            self._warn_of_missing_listeners(response)
            self._attempt_start_ms = None
            self._store.update(token, response, now)

    def handle_failed_request(self, now: int, error: KafkaError | None) -> None:
        """Handles the failure of a Metadata request. ``error`` is a fatal error, or None after a
        disconnect or a timeout.
        """
        self._in_progress = None
        self._store.failed_update(now, error)

    def handle_server_disconnect(
        self, node_id: int, now: int, error: AuthenticationError | None
    ) -> None:
        if node_id < 0:
            _log.debug("bootstrap server %d disconnected", node_id)
        if error is not None or self.is_update_due(now):
            # While an update is due, this connection may have been the one for it: back off.
            self._store.failed_update(now, error)
        # Stale metadata may be the reason: request an update.
        self._store.request_update()

    # ---- rebootstrap ----

    def time_to_rebootstrap(self, now: int) -> int:
        """Returns the time in ms until a rebootstrap, or NEVER if no rebootstrap is planned.

        The time is 0 if a broker has requested the rebootstrap, or if an update has got no response
        for longer than metadata.recovery.rebootstrap.trigger.ms.
        """
        if self._rebootstrap_required:
            return 0
        start = self._attempt_start_ms
        if start is None or not self._store.rebootstrap_enabled or not self._knows_brokers():
            return NEVER
        return max(0, start + self._trigger_ms + 1 - now)

    def rebootstrap(self, now: int) -> None:
        _log.info("no known broker responds: rebootstrapping")
        self._rebootstrap_required = False
        self._attempt_start_ms = now
        self._store.rebootstrap(now)

    def _knows_brokers(self) -> bool:
        """True if a broker is known. If only bootstrap servers are known, a rebootstrap is
        useless.
        """
        return any(node.id >= 0 for node in self._store.nodes())

    def _warn_of_missing_listeners(self, response: MetadataResponse) -> None:
        """Logs a warning about partitions whose leader does not have the listener to which this
        client connects (LISTENER_NOT_FOUND).

        Each Metadata response contains these errors again. So the warning is logged only if a topic
        has more of these partitions than in the last warning.
        """
        shown: list[str] = []
        total, news = 0, False
        for topic in response.topics:
            count = 0
            for partition, code in topic.partitions.errors():
                if code == ErrorCode.LISTENER_NOT_FOUND:
                    count += 1
                    if len(shown) < _SHOWN:
                        shown.append(f"{topic.name}-{partition}")
            total += count
            if count > self._warned.get(topic.name, 0):
                self._warned[topic.name] = count
                news = True
        if news:
            warn(
                _log,
                Kind.NO_SUCH_LISTENER,
                "the leaders of %d partitions have no listener of the bootstrap servers' name: %s",
                total,
                ", ".join(shown),
            )
