"""A TCP proxy that understands Kafka's frames, so that a fault is addressed by meaning, not time.

One proxy stands before one broker, which advertises the proxy's address. Requests and responses
pass as whole frames; a :class:`Fault` picks the n-th frame of an API on one side (and, with
``match``, of a request that says something) and cuts the connection after so many of its bytes,
swallows it, holds it, delays it, or puts another in its place. Every fault counts how often it
fired, and a test that injects one asserts that it did (:meth:`Proxy.assert_all_fired`). Proxies
before several brokers share one :class:`Faults`.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from spark_kafka_sink.protocol.request import ApiKey

#: How long a broker may take to answer a request that was held.
_ANSWER_S = 60.0


class Side(Enum):
    REQUEST = "request"
    RESPONSE = "response"


class Action(Enum):
    CUT = "forward some bytes, then reset the connection"
    SWALLOW = "forward nothing of this frame; the connection stays"
    HOLD = "wait for release() before forwarding"
    DELAY = "wait for delay_s before forwarding"
    REPLACE = "forward what edit() makes of it"
    PASS = "forward it; only then() is of interest"


@dataclass(frozen=True, slots=True)
class Hit:
    """What a fault hit: the request's frame (of a response: of what it answers), and whose
    connection it was on (TCP ports of this machine: the client's, and the proxy's).
    """

    request: bytes
    client_port: int
    proxy_port: int


@dataclass
class Fault:
    """``nth`` counts frames of that API and side (and match) from 1; ``times`` frames from there
    are hit. ``then`` runs before the action, on the thread that carries the connection's frames.
    """

    api: ApiKey
    action: Action
    side: Side
    nth: int = 1
    times: int = 1
    at_byte: int = 0
    match: Callable[[Hit], bool] | None = None
    then: Callable[[Hit], None] | None = None
    delay_s: float = 0.0
    edit: Callable[[bytes], bytes] = lambda frame: frame
    fired: int = 0
    seen: int = 0
    deliver: bool = True
    #: What the broker answered to requests that were held and then delivered.
    answers: list[bytes] = field(default_factory=list)
    answered: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    hit: threading.Event = field(default_factory=threading.Event)

    def takes(self, api: int, side: Side, hit: Hit) -> bool:
        if api != self.api or side is not self.side:
            return False
        if self.match is not None and not self.match(hit):
            return False
        self.seen += 1
        if not self.nth <= self.seen < self.nth + self.times:
            return False
        self.fired += 1
        self.hit.set()
        return True

    def release(self, *, deliver: bool = True) -> None:
        """Let go what is held: on to where it was going, or nowhere (its connection is reset)."""
        self.deliver = deliver
        self.released.set()


@dataclass(slots=True)
class _Open:
    """A request that is not answered yet. ``held`` was late, and may be a dead client's."""

    frame: bytes
    held: Fault | None = None
    done: threading.Event = field(default_factory=threading.Event)


#: What a response answers that nobody asked for: no API.
_NOBODYS = _Open(b"\xff" * 12)


class Faults:
    """What is to go wrong; shared by the proxies before the brokers of one cluster."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """It hits nothing more; what it holds is let go."""
        with self._lock:
            self._faults.remove(fault)
        fault.release(deliver=fault.deliver)

    def take(self, api: int, side: Side, hit: Hit) -> Fault | None:
        with self._lock:
            return next((f for f in self._faults if f.takes(api, side, hit)), None)

    def assert_all_fired(self) -> None:
        with self._lock:
            silent = [f for f in self._faults if f.fired == 0]
        assert not silent, f"faults that never fired: {silent}"

    def clear(self) -> None:
        """Forget all of them, and let go what they hold."""
        with self._lock:
            faults, self._faults = self._faults, []
        for fault in faults:
            fault.release(deliver=fault.deliver)


class Proxy:
    """Listens on a loopback port and forwards to ``target`` (set before the first connection)."""

    def __init__(self, target: tuple[str, int] | None = None, faults: Faults | None = None) -> None:
        self.target = target
        self.faults = Faults() if faults is None else faults
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
        return self.faults.add(Fault(api, action, side, nth, times, at_byte))

    def assert_all_fired(self) -> None:
        self.faults.assert_all_fired()

    def clear(self) -> None:
        self.faults.clear()

    def cut_all(self) -> int:
        """Reset every connection now; returns the number of clients."""
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
        self.faults.clear()
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
            requests: dict[int, _Open] = {}
            port = client.getpeername()[1]
            for source, sink, side in (
                (client, broker, Side.REQUEST),
                (broker, client, Side.RESPONSE),
            ):
                threading.Thread(
                    target=self._pump,
                    args=(source, sink, side, requests, port),
                    name=f"proxy-{self.port}-{side.value}",
                    daemon=True,
                ).start()

    def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        side: Side,
        requests: dict[int, _Open],
        client_port: int,
    ) -> None:
        """``requests``: by correlation id, those of this connection that are not answered yet."""
        try:
            while True:
                frame = _read_frame(source)
                if frame is None:
                    break
                if side is Side.REQUEST:
                    (correlation,) = struct.unpack_from(">i", frame, 8)
                    request = requests[correlation] = _Open(frame)
                else:
                    (correlation,) = struct.unpack_from(">i", frame, 4)
                    request = requests.pop(correlation, _NOBODYS)
                    if request.held is not None:
                        request.held.answers.append(frame)
                        request.held.answered.set()
                        request.done.set()
                (api,) = struct.unpack_from(">h", request.frame, 4)
                hit = Hit(request.frame, client_port, self.port)
                fault = self.faults.take(api, side, hit)
                if fault is None:
                    sink.sendall(frame)
                    continue
                if fault.then is not None:
                    try:
                        fault.then(hit)
                    except BaseException:
                        fault.fired -= 1  # what should have happened did not
                        raise
                if fault.action is Action.CUT:
                    sink.sendall(frame[: fault.at_byte])
                    break
                if fault.action is Action.SWALLOW:
                    continue
                if fault.action is Action.HOLD:
                    fault.released.wait()
                    if not fault.deliver:
                        break
                    if side is Side.REQUEST:
                        # Its client may be dead. Then the reset that follows must not overtake it.
                        request.held = fault
                        sink.sendall(frame)
                        request.done.wait(_ANSWER_S)
                        continue
                elif fault.action is Action.DELAY:
                    time.sleep(fault.delay_s)
                elif fault.action is Action.REPLACE:
                    frame = fault.edit(frame)
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
