"""Kafka's second seam: what ``NetworkClient`` needs of the sockets (Java's ``Selectable``).

Owns: the protocol and the values that cross it. ``Selector`` implements it on epoll; tests put a
simulated network behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from spark_kafka_sink.errors import AuthenticationError, RemoteProtocolError
from spark_kafka_sink.protocol.request import Buffers


class ChannelStateKind(Enum):
    """Why a channel is in the state it is in (Java's ChannelState.State)."""

    NOT_CONNECTED = "not connected"
    AUTHENTICATE = "authenticating"
    READY = "ready"
    EXPIRED = "idle for too long"
    FAILED_SEND = "send failed"
    AUTHENTICATION_FAILED = "authentication failed"
    PROTOCOL_ERROR = "broke the protocol"
    LOCAL_CLOSE = "closed by us"


@dataclass(frozen=True, slots=True)
class ChannelState:
    """How a connection ended, with the address tried and the operating system's word on it."""

    kind: ChannelStateKind
    remote: str = ""
    detail: str | None = None
    error: AuthenticationError | RemoteProtocolError | None = None


@dataclass(frozen=True, slots=True)
class NetworkSend:
    """A whole frame (length prefix included) for one connection; ``size`` in bytes."""

    destination: int
    buffers: Buffers
    size: int


@dataclass(frozen=True, slots=True)
class NetworkReceive:
    """A whole frame without its length prefix, from one connection."""

    source: int
    payload: memoryview


class SelectorMetrics(Protocol):
    """Who counts what a selector moves (``producer/metrics/producer_metrics.py``)."""

    def polled(
        self,
        sends: Sequence[NetworkSend],
        receives: Iterable[NetworkReceive],
        connected: Iterable[int],
        connections: int,
        waited_ms: int,
        io_ms: int,
        now: int,
    ) -> None: ...

    def connection_closed(self, connections: int, now: int) -> None: ...

    def authenticated(self, now: int, *, renewed_in_ms: int | None) -> None: ...

    def authentication_failed(self, now: int, *, renewal: bool) -> None: ...


class Selectable(Protocol):
    """Connections by node id. One thread owns this object; only :meth:`wakeup` is free."""

    def connect(
        self,
        node_id: int,
        host: str,
        address: tuple[str, int],
        send_buffer: int,
        receive_buffer: int,
    ) -> None:
        """Begin to connect to ``address`` (an IP and port). ``host`` is the advertised name, for
        certificates and messages. -1 buffers are the operating system's. OSError at once, or a
        disconnection from a later poll.
        """
        ...

    def send(self, send: NetworkSend) -> None:
        """Queue one frame; at most one at a time for each channel (IllegalStateError)."""
        ...

    def poll(self, timeout_ms: int) -> int:
        """Wait for events and move bytes; the time then. Fills the four properties below anew."""
        ...

    @property
    def completed_sends(self) -> Sequence[NetworkSend]: ...

    @property
    def completed_receives(self) -> Sequence[NetworkReceive]:
        """At most one for each channel and poll, in order."""
        ...

    @property
    def disconnected(self) -> Mapping[int, ChannelState]: ...

    @property
    def connected(self) -> Sequence[int]: ...

    def is_channel_ready(self, node_id: int) -> bool: ...

    def close_channel(self, node_id: int) -> None:
        """Close at once; no disconnection is reported for it."""
        ...

    def wakeup(self) -> None: ...

    def close(self) -> None: ...
