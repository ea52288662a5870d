"""Sends a transaction's requests to its coordinator, one at a time, until each has a response.

Owns: the target broker, the request in flight, its retries (Java's
``Sender.maybeSendAndPollTransactionalRequest``). Never: which request is next, the handling of
responses (``txn_request_queue.py``), batches.

Runs on the sender thread: :meth:`maybe_request` in each iteration, responses in ``client.poll``.
Unlike Java's it never blocks: data for other brokers is sent while a request waits for its
response, its backoff or a connection. The manager decides which requests must not overlap.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.errors import ApiError, KafkaError
from spark_kafka_sink.network.client.client_request import ClientResponse
from spark_kafka_sink.network.client.kafka_client import KafkaClient
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager
from spark_kafka_sink.producer.transaction.txn_requests import Reaction, TxnBackoff, TxnRequest
from spark_kafka_sink.protocol.cluster import Node

#: Minimum delay before looking again for an available broker, if retry.backoff.ms is shorter.
_LEAST_RETRY_MS = 50


class TxnRequestSender:
    """``fail`` fails the producer: a request was rejected with a fatal error."""

    def __init__(
        self,
        client: KafkaClient,
        metadata: Metadata,
        manager: TransactionManager,
        config: ProducerConfig,
        fail: Callable[[KafkaError], None],
        has_incomplete: Callable[[], bool],
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._manager = manager
        self._requests = manager.requests
        self._config = config
        self._fail = fail
        self._has_incomplete = has_incomplete
        self._backoff = TxnBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._in_flight = False

    def maybe_request(self, now: int) -> int:
        """Send the next request, if there is one and it may be sent now.

        Returns the poll timeout in ms, after which this must be called again.
        """
        requests = self._requests
        if self._in_flight or not requests.waiting:
            return NEVER
        request, wait = requests.next_request(now, has_incomplete=self._has_incomplete())
        if request is None:
            return wait
        if request.kind.needs_coordinator and requests.coordinator is None:
            requests.lookup_coordinator()
            requests.retry(request, request.retry_at_ms)
            return self.maybe_request(now)  # FindCoordinator goes first
        if request.kind.needs_coordinator:
            node = requests.coordinator
        else:
            node = self._client.least_loaded_node(now)
        if node is None:
            requests.retry(request, now + self._config.retry_backoff_ms)
            # All nodes are busy until a response arrives. With retry.backoff.ms=0 this would spin.
            return max(self._config.retry_backoff_ms, _LEAST_RETRY_MS)
        if not self._client.ready(node, now):
            return self._not_ready(request, node, now)
        self._send(request, node, now)
        return NEVER

    def _not_ready(self, request: TxnRequest, node: Node, now: int) -> int:
        """Wait for the connection; when it failed, another broker may be the coordinator by now."""
        requests = self._requests
        refused = self._client.authentication_error(node)
        if refused is not None:
            requests.request_failed(request, refused)
            self._fail(refused)
            return 0
        wait = self._client.poll_delay_ms(node, now)
        if self._client.connection_failed(node):
            wait = min(wait, max(self._config.retry_backoff_ms, _LEAST_RETRY_MS))
            if request.kind.needs_coordinator:
                requests.lookup_coordinator()
            else:
                self._metadata.request_update()
            requests.retry(request, now + self._backoff.plain(request))
            return min(wait, self.maybe_request(now)) if request.kind.needs_coordinator else wait
        requests.retry(request, request.retry_at_ms)
        return wait

    def _send(self, request: TxnRequest, node: Node, now: int) -> None:
        client = self._client
        brokers = (client.api_versions(node_id) for node_id in self._metadata.cluster.nodes)
        versions = client.api_versions(node.id)
        self._manager.note_api_versions(
            [known for known in (*brokers, versions) if known is not None],
            versions if request.kind.needs_coordinator else None,
        )
        self._in_flight = True
        client.send(
            client.new_client_request(
                node.id,
                self._requests.build(request),
                now,
                request_timeout_ms=self._config.request_timeout_ms,
                callback=lambda response: self._handle_response(request, node, response),
            ),
            now,
        )

    def _handle_response(self, request: TxnRequest, node: Node, response: ClientResponse) -> None:
        self._in_flight = False
        requests, now = self._requests, response.received_ms
        if isinstance(response.error, ApiError):
            requests.request_failed(request, response.error)
            self._fail(response.error)
            return
        if response.body is None:
            # A disconnect, a timeout or an invalid response: the outcome is unknown. All of these
            # requests may be sent twice.
            if request.kind.needs_coordinator:
                requests.lookup_coordinator()
            else:
                self._metadata.request_update()
            requests.lost(request, now + self._backoff.plain(request))
            return
        where = f"{request.kind.api_name} of {self._manager.transactional_id} on broker {node}"
        reaction = requests.handle_response(request, response.body, where)
        if reaction is Reaction.RETRY_SOON:
            requests.retry(request, now + self._backoff.soon(request))
        elif reaction in (Reaction.RETRY, Reaction.FIND_COORDINATOR):
            requests.retry(request, now + self._backoff.plain(request))
        elif self._manager.fatal_error is not None:
            self._fail(self._manager.fatal_error)
