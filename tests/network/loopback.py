"""A server of one's own on the loopback, driven by the test; its connections are plain sockets."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.network.channel.channel_builder import ChannelBuilder
from spark_kafka_sink.network.channel.selectable import ChannelState, NetworkReceive, NetworkSend
from spark_kafka_sink.network.channel.selector import Selector
from spark_kafka_sink.network.transport_layer import PlaintextTransportLayer

#: Seconds after which a test that waits for an event has failed.
PATIENCE = 60.0


class LoopbackServer:
    """Listens; :meth:`accept` hands out the next connection, blocking, with a time limit."""

    def __init__(self, *, backlog: int = 16) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=backlog)
        self.listener.settimeout(PATIENCE)
        self.address: tuple[str, int] = self.listener.getsockname()
        self.connections: list[socket.socket] = []

    def accept(self) -> socket.socket:
        connection, _ = self.listener.accept()
        connection.settimeout(PATIENCE)
        self.connections.append(connection)
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.listener.close()
        for connection in self.connections:
            connection.close()


class Background(threading.Thread):
    """Runs ``work`` beside the test; the end of the ``with`` waits, and raises what it raised."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.work = work
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, tb: object) -> None:
        self.join(PATIENCE)
        assert not self.is_alive()
        if self.error is not None and error is None:
            raise self.error


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(min(1 << 20, size - len(data)))
        assert piece, f"the client closed after {len(data)} of {size} bytes"
        data += piece
    return bytes(data)


def read_frame(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", read_exactly(connection, 4))
    return read_exactly(connection, size)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def send_of(node_id: int, *buffers: bytes | memoryview) -> NetworkSend:
    size = sum(map(len, buffers))
    return NetworkSend(node_id, [struct.pack(">i", size), *buffers], size + 4)


def reset(connection: socket.socket) -> None:
    """Close with RST instead of FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Driver:
    """A Selector, and everything that its polls reported so far."""

    def __init__(
        self,
        *,
        connections_max_idle_ms: int = -1,
        clock: Clock | None = None,
        builder: ChannelBuilder | None = None,
        **options: Any,
    ) -> None:
        self.selector = Selector(
            builder or ChannelBuilder(),
            clock or SystemClock(),
            connections_max_idle_ms=connections_max_idle_ms,
            **options,
        )
        self.sends: list[NetworkSend] = []
        self.receives: list[NetworkReceive] = []
        self.disconnected: dict[int, ChannelState] = {}
        self.connected: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.selector.close()

    def poll(self, timeout_ms: int = 100) -> None:
        self.selector.poll(timeout_ms)
        sources = [r.source for r in self.selector.completed_receives]
        assert len(set(sources)) == len(sources), "two receives of one channel in one poll"
        self.sends += self.selector.completed_sends
        self.receives += self.selector.completed_receives
        self.disconnected.update(self.selector.disconnected)
        self.connected += self.selector.connected

    def poll_until(self, condition: Callable[[], object]) -> None:
        clock = SystemClock()
        deadline = clock.now_ms() + int(PATIENCE * 1000)
        while not condition():
            assert clock.now_ms() < deadline, "it never came"
            self.poll()

    def connect(self, node_id: int, address: tuple[str, int], *, buffers: int = -1) -> None:
        self.selector.connect(node_id, address[0], address, buffers, buffers)
        self.poll_until(lambda: node_id in self.connected or node_id in self.disconnected)

    def payloads(self) -> list[bytes]:
        return [bytes(r.payload) for r in self.receives]


@contextmanager
def connected(*, buffers: int = -1, **options: Any) -> Iterator[tuple[Driver, socket.socket]]:
    """A driver with a connection to node 1, and the other end of it."""
    with LoopbackServer() as server, Driver(**options) as driver:
        driver.connect(1, server.address, buffers=buffers)
        yield driver, server.accept()


class Pieces(PlaintextTransportLayer):
    """A transport that gives one of its pieces for each read; nothing between two if it pauses."""

    def __init__(self, pieces: Iterable[bytes], *, pauses: bool = False) -> None:
        self._pieces = iter(pieces)
        self._left = b""
        self._pauses, self._paused = pauses, False
        self.over = False

    def read_into(self, target: memoryview) -> int:
        self._paused = self._pauses and not self._paused
        if self._paused:
            return 0
        self._left = self._left or next(self._pieces, b"")
        self.over = not self._left
        count = min(len(target), len(self._left))
        target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


@contextmanager
def closed_port() -> Iterator[int]:
    """A port without a listener, which no other process gets meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def serving(
    handle: Callable[[socket.socket, threading.Event], object],
) -> Iterator[tuple[str, int]]:
    """A raw server: ``handle`` has each connection, one after the other, with its request read, and
    an event that is set at the end.
    """
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection, suppress(OSError):
                        connection.recv(65536)
                        handle(connection, over)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE)
