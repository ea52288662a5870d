"""A KafkaClient without a network: answers are prepared by the test, and must all be used.

Requests are answered in :meth:`MockClient.poll`, in the order they were sent to each node. An
answer is prepared before or after its request is sent; ``after_ms`` holds it back on the test's
clock. At the end, an answer that was never used, or an event that was prepared and never
happened, fails the test (:meth:`MockClient.check`; use the client as a context manager).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ApiError, AuthenticationError, RemoteProtocolError
from spark_kafka_sink.network.client.client_request import ClientRequest, ClientResponse
from spark_kafka_sink.network.client.kafka_client import MetadataStore
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataResponse
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.produce import ProduceRequest
from spark_kafka_sink.protocol.request import Request
from tests.fakes.clock import FakeClock

RequestT = TypeVar("RequestT")


@dataclass(frozen=True)
class Prepared:
    """A response: a body, or a way to fail."""

    body: object | None = None
    disconnected: bool = False
    timed_out: bool = False
    error: ApiError | RemoteProtocolError | None = None
    after_ms: int = 0


@dataclass(eq=False)
class Sent:
    """A request that waits for its answer."""

    request: ClientRequest
    sent_ms: int
    answer: Prepared | None = None
    due_ms: int = 0


class ConnectedClient:
    """What every fake ``KafkaClient`` is: connected to all nodes unless the test says otherwise."""

    def __init__(self, *, max_in_flight: int = 5) -> None:
        self._max_in_flight = max_in_flight
        self._in_flight: list[Sent] = []
        self._correlation = -1
        #: Nodes that can't be connected to, with the time at which that ends.
        self.unready: dict[int, int] = {}
        self.authentication_errors: dict[int, AuthenticationError] = {}
        #: What each node answered to ApiVersions.
        self.versions: dict[int, NodeApiVersions] = {}
        self.failures: dict[str, str] = {}
        self.new_failures: dict[int, str] = {}
        self.closed = False
        self.on_poll: Callable[[], None] = lambda: None

    def ready(self, node: Node, now: int) -> bool:
        return self.is_ready(node, now)

    def is_ready(self, node: Node, now: int) -> bool:
        return (
            self.unready.get(node.id, now) <= now
            and self.in_flight_request_count(node.id) < self._max_in_flight
        )

    def poll_delay_ms(self, node: Node, now: int) -> int:
        if node.id in self.authentication_errors:
            return 0  # no connection stands: it is worth another look after the backoff
        until = self.unready.get(node.id, now)
        return until - now if now < until < NEVER else NEVER

    def connection_failed(self, node: Node) -> bool:
        return node.id in self.unready

    def take_failures(self) -> Mapping[int, str]:
        taken, self.new_failures = self.new_failures, {}
        return taken

    def connection_failures(self) -> Mapping[str, str]:
        return self.failures

    def authentication_error(self, node: Node) -> AuthenticationError | None:
        return self.authentication_errors.get(node.id)

    def api_versions(self, node_id: int) -> NodeApiVersions | None:
        return self.versions.get(node_id)

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
        self._correlation += 1
        timeout = 30_000 if request_timeout_ms is None else request_timeout_ms
        return ClientRequest(
            node_id, request, self._correlation, now, timeout, expect_response, callback
        )

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        return sum(1 for s in self._in_flight if node_id in (None, s.request.destination))

    def close(self) -> None:
        self.closed = True


class MockClient(ConnectedClient):
    """Implements ``KafkaClient``; all nodes are connected unless the test says otherwise."""

    def __init__(
        self, clock: FakeClock, metadata: MetadataStore, *, max_in_flight: int = 5
    ) -> None:
        super().__init__(max_in_flight=max_in_flight)
        self._clock = clock
        self._metadata = metadata
        self._prepared: deque[tuple[type, Prepared]] = deque()
        self._prepared_metadata: deque[MetadataResponse | None] = deque()
        self.requests: list[ClientRequest] = []
        self.metadata_requests: list[MetadataRequest] = []
        self.poll_timeouts: list[int] = []
        self.wakeups = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        if error_type is None:
            self.check()

    def check(self) -> None:
        assert not self._prepared, f"never used: {self._prepared}"
        assert not self._prepared_metadata, f"never asked for: {self._prepared_metadata}"

    # -- what the test prepares and looks at --

    def prepare(
        self,
        request_type: type,
        body: object | None = None,
        *,
        disconnected: bool = False,
        timed_out: bool = False,
        error: ApiError | RemoteProtocolError | None = None,
        after_ms: int = 0,
    ) -> None:
        """The next unanswered request must be a ``request_type``; this is its answer."""
        answer = Prepared(body, disconnected or timed_out, timed_out, error, after_ms)
        self._prepared.append((request_type, answer))

    def prepare_metadata(self, response: MetadataResponse | None) -> None:
        """The answer to the next metadata request; None is a disconnect."""
        self._prepared_metadata.append(response)

    def sent(self, request_type: type[RequestT]) -> list[RequestT]:
        return [r.request for r in self.requests if isinstance(r.request, request_type)]

    @property
    def produced(self) -> list[ProduceRequest]:
        return self.sent(ProduceRequest)

    # -- KafkaClient --

    def send(self, request: ClientRequest, now: int) -> None:
        assert not self.closed
        assert self.unready.get(request.destination, now) <= now
        assert self.in_flight_request_count(request.destination) < self._max_in_flight
        self.requests.append(request)
        self._in_flight.append(Sent(request, now))

    def poll(self, timeout_ms: int, now: int) -> Sequence[ClientResponse]:
        assert not self.closed
        self.poll_timeouts.append(timeout_ms)
        self.on_poll()
        now = self._clock.now_ms()
        self._update_metadata(now)
        for sent in self._in_flight:
            if sent.answer is None and not sent.request.expect_response:
                sent.answer = Prepared()
            elif sent.answer is None and self._prepared:
                expected, answer = self._prepared.popleft()
                assert isinstance(sent.request.request, expected), sent.request.request
                sent.answer, sent.due_ms = answer, now + answer.after_ms
        due = [s for s in self._in_flight if s.answer is not None and s.due_ms <= now]
        responses = []
        for sent in due:
            self._in_flight.remove(sent)
            prepared = sent.answer
            assert prepared is not None
            responses.append(
                ClientResponse(
                    sent.request,
                    sent.request.request.versions.max,
                    sent.sent_ms,
                    now,
                    body=prepared.body,
                    disconnected=prepared.disconnected,
                    timed_out=prepared.timed_out,
                    error=prepared.error,
                )
            )
        for response in responses:
            response.complete()
        return responses

    def _update_metadata(self, now: int) -> None:
        if self._prepared_metadata and self._metadata.time_to_next_update(now) == 0:
            request, token = self._metadata.new_request(now)
            self.metadata_requests.append(request)
            response = self._prepared_metadata.popleft()
            if response is None:
                self._metadata.failed_update(now, None)
            else:
                self._metadata.update(token, response, now)

    def least_loaded_node(self, now: int) -> Node | None:
        usable = [n for n in self._metadata.nodes() if self.unready.get(n.id, now) <= now]
        return min(usable, key=lambda n: self.in_flight_request_count(n.id), default=None)

    def wakeup(self) -> None:
        self.wakeups += 1
