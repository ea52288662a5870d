"""A network without sockets: a Selectable that tests script, answers by hand, a fixed store."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import IllegalStateError, KafkaError
from spark_kafka_sink.network.channel.selectable import (
    ChannelState,
    ChannelStateKind,
    NetworkReceive,
    NetworkSend,
)
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.frames import response_header_version
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataResponse
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange
from spark_kafka_sink.protocol.wire import WireReader
from tests.fakes.clock import FakeClock
from tests.protocol import metadata_bytes


@dataclass(frozen=True)
class Answer:
    """What :class:`Ask` decodes: the body's bytes, and a throttle time if they hold one."""

    body: bytes
    throttle_time_ms: int = 0


@dataclass(frozen=True)
class Ask:
    """A request of any API whose answer's body is a throttle time (int32) and anything."""

    payload: bytes = b"ask"
    api_key: ApiKey = ApiKey.PRODUCE
    versions: VersionRange = field(default=VersionRange(3, 12))

    def encode(self, version: int) -> Buffers:
        return [self.payload]

    def read(self, reader: WireReader, version: int) -> Answer:
        throttle_time_ms = reader.int32()
        start = reader.position
        reader.skip(len(reader.data) - start)
        return Answer(bytes(reader.data[start:]), throttle_time_ms)


@dataclass(frozen=True)
class Frame:
    """A frame that was sent, read back."""

    node_id: int
    api_key: ApiKey
    version: int
    correlation_id: int
    size: int


def read_frame(send: NetworkSend) -> Frame:
    data = b"".join(bytes(b) for b in send.buffers)
    assert len(data) == send.size
    length, api, version, correlation_id = struct.unpack_from(">ihhi", data)
    assert length == send.size - 4
    return Frame(send.destination, ApiKey(api), version, correlation_id, send.size)


def api_versions_body(
    version: int, ranges: Mapping[int, tuple[int, int]], *, error: int = 0
) -> bytes:
    items = [(int(k), low, high) for k, (low, high) in ranges.items()]
    if version < 3:
        body = struct.pack(">hi", error, len(items))
        body += b"".join(struct.pack(">hhh", *item) for item in items)
        return body + (struct.pack(">i", 0) if version >= 1 else b"")
    body = struct.pack(">hB", error, len(items) + 1)
    body += b"".join(struct.pack(">hhhB", *item, 0) for item in items)
    return body + struct.pack(">iB", 0, 0)


def metadata_body(version: int, brokers: Sequence[Node], *, error: int = 0) -> bytes:
    told = [metadata_bytes.broker(version, n.id, n.host.encode(), n.port) for n in brokers]
    return metadata_bytes.answer(version, told, error=error)


#: What a simulated broker offers: Metadata is held down to a version that is easy to write.
RANGES = {
    ApiKey.PRODUCE: (0, 12),
    ApiKey.METADATA: (0, 4),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
}


@dataclass
class SimulatedSelectable:
    """Connections connect, sends complete and ApiVersions is answered, unless a test forbids it.

    ``poll`` moves the clock on by its time-out when nothing is to report. NEVER with nothing to
    report is a test's mistake (or what it looks for): it raises AssertionError.
    """

    clock: FakeClock
    connects: bool = True
    channels_ready: bool = True
    sends_complete: bool = True
    answers_api_versions: bool = True
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=lambda: dict(RANGES))
    refused: dict[str, str] = field(default_factory=dict)

    connections: dict[int, tuple[str, int]] = field(default_factory=dict)
    attempts: list[tuple[int, str, int]] = field(default_factory=list)
    sent: list[Frame] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    timeouts: list[int] = field(default_factory=list)
    wakeups: int = 0
    is_closed: bool = False

    def __post_init__(self) -> None:
        self._outgoing: dict[int, NetworkSend] = {}
        self._next_connected: list[int] = []
        self._next_disconnected: dict[int, ChannelState] = {}
        self._next_receives: list[NetworkReceive] = []
        self.completed_sends: list[NetworkSend] = []
        self.completed_receives: list[NetworkReceive] = []
        self.disconnected: dict[int, ChannelState] = {}
        self.connected: list[int] = []

    # ---- Selectable ----

    def connect(
        self, node_id: int, host: str, address: tuple[str, int], send_buffer: int, receive: int
    ) -> None:
        assert node_id not in self.connections
        ip, port = address
        self.attempts.append((node_id, ip, port))
        if ip in self.refused:
            raise ConnectionRefusedError(111, self.refused[ip])
        self.connections[node_id] = address
        if self.connects:
            self._next_connected.append(node_id)

    def send(self, send: NetworkSend) -> None:
        if send.destination in self._outgoing:
            raise IllegalStateError("a send is under way")
        self._outgoing[send.destination] = send
        self.sent.append(read_frame(send))

    def poll(self, timeout_ms: int) -> int:
        self.timeouts.append(timeout_ms)
        self.completed_sends = []
        if self.sends_complete:
            self.completed_sends = list(self._outgoing.values())
            self._outgoing.clear()
            for send in self.completed_sends:
                frame = read_frame(send)
                if self.answers_api_versions and frame.api_key is ApiKey.API_VERSIONS:
                    self.answer(frame, api_versions_body(frame.version, self.ranges))
        self.connected, self._next_connected = self._next_connected, []
        self.disconnected, self._next_disconnected = self._next_disconnected, {}
        self.completed_receives, waiting = [], self._next_receives
        self._next_receives = []
        sources = set()
        for receive in waiting:
            if self.completed_sends:
                # What was sent in this poll is answered in the next one.
                self._next_receives.append(receive)
            elif receive.source in sources:
                self._next_receives.append(receive)
            else:
                sources.add(receive.source)
                self.completed_receives.append(receive)
        busy = (
            self.completed_sends or self.connected or self.disconnected or self.completed_receives
        )
        if not busy:
            assert timeout_ms < NEVER, "asleep for good"
            self.clock.advance(timeout_ms)
        return self.clock.now_ms()

    def is_channel_ready(self, node_id: int) -> bool:
        return node_id in self.connections and self.channels_ready

    def close_channel(self, node_id: int) -> None:
        self.closed.append(node_id)
        self._drop(node_id)

    def wakeup(self) -> None:
        self.wakeups += 1

    def close(self) -> None:
        self.is_closed = True

    # ---- what tests do ----

    def answer(self, frame: Frame, body: bytes, *, correlation_id: int | None = None) -> None:
        head = struct.pack(">i", frame.correlation_id if correlation_id is None else correlation_id)
        head += b"\0" * response_header_version(frame.api_key, frame.version)
        self.deliver(frame.node_id, head + body)

    def deliver(self, node_id: int, payload: bytes) -> None:
        self._next_receives.append(NetworkReceive(node_id, memoryview(payload)))

    def finish_connect(self, node_id: int) -> None:
        self._next_connected.append(node_id)

    def drop(
        self,
        node_id: int,
        kind: ChannelStateKind = ChannelStateKind.READY,
        detail: str | None = "the broker closed the connection",
        error: object = None,
    ) -> None:
        self._drop(node_id)
        self._next_disconnected[node_id] = ChannelState(kind, "", detail, error)

    def _drop(self, node_id: int) -> None:
        self.connections.pop(node_id, None)
        self._outgoing.pop(node_id, None)
        self._next_receives = [r for r in self._next_receives if r.source != node_id]
        self._next_connected = [n for n in self._next_connected if n != node_id]

    def last_sent(self, api_key: ApiKey) -> Frame:
        return [f for f in self.sent if f.api_key is api_key][-1]

    def count_sent(self, api_key: ApiKey) -> int:
        return sum(f.api_key is api_key for f in self.sent)


class FixedMetadata:
    """A MetadataStore that wants what the test says."""

    def __init__(self, nodes: Sequence[Node], *, due: bool = False) -> None:
        self.known = tuple(nodes)
        self.bootstrap_nodes = tuple(Node(-1 - i, n.host, n.port) for i, n in enumerate(nodes))
        self.wait_ms = 0 if due else NEVER
        self.updates: list[tuple[int, MetadataResponse]] = []
        self.failures: list[KafkaError | None] = []
        self.requested = 0
        self.rebootstraps = 0
        self.rebootstrap_enabled = True
        self.backoff_ms = 100

    def nodes(self) -> Sequence[Node]:
        return self.known

    def time_to_next_update(self, now: int) -> int:
        return self.wait_ms

    def new_request(self, now: int) -> tuple[MetadataRequest, int]:
        return MetadataRequest(()), 7

    def update(self, token: int, response: MetadataResponse, now: int) -> None:
        self.updates.append((token, response))
        self.known = response.brokers.in_order()
        self.wait_ms = NEVER

    def failed_update(self, now: int, error: KafkaError | None) -> None:
        self.failures.append(error)
        self.wait_ms = self.backoff_ms

    def request_update(self) -> None:
        self.requested += 1

    def rebootstrap(self, now: int) -> None:
        self.rebootstraps += 1
        self.known = self.bootstrap_nodes
        self.wait_ms = 0
