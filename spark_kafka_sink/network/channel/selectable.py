"""The interface of ``NetworkClient`` to the sockets (Java's ``Selectable``).

Owns: the protocol and its values. ``Selector`` implements it on epoll; tests implement it with a
simulated network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from spark_kafka_sink.base.errors import AuthenticationError, RemoteProtocolError
from spark_kafka_sink.protocol.request import Buffers


class ChannelStateKind(Enum):
    """The state of a channel (Java's ChannelState.State)."""

    NOT_CONNECTED = "not connected"
    AUTHENTICATE = "authenticating"
    READY = "ready"
    EXPIRED = "idle for too long"
    AUTHENTICATION_FAILED = "authentication failed"
    PROTOCOL_ERROR = "broke the protocol"
    LOCAL_CLOSE = "closed by us"


@dataclass(frozen=True, slots=True)
class ChannelState:
    """The final state of a connection, with its address and the operating system's error."""

    kind: ChannelStateKind
    remote: str = ""
    detail: str | None = None
    error: AuthenticationError | RemoteProtocolError | None = None


@dataclass(frozen=True, slots=True)
class NetworkSend:
    """A whole frame, including its length prefix, for one connection. ``size`` is its size in
    bytes.
    """

    destination: int
    buffers: Buffers
    size: int


@dataclass(frozen=True, slots=True)
class NetworkReceive:
    """A whole frame without its length prefix, from one connection."""

    source: int
    payload: memoryview


class SelectorMetrics(Protocol):
    """Records the selector's traffic (``producer/metrics/producer_metrics.py``)."""

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
    """Connections by node id. One thread owns this object; any thread may call :meth:`wakeup`."""

    def connect(
        self,
        node_id: int,
        host: str,
        address: tuple[str, int],
        send_buffer: int,
        receive_buffer: int,
    ) -> None:
        """Begins to connect to ``address`` (an IP and port). ``host`` is the advertised name, for
        certificates and messages.

        A buffer size of -1 stands for the operating system's default. A failure raises OSError, or
        is reported as a disconnect by a later poll.
        """
        ...

    def send(self, send: NetworkSend) -> None:
        """Queues one frame. Raises IllegalStateError if the channel already has a queued frame."""
        ...

    def poll(self, timeout_ms: int) -> int:
        """Waits for events, transfers bytes, and returns the current time. Sets the four properties
        below.
        """
        ...

    @property
    def completed_sends(self) -> Sequence[NetworkSend]: ...

    @property
    def completed_receives(self) -> Sequence[NetworkReceive]:
        """The responses that the last poll has read, in the order of their arrival. There is at
        most one for each channel.
        """
        ...

    @property
    def disconnected(self) -> Mapping[int, ChannelState]: ...

    @property
    def connected(self) -> Sequence[int]: ...

    def is_channel_ready(self, node_id: int) -> bool: ...

    def close_channel(self, node_id: int) -> None:
        """Closes a connection immediately. No disconnect is reported for this connection."""
        ...

    def wakeup(self) -> None: ...

    def close(self) -> None: ...
