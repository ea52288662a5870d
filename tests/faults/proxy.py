"""A TCP proxy that understands Kafka's frames, so that a fault is addressed by meaning, not time.

One proxy stands before one broker, which advertises the proxy's address. Requests and responses
pass as whole frames; a :class:`Fault` picks the n-th frame of an API on one side and cuts the
connection after so many of its bytes, swallows it, or holds it. Every fault counts how often it
fired, and a test that injects one asserts that it did (:meth:`Proxy.assert_all_fired`).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from enum import Enum

from spark_kafka_sink.protocol.request import ApiKey


class Side(Enum):
    REQUEST = "request"
    RESPONSE = "response"


class Action(Enum):
    CUT = "forward some bytes, then reset the connection"
    SWALLOW = "forward nothing of this frame; the connection stays"
    HOLD = "wait for release() before forwarding"


@dataclass
class Fault:
    """``nth`` counts frames of that API and side from 1; ``times`` frames from there are hit."""

    api: ApiKey
    action: Action
    side: Side
    nth: int = 1
    times: int = 1
    at_byte: int = 0
    fired: int = 0
    seen: int = 0
    released: threading.Event = field(default_factory=threading.Event)
    hit: threading.Event = field(default_factory=threading.Event)

    def takes(self, api: int, side: Side) -> bool:
        if api != self.api or side is not self.side:
            return False
        self.seen += 1
        if not self.nth <= self.seen < self.nth + self.times:
            return False
        self.fired += 1
        self.hit.set()
        return True

    def release(self) -> None:
        self.released.set()


class Proxy:
    """Listens on a loopback port and forwards to ``target`` (set before the first connection)."""

    def __init__(self, target: tuple[str, int] | None = None) -> None:
        self.target = target
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._accept, name=f"proxy-{self.port}", daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(
        self,
        api: ApiKey,
        action: Action,
        side: Side,
        *,
        nth: int = 1,
        times: int = 1,
        at_byte: int = 0,
    ) -> Fault:
        fault = Fault(api, action, side, nth, times, at_byte)
        with self._lock:
            self._faults.append(fault)
        return fault

    def assert_all_fired(self) -> None:
        with self._lock:
            silent = [f for f in self._faults if f.fired == 0]
        assert not silent, f"faults that never fired: {silent}"

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def cut_all(self) -> int:
        """Reset every connection now; tells how many clients were hit."""
        with self._lock:
            victims = list(self._open)
        for victim in victims:
            _reset(victim)
        return len(victims) // 2

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            faults = list(self._faults)
        for fault in faults:
            fault.release()
        self.cut_all()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            assert self.target is not None
            try:
                broker = socket.create_connection(self.target, timeout=5)
                broker.settimeout(None)
            except OSError:
                _reset(client)
                continue
            for end in (client, broker):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            with self._lock:
                self._open |= {client, broker}
            apis: dict[int, int] = {}
            for source, sink, side in (
                (client, broker, Side.REQUEST),
                (broker, client, Side.RESPONSE),
            ):
                threading.Thread(
                    target=self._pump,
                    args=(source, sink, side, apis),
                    name=f"proxy-{self.port}-{side.value}",
                    daemon=True,
                ).start()

    def _pump(
        self, source: socket.socket, sink: socket.socket, side: Side, apis: dict[int, int]
    ) -> None:
        try:
            while True:
                frame = _read_frame(source)
                if frame is None:
                    break
                if side is Side.REQUEST:
                    api, _version, correlation = struct.unpack_from(">hhi", frame, 4)
                    apis[correlation] = api
                else:
                    (correlation,) = struct.unpack_from(">i", frame, 4)
                    api = apis.pop(correlation, -1)
                with self._lock:
                    fault = next((f for f in self._faults if f.takes(api, side)), None)
                if fault is None:
                    sink.sendall(frame)
                elif fault.action is Action.CUT:
                    sink.sendall(frame[: fault.at_byte])
                    break
                elif fault.action is Action.HOLD:
                    fault.released.wait()
                    sink.sendall(frame)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                _reset(end)
                with self._lock:
                    self._open.discard(end)


def _read_frame(source: socket.socket) -> bytes | None:
    prefix = _read(source, 4)
    if prefix is None:
        return None
    body = _read(source, struct.unpack(">i", prefix)[0])
    return None if body is None else prefix + body


def _read(source: socket.socket, size: int) -> bytes | None:
    pieces = bytearray()
    while len(pieces) < size:
        piece = source.recv(min(size - len(pieces), 1 << 20))
        if not piece:
            return None
        pieces += piece
    return bytes(pieces)


def _reset(end: socket.socket) -> None:
    """End a connection the hard way (RST), from any thread: the pump's recv returns at once."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        end.close()
