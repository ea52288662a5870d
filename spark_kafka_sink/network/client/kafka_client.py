"""The interface by which the sender uses the network (Java's ``KafkaClient``).

``NetworkClient`` implements :class:`KafkaClient`. ``metadata.py`` implements
:class:`MetadataStore`, the interface by which the network client uses the metadata. Tests have
other implementations of both interfaces.

Only the sender thread calls the methods, except for :meth:`KafkaClient.wakeup` and
:meth:`KafkaClient.connection_failures`.
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
    """The interface by which the network client requests and updates the cluster metadata (Java's
    DefaultMetadataUpdater and Metadata).
    """

    def nodes(self) -> Sequence[Node]:
        """Returns the known brokers. Before the first Metadata response, returns the bootstrap
        servers, whose ids are negative.
        """
        ...

    def time_to_next_update(self, now: int) -> int:
        """Returns the time in ms until a Metadata request must be sent, including the backoff. The
        result is 0 if the request must be sent now, and NEVER if no update is needed.
        """
        ...

    def new_request(self, now: int) -> tuple[MetadataRequest, int]:
        """Returns the Metadata request to send, and a number that identifies the request. The
        caller passes this number back with the response.
        """
        ...

    def update(self, token: int, response: MetadataResponse, now: int) -> None: ...

    def failed_update(self, now: int, error: KafkaError | None) -> None:
        """Notes that the request of the last :meth:`new_request` has failed.

        ``error`` is None after a disconnect. Otherwise ``error`` is a fatal error: the
        authentication failed, or there is no common version. All threads that wait for metadata get
        this error.
        """
        ...

    def request_update(self) -> None:
        """Requests new metadata of all topics in use. The request is sent as soon as the backoff is
        over.
        """
        ...

    def rebootstrap(self, now: int) -> None:
        """Removes the known brokers. The client then connects to the bootstrap servers again
        (KIP-899).
        """
        ...

    @property
    def rebootstrap_enabled(self) -> bool: ...


class KafkaClient(Protocol):
    """Sends requests to brokers, and opens and closes the connections to them."""

    def ready(self, node: Node, now: int) -> bool:
        """Returns True if a request can be sent to ``node`` now. If the node is not connected and
        its backoff is over, begins a connection attempt.
        """
        ...

    def poll_delay_ms(self, node: Node, now: int) -> int:
        """Returns the time in ms until the caller must check a node again. The caller calls this
        method if the node is not :meth:`ready`, because of backoff, connection setup or throttling.

        If the node is connected and not throttled, the result is :data:`NEVER`. The caller then
        needs no time limit, because an event of the connection ends the next :meth:`poll`.
        """
        ...

    def connection_failed(self, node: Node) -> bool: ...

    def connection_failures(self) -> Mapping[str, str]:
        """The broker addresses to which connections have failed, each with the reason. Any thread
        may call this method.
        """
        ...

    def take_failures(self) -> Mapping[int, str]:
        """Returns the last connection failure of each node, by node id. The result contains only
        nodes with a failure since the last call of this method. A failure is a text with the
        address and the reason.
        """
        ...

    def authentication_error(self, node: Node) -> AuthenticationError | None: ...

    def api_versions(self, node_id: int) -> NodeApiVersions | None:
        """The API versions that a broker supports, or None if the broker is not connected."""
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
        """Stores a request, which the next :meth:`poll` sends. Raises IllegalStateError if the node
        is not ready.
        """
        ...

    def poll(self, timeout_ms: int, now: int) -> Sequence[ClientResponse]:
        """Sends and receives for at most ``timeout_ms``, calls the callbacks of the received
        responses, and returns the responses.
        """
        ...

    def least_loaded_node(self, now: int) -> Node | None: ...

    def in_flight_request_count(self, node_id: int | None = None) -> int: ...

    def wakeup(self) -> None:
        """Ends a :meth:`poll` that is waiting. Any thread may call this method."""
        ...

    def close(self) -> None: ...
