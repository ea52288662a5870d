"""A request to one broker, and its response (Java's ClientRequest and ClientResponse)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_kafka_sink.base.errors import ApiError, RemoteProtocolError
from spark_kafka_sink.protocol.request import ApiKey, Request


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request to the node with the id ``destination``.

    ``poll`` calls ``callback`` with the response. ``expect_response`` is False for a Produce
    request with acks=0. ``created_ms`` is a time in monotonic milliseconds.
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
    """The outcome of a request. There are three cases:

    * The request succeeded. ``body`` is the decoded response. It is None if the request has no
      response (Produce with acks=0).
    * The connection was closed. ``disconnected`` is True. ``timed_out`` is also True if
      request.timeout.ms was over.
    * ``error`` is set: the request was not sent (UnsupportedVersionError), the authentication
      failed (AuthenticationError), or the response was invalid (RemoteProtocolError).

    ``version`` is the version of the request. ``sent_ms`` and ``received_ms`` are monotonic
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
        """Calls the callback of the request, if it has a callback."""
        if self.request.callback is not None:
            self.request.callback(self)
