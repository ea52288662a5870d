"""A request to one broker, and its response, as plain values (Java's ClientRequest)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_kafka_sink.base.errors import ApiError, RemoteProtocolError
from spark_kafka_sink.protocol.request import ApiKey, Request


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request to one node. ``destination`` is the node id. Times are in milliseconds.
    ``callback`` is called in ``poll``.
    """

    destination: int
    request: Request[object]
    correlation_id: int
    created_ms: int
    request_timeout_ms: int
    expect_response: bool = True
    callback: Callable[[ClientResponse], None] | None = None

    @property
    def api_key(self) -> ApiKey:
        return self.request.api_key


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """The outcome of a request. Exactly one of these holds:

    * ``body`` is the decoded response, or None if no response was expected (acks=0);
    * ``disconnected`` is true: the connection was closed. ``timed_out`` is also true if
      request.timeout.ms expired;
    * ``error`` is set: the request was never sent (UnsupportedVersionError), authentication failed
      (AuthenticationError), or the response is invalid (RemoteProtocolError).

    ``version`` is the version of the request. ``sent_ms`` and ``received_ms`` are times in
    milliseconds.
    """

    request: ClientRequest
    version: int
    sent_ms: int
    received_ms: int
    body: object | None = None
    disconnected: bool = False
    timed_out: bool = False
    error: ApiError | RemoteProtocolError | None = None

    @property
    def latency_ms(self) -> int:
        return self.received_ms - self.sent_ms

    def complete(self) -> None:
        """Runs the request's callback, if it has one."""
        if self.request.callback is not None:
            self.request.callback(self)
