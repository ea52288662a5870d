"""A network that does its worst, by a seed: what ``NetworkClient`` uses in the place of sockets.

:class:`SimulatedNetwork` implements ``Selectable``. Below it bytes travel: a frame leaves in pieces
of any size, each piece takes its time, and a connection may end at any byte of either direction,
noticed by both ends, by one, or by none (a silent peer). What was under way when the producer
closed a connection still arrives: brokers work on requests of dead connections. Connections share
nothing, so their pieces overtake each other.

The brokers behind it are given (:class:`Brokers`); time and turns, too (:class:`Turns`).
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.network.channel.selectable import (
    ChannelState,
    ChannelStateKind,
    NetworkReceive,
    NetworkSend,
)

_LENGTH = 4


class BrokerConnection(Protocol):
    """A broker's end of one connection. Frames have no length prefix."""

    @property
    def closed(self) -> bool: ...

    @property
    def pending(self) -> bool:
        """Whether there are requests or answers in flight, also when :meth:`close` was called."""
        ...

    def send(self, frame: bytes, now: int) -> None: ...

    def due(self, now: int) -> Sequence[bytes]:
        """Answers that leave the broker now, in order; each is returned once."""
        ...

    def close(self) -> None: ...


class Brokers(Protocol):
    """A cluster without sockets."""

    def connect(self, node_id: int) -> BrokerConnection | None:
        """None: there is no listener."""
        ...

    def advance(self, now: int) -> None:
        """Let everything happen that is due, also what is not waited for."""
        ...

    def next_due_ms(self) -> int: ...


class Turns(Protocol):
    """The simulated time: who waits gives its turn away."""

    now: int

    def block(self, until: Callable[[], bool], deadline_ms: int) -> None: ...

    def preempt(self) -> None: ...


@dataclass(frozen=True)
class NetworkFaults:
    """How bad the network is; probabilities are per event. The defaults are a perfect one."""

    latency_ms: int = 0
    #: A piece takes up to a hundred times longer.
    spike: float = 0.0
    #: A write is taken in part, the rest later; a piece arrives as two.
    split: float = 0.0
    #: The connection ends somewhere in this piece.
    cut: float = 0.0
    #: Of these ends, those that nobody is told of.
    silent: float = 0.0
    refused: float = 0.0
    #: A connect that takes seconds, or for ever.
    slow_connect: float = 0.0


@dataclass(eq=False)
class _Channel:
    """One connection. The network's two directions outlive the producer's end."""

    node_id: int
    remote: str
    #: Of our end: it stands, it was reported, it ended (with this word of the operating system).
    up: bool = False
    told: bool = False
    ended: str | None = None
    closing: bool = False
    send: NetworkSend | None = None
    unwritten: bytes = b""
    writable: bool = True
    arrived: bytearray = field(default_factory=bytearray)
    #: Of the broker's end.
    broker: BrokerConnection | None = None
    asked: bytearray = field(default_factory=bytearray)
    #: Nothing passes any more.
    cut: bool = False
    #: Pieces of one direction keep their order.
    last_there_ms: int = 0
    last_back_ms: int = 0

    def has_frame(self) -> bool:
        if len(self.arrived) < _LENGTH:
            return False
        return len(self.arrived) >= _LENGTH + int.from_bytes(self.arrived[:_LENGTH], "big")


class SimulatedNetwork:
    """Implements ``Selectable``; :meth:`happen` and :meth:`next_due_ms` are for the scheduler."""

    def __init__(
        self,
        turns: Turns,
        brokers: Brokers,
        ports: Mapping[int, int],
        fate: random.Random,
        faults: NetworkFaults | None = None,
        *,
        trace: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``ports``: port to the id of the broker that listens there."""
        self.faults = NetworkFaults() if faults is None else faults
        #: What happened, and how often.
        self.fired: Counter[str] = Counter()
        self.polls = 0
        #: Polls that ended with nothing but their time-out.
        self.idle_polls = 0
        self.closed = False
        self._turns = turns
        self._brokers = brokers
        self._ports = ports
        self._fate = fate
        self._trace = trace
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._event_count = 0
        self._channels: dict[int, _Channel] = {}
        #: Every connection whose broker's end lives, ours or not.
        self._wires: list[_Channel] = []
        self._woken = False
        self._completed_sends: list[NetworkSend] = []
        self._completed_receives: list[NetworkReceive] = []
        self._disconnected: dict[int, ChannelState] = {}
        self._connected: list[int] = []

    # ---- Selectable ----

    @property
    def completed_sends(self) -> Sequence[NetworkSend]:
        return self._completed_sends

    @property
    def completed_receives(self) -> Sequence[NetworkReceive]:
        return self._completed_receives

    @property
    def disconnected(self) -> Mapping[int, ChannelState]:
        return self._disconnected

    @property
    def connected(self) -> Sequence[int]:
        return self._connected

    def connect(
        self,
        node_id: int,
        host: str,
        address: tuple[str, int],
        send_buffer: int,
        receive_buffer: int,
    ) -> None:
        if node_id in self._channels:
            raise IllegalStateError(f"there is already a connection to node {node_id}")
        port = address[1]
        if self._may("connect failed at once", self.faults.refused / 4):
            raise OSError(101, "Network is unreachable")
        channel = _Channel(node_id, f"{host}:{port}")
        self._channels[node_id] = channel
        self._wires.append(channel)
        if self._may("slow connect", self.faults.slow_connect):
            if self._fate.random() < 0.5:
                return  # for ever: socket.connection.setup.timeout.ms ends it
            delay = self._fate.randint(1, 20_000)
        else:
            delay = self._latency()
        self._after(delay, lambda: self._established(channel, self._ports[port]))

    def send(self, send: NetworkSend) -> None:
        channel = self._channels.get(send.destination)
        if channel is None:
            raise IllegalStateError(f"there is no connection to node {send.destination}")
        if channel.send is not None:
            raise IllegalStateError("a send is under way")
        data = b"".join(bytes(buffer) for buffer in send.buffers)
        assert len(data) == send.size
        assert int.from_bytes(data[:_LENGTH], "big") == send.size - _LENGTH
        channel.send, channel.unwritten = send, data

    def poll(self, timeout_ms: int) -> int:
        assert not self.closed
        assert timeout_ms >= 0
        self.polls += 1
        self._completed_sends = []
        self._completed_receives = []
        self._disconnected = {}
        self._connected = []
        for channel in self._channels.values():
            self._write(channel)
        deadline = NEVER if timeout_ms >= NEVER else self._turns.now + timeout_ms
        if self._completed_sends:
            deadline = self._turns.now
        self._turns.block(self._has_news, deadline)
        news = self._has_news()
        if not news and not self._completed_sends and timeout_ms > 0:
            self.idle_polls += 1
        self._woken = False
        self._collect()
        return self._turns.now

    def is_channel_ready(self, node_id: int) -> bool:
        channel = self._channels.get(node_id)
        return channel is not None and channel.told and not channel.closing

    def close_channel(self, node_id: int) -> None:
        channel = self._channels.pop(node_id, None)
        if channel is not None:
            self._trace(f"the producer closes its connection to node {node_id}")
            self._hang_up(channel)

    def wakeup(self) -> None:
        self._woken = True
        self._turns.preempt()

    def close(self) -> None:
        self.closed = True
        for channel in self._channels.values():
            self._hang_up(channel)
        self._channels.clear()

    # ---- one poll ----

    def _has_news(self) -> bool:
        return self._woken or any(
            (channel.up and not channel.told)
            or (channel.ended is not None)
            or (channel.send is not None and channel.writable and channel.told)
            or channel.has_frame()
            for channel in self._channels.values()
        )

    def _collect(self) -> None:
        for node_id, channel in list(self._channels.items()):
            if channel.up and not channel.told:
                channel.told = True
                self._connected.append(node_id)
            if channel.ended is None:
                self._write(channel)
            if channel.has_frame():
                size = int.from_bytes(channel.arrived[:_LENGTH], "big")
                payload = bytes(channel.arrived[_LENGTH : _LENGTH + size])
                del channel.arrived[: _LENGTH + size]
                self._completed_receives.append(NetworkReceive(node_id, memoryview(payload)))
                # One for each poll. After the end the others are still handed out.
                channel.closing = channel.ended is not None
            elif channel.ended is not None:
                del self._channels[node_id]
                self._connected = [n for n in self._connected if n != node_id]
                kind = ChannelStateKind.READY if channel.told else ChannelStateKind.NOT_CONNECTED
                state = ChannelState(kind, channel.remote, channel.ended)
                self._disconnected[node_id] = state

    def _write(self, channel: _Channel) -> None:
        if channel.send is None or not channel.writable or not channel.told or channel.closing:
            return
        data = channel.unwritten
        if len(data) > 1 and self._may("half write", self.faults.split):
            count = self._fate.randrange(1, len(data))
            channel.writable = False
            self._after(self._latency(), lambda: setattr(channel, "writable", True))
        else:
            count = len(data)
        channel.unwritten = data[count:]
        self._carry(channel, data[:count], there=True)
        if not channel.unwritten:
            self._completed_sends.append(channel.send)
            channel.send = None

    # ---- the wire ----

    def happen(self, now: int) -> None:
        """Everything that is due by ``now``."""
        while self._events and self._events[0][0] <= now:
            heapq.heappop(self._events)[2]()
        self._brokers.advance(now)
        for channel in list(self._wires):
            broker = channel.broker
            if broker is None or not (channel.cut or broker.closed or broker.pending):
                continue  # most are idle, and this is asked at every turn
            for frame in broker.due(now):
                if channel.cut:
                    continue
                self._carry(channel, len(frame).to_bytes(_LENGTH, "big") + frame, there=False)
            if broker.closed and not channel.cut:
                channel.cut = True
                self._after(self._latency(), lambda c=channel: self._end(c, "Connection reset"))
            if channel.cut and not broker.pending:
                self._wires.remove(channel)

    def next_due_ms(self) -> int:
        own = self._events[0][0] if self._events else NEVER
        return min(own, self._brokers.next_due_ms())

    def cut_all(self, node_id: int) -> None:
        """A broker died: each of its connections ends now."""
        for channel in list(self._wires):
            if self._ports[int(channel.remote.rpartition(":")[2])] == node_id and channel.up:
                self._cut(channel)

    def _carry(self, channel: _Channel, data: bytes, *, there: bool) -> None:
        """Put ``data`` on the wire, in pieces; it arrives later, or not at all."""
        now = self._turns.now
        while data:
            size = len(data)
            if size > 1 and self._may("pieces", self.faults.split):
                size = self._fate.randrange(1, size)
            piece, data = data[:size], data[size:]
            ends = self._may("cut", self.faults.cut)
            if ends:
                piece = piece[: self._fate.randint(0, size)]
            at = now + self._latency()
            at = max(at, channel.last_there_ms if there else channel.last_back_ms)
            if there:
                channel.last_there_ms = at
            else:
                channel.last_back_ms = at
            arrive = self._at_broker if there else self._at_producer
            self._at(at, lambda p=piece, a=arrive: a(channel, p))
            if ends:
                # In the order of events: the piece arrives, then the connection is gone.
                self._at(at, lambda: self._cut(channel))
                return

    def _at_broker(self, channel: _Channel, piece: bytes) -> None:
        if channel.cut or channel.broker is None:
            return
        asked = channel.asked
        asked += piece
        while len(asked) >= _LENGTH:
            size = int.from_bytes(asked[:_LENGTH], "big")
            if len(asked) < _LENGTH + size:
                return
            frame = bytes(asked[_LENGTH : _LENGTH + size])
            del asked[: _LENGTH + size]
            if self._channels.get(channel.node_id) is not channel:
                self.fired["a dead connection's request is worked on"] += 1
            self._trace(f"{channel.remote} has request {frame[:8].hex()}, {size} bytes")
            channel.broker.send(frame, self._turns.now)

    def _at_producer(self, channel: _Channel, piece: bytes) -> None:
        if not channel.cut and channel.ended is None:
            channel.arrived += piece

    def _established(self, channel: _Channel, broker: int) -> None:
        if self._channels.get(channel.node_id) is not channel:
            return  # the producer gave up
        refused = self._may("refused", self.faults.refused)
        channel.broker = None if refused else self._brokers.connect(broker)
        self._trace(f"{channel.remote}: {'refused' if channel.broker is None else 'connected'}")
        if channel.broker is None:
            self._wires.remove(channel)
            channel.ended = "Connection refused"
        else:
            channel.up = True

    def _cut(self, channel: _Channel) -> None:
        if channel.cut:
            return
        channel.cut = True
        silent = self._may("silent cut", self.faults.silent)
        self._trace(f"{channel.remote} is cut{' in silence' if silent else ''}")
        if channel.broker is not None:
            if channel.broker.pending:
                self.fired["a dead connection's request is worked on"] += 1
            channel.broker.close()
        if not silent:
            self._after(self._latency(), lambda: self._end(channel, "Connection reset by peer"))

    def _end(self, channel: _Channel, why: str) -> None:
        channel.ended = why

    def _hang_up(self, channel: _Channel) -> None:
        """The producer closed its end: what is under way to the broker still arrives before it."""
        if channel.broker is None:
            if channel in self._wires:
                self._wires.remove(channel)
            return
        at = max(channel.last_there_ms, self._turns.now + self._latency())
        self._at(at, lambda: self._cut(channel))

    # ---- fate ----

    def _may(self, name: str, probability: float) -> bool:
        if probability <= 0 or self._fate.random() >= probability:
            return False
        self.fired[name] += 1
        return True

    def _latency(self) -> int:
        latency = self.faults.latency_ms
        if latency <= 0:
            return 0
        if self._may("spike", self.faults.spike):
            return self._fate.randint(latency, 100 * latency)
        return self._fate.randint(0, latency)

    def _after(self, delay_ms: int, event: Callable[[], None]) -> None:
        self._at(self._turns.now + delay_ms, event)

    def _at(self, at_ms: int, event: Callable[[], None]) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (at_ms, self._event_count, event))
