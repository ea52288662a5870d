"""The interface by which ``NetworkClient`` uses connections (Java's ``Selectable``).

This module has the interface, and the classes of its arguments and results. ``Selector`` implements
it with sockets. Tests implement it with a simulated network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from spark_kafka_sink.base.errors import AuthenticationError, RemoteProtocolError
from spark_kafka_sink.protocol.request import Buffers


class ChannelStateKind(Enum):
    """The state of a connection (Java's ChannelState.State). The values from EXPIRED to LOCAL_CLOSE
    are reasons for closing a connection. If a connection is closed for any other reason, it keeps
    its last state.
    """

    NOT_CONNECTED = "not connected"
    AUTHENTICATE = "authenticating"
    READY = "ready"
    EXPIRED = "idle for too long"
    AUTHENTICATION_FAILED = "authentication failed"
    PROTOCOL_ERROR = "broke the protocol"
    LOCAL_CLOSE = "closed by us"


@dataclass(frozen=True, slots=True)
class ChannelState:
    """Describes a closed connection: its state, the broker's address, and the error."""

    kind: ChannelStateKind
    remote: str = ""
    detail: str | None = None
    error: AuthenticationError | RemoteProtocolError | None = None


@dataclass(frozen=True, slots=True)
class NetworkSend:
    """A frame to send on one connection, with its 4-byte length. ``destination`` is the id of the
    node, and ``size`` is the size of the frame in bytes.
    """

    destination: int
    buffers: Buffers
    size: int


@dataclass(frozen=True, slots=True)
class NetworkReceive:
    """A frame that was received on one connection, without its 4-byte length. ``source`` is the id
    of the node.
    """

    source: int
    payload: memoryview


class SelectorMetrics(Protocol):
    """The interface by which the selector reports its traffic.
    ``producer/metrics/producer_metrics.py`` implements it.
    """

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
    """All connections of a client, by node id. One thread uses the object. Any thread may call
    :meth:`wakeup`.
    """

    def connect(
        self,
        node_id: int,
        host: str,
        address: tuple[str, int],
        send_buffer: int,
        receive_buffer: int,
    ) -> None:
        """Begins a connection to ``address``, a pair of IP address and port.

        * ``host``: the advertised name of the broker. The broker's certificate must contain this
          name, and messages show it.
        * ``send_buffer``, ``receive_buffer``: the sizes of the socket's buffers in bytes. -1 means
          the default of the operating system.

        If the connection fails at once, raises OSError. If it fails later, a poll reports the
        disconnect.
        """
        ...

    def send(self, send: NetworkSend) -> None:
        """Sets the next frame for a connection. The next :meth:`poll` sends it. Raises
        IllegalStateError if the previous frame is not written completely, or if there is no
        connection to the node.
        """
        ...

    def poll(self, timeout_ms: int) -> int:
        """Waits for events, reads and writes bytes, and returns the current time. After the call,
        the properties of this object, such as :attr:`completed_receives`, have its results.
        """
        ...

    @property
    def completed_sends(self) -> Sequence[NetworkSend]: ...

    @property
    def completed_receives(self) -> Sequence[NetworkReceive]:
        """The responses that the last poll has read, in the order of their arrival. Each connection
        has at most one response in the result.
        """
        ...

    @property
    def disconnected(self) -> Mapping[int, ChannelState]: ...

    @property
    def connected(self) -> Sequence[int]: ...

    def is_channel_ready(self, node_id: int) -> bool: ...

    def close_channel(self, node_id: int) -> None:
        """Closes the connection to a node immediately. :attr:`disconnected` of later polls does not
        contain this connection.
        """
        ...

    def wakeup(self) -> None: ...

    def close(self) -> None: ...
