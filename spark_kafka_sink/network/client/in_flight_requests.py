"""Requests without a response that were sent or are being sent (Java's InFlightRequests).

Owns: the order of the requests for each node, the limit of their number, and the earliest timeout.
Never: connections, or the meaning of a response.

A Produce request is here from its sending until its acknowledgement.
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
    """A request in flight.

    ``internal`` is true for a request of the network client itself (ApiVersions, Metadata).
    ``sent`` is true if the last byte is written to the socket. ``throttle_ms`` is the time since
    sending for which the node has throttled the client. This time does not count as a part of the
    timeout.
    """

    request: ClientRequest
    version: int
    internal: bool
    sent_ms: int
    sent: bool = False
    throttle_ms: int = 0

    @property
    def deadline_ms(self) -> int:
        """The last time, in milliseconds, at which the request has not timed out yet."""
        return self.sent_ms + self.throttle_ms + self.request.request_timeout_ms

    def parse(self, payload: memoryview) -> object:
        """Decodes ``payload`` as the response to this request. Raises RemoteProtocolError if it is
        not a valid response to this request.
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
    """A queue of :class:`InFlightRequest` for each node, oldest first."""

    def __init__(self, max_per_connection: int) -> None:
        self._max = max_per_connection
        self._requests: dict[int, deque[InFlightRequest]] = {}
        self._count = 0
        #: No deadline is earlier than this. It is lowered with every request, and recomputed only
        #: when it has passed: completing a request costs nothing, at the price of one early check
        #: in request.timeout.ms.
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
        """Whether another request may be sent to the node. The last request must be written
        completely, and the number of requests in flight must be below the limit.

        If the last request is not written yet, another request would only wait in a queue.
        """
        queue = self._requests.get(node_id)
        return not queue or (queue[-1].sent and len(queue) < self._max)

    def oldest(self, node_id: int) -> InFlightRequest | None:
        """The oldest request, whose response comes next because brokers respond in order."""
        queue = self._requests.get(node_id)
        return queue[0] if queue else None

    def answered(self, node_id: int) -> InFlightRequest:
        """The oldest request of a node, which a response has answered. Raises RemoteProtocolError
        if there is none.
        """
        queue = self._requests.get(node_id)
        if not queue or not queue[0].sent:
            raise RemoteProtocolError("the broker sent a response without a request")
        return queue[0]

    def last_sent(self, node_id: int) -> InFlightRequest | None:
        queue = self._requests.get(node_id)
        return queue[-1] if queue else None

    def complete_next(self, node_id: int) -> InFlightRequest:
        """Removes and returns the oldest request."""
        self._count -= 1
        return self._requests[node_id].popleft()

    def complete_last_sent(self, node_id: int) -> InFlightRequest:
        """Removes and returns the newest request, for which no response is expected."""
        self._count -= 1
        return self._requests[node_id].pop()

    def clear_all(self, node_id: int) -> list[InFlightRequest]:
        """Removes and returns all of a node's requests, in the order of sending."""
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
        """Extends the deadlines of a node's requests in flight by the time for which the node
        throttled the client.
        """
        for request in self._requests.get(node_id, ()):
            request.throttle_ms += throttle_ms

    def time_to_next_timeout(self, now: int) -> int:
        """The milliseconds until a request may have timed out. NEVER if no request is in flight."""
        if self._count == 0:
            self.earliest_deadline_ms = NEVER
            return NEVER
        return max(0, self.earliest_deadline_ms + 1 - now)

    def nodes_with_timed_out_requests(self, now: int) -> list[int]:
        """The nodes with a request that has timed out. Reads every request, so it is called only
        after ``earliest_deadline_ms``.
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
