"""The requests that were sent, or are being sent, and have no response yet (Java's
InFlightRequests).

This module keeps the order of the requests to each node, limits their number, and computes the time
of the next timeout. It uses no connection, and the callers handle the responses.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ApiError, RemoteProtocolError
from spark_kafka_sink.network.client.client_request import ClientRequest, ClientResponse
from spark_kafka_sink.protocol.answers import decode
from spark_kafka_sink.protocol.frames import parse_response_header


@dataclass(slots=True)
class InFlightRequest:
    """A request without a response.

    * ``internal``: true for a request of the network client itself (ApiVersions, Metadata).
    * ``sent``: true if all its bytes were written to the socket.
    * ``throttle_ms``: the time for which the node has throttled the client since the request was
      sent. This time extends the request timeout.
    """

    request: ClientRequest
    version: int
    internal: bool
    sent_ms: int
    sent: bool = False
    throttle_ms: int = 0

    @property
    def deadline_ms(self) -> int:
        """The time (monotonic ms) after which the request has timed out."""
        return self.sent_ms + self.throttle_ms + self.request.request_timeout_ms

    def parse(self, payload: memoryview) -> object:
        """Decodes ``payload`` as the response to this request. Raises RemoteProtocolError if
        ``payload`` is not a valid response.
        """
        sent = self.request
        api_key = sent.request.api_key
        correlation_id, body = parse_response_header(api_key, self.version, payload)
        if correlation_id != sent.correlation_id:
            raise RemoteProtocolError(
                f"a response to {api_key.name} has correlation id {correlation_id} where "
                f"{sent.correlation_id} was expected"
            )
        return decode(sent.request, self.version, body)

    def completed(self, body: object | None, now: int) -> ClientResponse:
        return ClientResponse(self.request, self.version, self.sent_ms, now, body)

    def failed(
        self,
        now: int,
        *,
        timed_out: bool = False,
        error: ApiError | RemoteProtocolError | None = None,
    ) -> ClientResponse:
        return ClientResponse(
            self.request,
            self.version,
            self.sent_ms,
            now,
            disconnected=error is None,
            timed_out=timed_out,
            error=error,
        )


class InFlightRequests:
    """The requests in flight to each node, oldest first."""

    def __init__(self, max_per_connection: int) -> None:
        self._max = max_per_connection
        self._requests: dict[int, deque[InFlightRequest]] = {}
        self._count = 0
        #: A time (monotonic ms) before which no request times out. A new request can lower this
        #: time. The time is not raised when a request is completed, but only after it has passed.
        #: So a check may come too early, at most once in request.timeout.ms.
        self.earliest_deadline_ms = NEVER

    def add(self, request: InFlightRequest) -> None:
        queue = self._requests.get(request.request.destination)
        if queue is None:
            queue = self._requests[request.request.destination] = deque()
        queue.append(request)
        self._count += 1
        deadline = request.deadline_ms
        if deadline < self.earliest_deadline_ms:
            self.earliest_deadline_ms = deadline

    def can_send_more(self, node_id: int) -> bool:
        """True if another request can be sent to the node. These two conditions must hold:

        * The number of requests in flight is below the limit.
        * The last request is written to the socket completely.
        """
        queue = self._requests.get(node_id)
        return not queue or (queue[-1].sent and len(queue) < self._max)

    def oldest(self, node_id: int) -> InFlightRequest | None:
        """Returns the oldest request in flight to a node, or None if there is no request. The next
        response belongs to this request, because brokers respond in order.
        """
        queue = self._requests.get(node_id)
        return queue[0] if queue else None

    def answered(self, node_id: int) -> InFlightRequest:
        """Returns the request to which the next response of a node belongs: the oldest request.
        Raises RemoteProtocolError if no request is in flight, or if the oldest request is not
        written to the socket completely.
        """
        queue = self._requests.get(node_id)
        if not queue or not queue[0].sent:
            raise RemoteProtocolError("the broker sent a response without a request")
        return queue[0]

    def last_sent(self, node_id: int) -> InFlightRequest | None:
        queue = self._requests.get(node_id)
        return queue[-1] if queue else None

    def complete_next(self, node_id: int) -> InFlightRequest:
        """Removes and returns the oldest request of a node, after its response has arrived."""
        self._count -= 1
        return self._requests[node_id].popleft()

    def complete_last_sent(self, node_id: int) -> InFlightRequest:
        """Removes and returns the newest request of a node. The caller uses this method for a
        request without a response (acks=0).
        """
        self._count -= 1
        return self._requests[node_id].pop()

    def clear_all(self, node_id: int) -> list[InFlightRequest]:
        """Removes and returns all requests of a node, in the order in which they were sent."""
        queue = self._requests.pop(node_id, None)
        if not queue:
            return []
        self._count -= len(queue)
        return list(queue)

    def count(self, node_id: int | None = None) -> int:
        if node_id is None:
            return self._count
        queue = self._requests.get(node_id)
        return len(queue) if queue else 0

    def add_throttle_time(self, node_id: int, throttle_ms: int) -> None:
        """Extends the timeouts of all requests to a node by ``throttle_ms``, the time for which the
        node throttles the client.
        """
        for request in self._requests.get(node_id, ()):
            request.throttle_ms += throttle_ms

    def time_to_next_timeout(self, now: int) -> int:
        """Returns the time in ms until the first of the requests in flight can time out, or NEVER
        if no request is in flight.
        """
        if self._count == 0:
            self.earliest_deadline_ms = NEVER
            return NEVER
        return max(0, self.earliest_deadline_ms + 1 - now)

    def nodes_with_timed_out_requests(self, now: int) -> list[int]:
        """Returns the ids of the nodes with a request that has timed out. Also computes
        :attr:`earliest_deadline_ms` again.

        This method takes long, because it checks all requests. The caller calls it only when the
        time ``earliest_deadline_ms`` is over.
        """
        timed_out = []
        earliest = NEVER
        for node_id, queue in self._requests.items():
            first = min((request.deadline_ms for request in queue), default=NEVER)
            if now > first:
                timed_out.append(node_id)
            else:
                earliest = min(earliest, first)
        self.earliest_deadline_ms = earliest
        return timed_out
