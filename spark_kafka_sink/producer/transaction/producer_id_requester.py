"""Requests an idempotent producer's id from any broker, until success or a fatal error.

Owns: the one InitProducerId request in flight, its node and its backoff. Never: the handling of the
response (``transaction_manager.py``), batches. A transactional producer uses
``txn_request_sender.py`` instead.

Runs on the sender thread: :meth:`maybe_request` in each iteration, responses in ``client.poll``.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.errors import ApiError, KafkaError
from spark_kafka_sink.network.backoff import ExponentialBackoff
from spark_kafka_sink.network.client.client_request import ClientResponse
from spark_kafka_sink.network.client.kafka_client import KafkaClient
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.control_messages import InitProducerIdResponse

#: Minimum delay before looking again for an available broker, if retry.backoff.ms is shorter.
_LEAST_RETRY_MS = 50


class ProducerIdRequester:
    """``fail`` fails the producer: InitProducerId was rejected with a fatal error."""

    def __init__(
        self,
        client: KafkaClient,
        metadata: Metadata,
        manager: TransactionManager,
        config: ProducerConfig,
        fail: Callable[[KafkaError], None],
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._manager = manager
        self._config = config
        self._fail = fail
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._in_flight = False
        self._retry_ms = 0
        self._attempts = 0

    def maybe_request(self, now: int) -> int:
        """Send the request, if an id is missing and a broker is available.

        Returns the poll timeout in ms, after which this must be called again.
        """
        if (
            self._in_flight
            or self._manager.has_producer_id
            or self._manager.fatal_error is not None
        ):
            return NEVER
        if now < self._retry_ms:
            return self._retry_ms - now
        node = self._client.least_loaded_node(now)
        if node is None:
            # All nodes are busy until a response arrives. With retry.backoff.ms=0 this would spin.
            return max(self._config.retry_backoff_ms, _LEAST_RETRY_MS)
        if not self._client.ready(node, now):
            refused = self._client.authentication_error(node)
            if refused is not None:
                self._fail(refused)
            return self._client.poll_delay_ms(node, now)
        request = self._client.new_client_request(
            node.id,
            self._manager.begin_initialize(),
            now,
            request_timeout_ms=self._config.request_timeout_ms,
            # Kept, because after a rebootstrap the metadata no longer contains it.
            callback=lambda response: self._handle_response(node, response),
        )
        self._in_flight = True
        self._client.send(request, now)
        return NEVER

    def _handle_response(self, node: Node, response: ClientResponse) -> None:
        self._in_flight = False
        if isinstance(response.error, ApiError):
            self._fail(response.error)
            return
        body = response.body
        if isinstance(body, InitProducerIdResponse):
            if self._manager.handle_init_producer_id(body, f"InitProducerId on broker {node}"):
                return
            if self._manager.fatal_error is not None:
                self._fail(self._manager.fatal_error)
                return
        if response.disconnected:
            self._metadata.request_update()
        self._retry_ms = response.received_ms + self._backoff.backoff(self._attempts)
        self._attempts += 1
