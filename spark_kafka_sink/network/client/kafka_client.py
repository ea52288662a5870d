"""The interface of the sender to the network (Java's ``KafkaClient``).

Owns: the :class:`KafkaClient` protocol and :class:`MetadataStore`, the client's interface to the
metadata. ``NetworkClient`` implements KafkaClient, and ``metadata.py`` implements MetadataStore.
Tests have a mock client and a fixed store.

Only the sender thread makes these calls, except :meth:`KafkaClient.wakeup`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from spark_kafka_sink.base.errors import AuthenticationError, KafkaError
from spark_kafka_sink.network.client.client_request import ClientRequest, ClientResponse
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataResponse
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.request import Request


class MetadataStore(Protocol):
    """The cluster metadata, as far as the network client needs them (Java's DefaultMetadataUpdater
    and Metadata).
    """

    def nodes(self) -> Sequence[Node]:
        """The known brokers. Before the first response, these are the bootstrap nodes, with
        negative ids.
        """
        ...

    def time_to_next_update(self, now: int) -> int:
        """The milliseconds until an update is due, including backoff. 0 if an update is due now,
        and NEVER if no update is needed.
        """
        ...

    def new_request(self, now: int) -> tuple[MetadataRequest, int]:
        """The metadata request to send, and a token (the request version), which the caller passes
        back with the response.
        """
        ...

    def update(self, token: int, response: MetadataResponse, now: int) -> None: ...

    def failed_update(self, now: int, error: KafkaError | None) -> None:
        """Records that the request of the last :meth:`new_request` failed.

        ``error`` is a fatal error, which all waiters get (failed authentication, no common
        version). It is None after a disconnect.
        """
        ...

    def request_update(self) -> None:
        """Requests a full update as soon as backoff allows."""
        ...

    def rebootstrap(self, now: int) -> None:
        """Forgets the known brokers and starts from the bootstrap addresses (KIP-899)."""
        ...

    @property
    def rebootstrap_enabled(self) -> bool: ...


class KafkaClient(Protocol):
    """Requests to brokers, over connections that this object opens and owns."""

    def ready(self, node: Node, now: int) -> bool:
        """Whether a request can be sent to ``node`` now. If the node is not connected, and its
        backoff is over, begins to connect.
        """
        ...

    def poll_delay_ms(self, node: Node, now: int) -> int:
        """The milliseconds until ``node`` may be ready, because of backoff, connection setup, or
        throttling.
        """
        ...

    def connection_failed(self, node: Node) -> bool: ...

    def connection_failures(self) -> Mapping[str, str]:
        """The failed addresses, each with its reason. May be called by any thread."""
        ...

    def take_failures(self) -> Mapping[int, str]:
        """Removes and returns the last connection failure of each node since the last call. The
        text has the address.
        """
        ...

    def authentication_error(self, node: Node) -> AuthenticationError | None: ...

    def api_versions(self, node_id: int) -> NodeApiVersions | None:
        """The API versions of the broker. None while the broker is not connected."""
        ...

    def new_client_request(
        self,
        node_id: int,
        request: Request[object],
        now: int,
        *,
        expect_response: bool = True,
        request_timeout_ms: int | None = None,
        callback: Callable[[ClientResponse], None] | None = None,
    ) -> ClientRequest: ...

    def send(self, request: ClientRequest, now: int) -> None:
        """Queues the request for :meth:`poll`. Raises IllegalStateError if the node is not
        ready.
        """
        ...

    def poll(self, timeout_ms: int, now: int) -> Sequence[ClientResponse]:
        """Transfers bytes for at most ``timeout_ms``, runs the callbacks, and returns the
        responses.
        """
        ...

    def least_loaded_node(self, now: int) -> Node | None: ...

    def in_flight_request_count(self, node_id: int | None = None) -> int: ...

    def wakeup(self) -> None:
        """Wakes up a blocked :meth:`poll`, from any thread."""
        ...

    def close(self) -> None: ...
