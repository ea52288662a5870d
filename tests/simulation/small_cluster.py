"""Brokers small enough to read in a minute: partition logs, producer state, leaders, a few APIs.

Requests come as frames and are worked on one at a time for each connection, whatever became of the
connection meanwhile. The versions offered are those without tagged fields.
"""

from __future__ import annotations

import random
import struct
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.frames import response_header_version
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.record_batch import parse_batch
from tests.network.simulated import api_versions_body

RANGES = {
    ApiKey.PRODUCE: (0, 8),
    ApiKey.METADATA: (0, 4),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.INIT_PRODUCER_ID: (0, 1),
}


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return value  # type: ignore[no-any-return]

    def bytes(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def string(self) -> str | None:
        size = self.take("h")
        return None if size < 0 else self.bytes(size).decode()


def _string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


@dataclass(frozen=True)
class ClusterFaults:
    """Probabilities per event (a request, or a partition of one)."""

    work_ms: int = 0
    stall: float = 0.0
    leader_moves: float = 0.0
    broker_stops: float = 0.0
    not_leader: float = 0.0
    not_enough_replicas: float = 0.0
    not_enough_after_append: float = 0.0
    throttle: float = 0.0
    metadata_error: float = 0.0
    restart: float = 0.0
    #: An answer that no retry mends.
    refused: float = 0.0
    #: Nobody listens there, though it leads what it leads.
    dead_node: int = 0


@dataclass
class _ProducerState:
    last: int
    window: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))


class Log:
    """One partition."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.producers: dict[tuple[int, int], _ProducerState] = {}

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        (count,) = struct.unpack_from(">i", data, 57)
        producer, epoch, first = struct.unpack_from(">qhi", data, 43)
        if producer >= 0:
            state = self.producers.get((producer, epoch))
            last = (first + count - 1) % 2**31
            if state is not None:
                for known_first, known_last, offset in state.window:
                    if (known_first, known_last) == (first, last):
                        return ErrorCode.NONE, offset
                if first != (state.last + 1) % 2**31:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            else:
                state = self.producers[producer, epoch] = _ProducerState(-1)
            state.last = last
            state.window.append((first, last, self.end))
        offset = self.end
        self.batches.append(data)
        self.end += count
        return ErrorCode.NONE, offset

    def restart(self) -> None:
        for state in self.producers.values():
            while len(state.window) > 1:
                state.window.popleft()

    def values(self) -> list[bytes | None]:
        return [record.value for data in self.batches for record in parse_batch(data).records]


@dataclass(eq=False)
class Connection:
    cluster: SmallCluster
    node_id: int
    closed: bool = False
    hung_up: bool = False
    free_ms: int = 0
    asked: deque[tuple[int, bytes]] = field(default_factory=deque)

    def send(self, frame: bytes, now: int) -> None:
        cluster = self.cluster
        self.free_ms = max(self.free_ms, now) + cluster.work_ms()
        self.asked.append((self.free_ms, frame))

    def due(self, now: int) -> list[bytes]:
        out = []
        while self.asked and self.asked[0][0] <= now:
            answer = self.cluster.work(self.node_id, self.asked.popleft()[1])
            if answer is not None:
                out.append(answer)
        return [] if self.hung_up else out

    @property
    def pending(self) -> bool:
        return bool(self.asked)

    def close(self) -> None:
        """The peer is gone; what it asked is worked on all the same."""
        self.hung_up = True


class SmallCluster:
    def __init__(
        self,
        topics: dict[str, int],
        fate: random.Random,
        faults: ClusterFaults,
        *,
        nodes: int = 3,
        trace: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.faults = faults
        self.fired: Counter[str] = Counter()
        self.now: Callable[[], int] = lambda: 0
        self.ports = {9092 + node: node for node in range(1, nodes + 1)}
        self.logs: dict[TopicPartition, Log] = {}
        self.leaders: dict[TopicPartition, int] = {}
        self.too_large: dict[str, int] = defaultdict(lambda: 2**31)
        self.down: dict[int, int] = {}
        self.on_down: Callable[[int], None] = lambda node: None
        self._fate = fate
        self._trace = trace
        self._connections: list[Connection] = []
        self._next_producer = 1000
        for topic, partitions in topics.items():
            self.add_partitions(topic, partitions)

    def add_partitions(self, topic: str, count: int) -> None:
        have = sum(tp.topic == topic for tp in self.logs)
        for partition in range(have, count):
            tp = TopicPartition(topic, partition)
            self.logs[tp] = Log()
            self.leaders[tp] = self._fate.choice(list(self.ports.values()))

    def heal(self) -> None:
        self.faults = ClusterFaults()
        self.down.clear()

    # -- for the network --

    def connect(self, node_id: int) -> Connection | None:
        if self.down.get(node_id, 0) > self.now() or node_id == self.faults.dead_node:
            return None
        connection = Connection(self, node_id)
        self._connections.append(connection)
        return connection

    def next_due_ms(self) -> int:
        return min((c.asked[0][0] for c in self._connections if c.asked), default=NEVER)

    # -- work --

    def may(self, name: str, probability: float) -> bool:
        if probability <= 0 or self._fate.random() >= probability:
            return False
        self.fired[name] += 1
        return True

    def work_ms(self) -> int:
        if self.may("stall", self.faults.stall):
            return self._fate.randint(100, 20_000)
        return self._fate.randint(0, self.faults.work_ms)

    def work(self, node: int, frame: bytes) -> bytes | None:
        self._happen()
        if self.down.get(node, 0) > self.now():
            return None
        reader = _Reader(frame)
        api, version = ApiKey(reader.take("h")), reader.take("h")
        correlation = reader.bytes(4)
        reader.string()
        head = correlation + b"\0" * response_header_version(api, version)
        if api is ApiKey.API_VERSIONS:
            return head + api_versions_body(version, RANGES)
        if api is ApiKey.INIT_PRODUCER_ID:
            self._next_producer += 1
            if self.may("no producer id", self.faults.metadata_error):
                return head + struct.pack(">ihqh", 0, 14, -1, -1)
            return head + struct.pack(">ihqh", 0, 0, self._next_producer, 0)
        if api is ApiKey.METADATA:
            return head + self._metadata(reader)
        body = self._produce(node, version, reader)
        return None if body is None else head + body

    def _happen(self) -> None:
        faults = self.faults
        for tp in self.leaders:
            if self.may("leader moves", faults.leader_moves):
                self.leaders[tp] = self._fate.choice(list(self.ports.values()))
                self._trace(f"{tp} is led by {self.leaders[tp]}")
            if self.may("restart", faults.restart):
                self.logs[tp].restart()
        if self.may("broker stops", faults.broker_stops):
            node = self._fate.choice(list(self.ports.values()))
            self.down[node] = self.now() + self._fate.randint(10, 5_000)
            self._trace(f"broker {node} is down until {self.down[node]}")
            self.on_down(node)
            for tp, leader in self.leaders.items():
                if leader == node:
                    self.leaders[tp] = self._fate.choice(list(self.ports.values()))

    def _metadata(self, reader: _Reader) -> bytes:
        topics = [reader.string() or "" for _ in range(max(0, reader.take("i")))]
        out = struct.pack(">ii", 0, len(self.ports))
        for port, node in self.ports.items():
            out += struct.pack(">i", node) + _string("127.0.0.1") + struct.pack(">ih", port, -1)
        out += _string("cluster") + struct.pack(">ii", 1, len(topics))
        for topic in topics:
            partitions = sorted(tp.partition for tp in self.logs if tp.topic == topic)
            if not partitions or self.may("topic unknown", self.faults.metadata_error):
                out += struct.pack(">h", 3) + _string(topic) + struct.pack(">bi", 0, 0)
                continue
            out += struct.pack(">h", 0) + _string(topic) + struct.pack(">bi", 0, len(partitions))
            for partition in partitions:
                leader = self.leaders[TopicPartition(topic, partition)]
                if self.may("leader unknown", self.faults.metadata_error):
                    out += struct.pack(">hii", 5, partition, -1)
                else:
                    out += struct.pack(">hii", 0, partition, leader)
                out += struct.pack(">iiii", 1, leader, 1, leader)
        return out

    def _produce(self, node: int, version: int, reader: _Reader) -> bytes | None:
        reader.string()
        acks, _ = reader.take("h"), reader.take("i")
        out = b""
        topics = reader.take("i")
        for _ in range(topics):
            topic = reader.string() or ""
            count = reader.take("i")
            out += _string(topic) + struct.pack(">i", count)
            for _ in range(count):
                tp = TopicPartition(topic, reader.take("i"))
                code, offset = self._judge(tp, node, reader.bytes(reader.take("i")))
                self._trace(f"{tp} at {node}: {code.name} {offset}")
                out += struct.pack(">ihqq", tp.partition, int(code), offset, -1)
                if version >= 5:
                    out += struct.pack(">q", 0)
                if version >= 8:
                    out += struct.pack(">ih", 0, -1)
        throttle = 0
        if self.may("throttle", self.faults.throttle):
            throttle = self._fate.randint(1, 3_000)
        return None if acks == 0 else struct.pack(">i", topics) + out + struct.pack(">i", throttle)

    def _judge(self, tp: TopicPartition, node: int, data: bytes) -> tuple[ErrorCode, int]:
        faults = self.faults
        if tp not in self.logs:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
        if node != self.leaders[tp] or self.may("not leader", faults.not_leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if self.may("not enough replicas", faults.not_enough_replicas):
            return ErrorCode.NOT_ENOUGH_REPLICAS, -1
        if len(data) > self.too_large[tp.topic]:
            self.fired["too large"] += 1
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if self.may("refused", faults.refused):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1
        code, offset = self.logs[tp].append(data)
        if code is ErrorCode.NONE and self.may(
            "not enough after append", faults.not_enough_after_append
        ):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1
        return code, offset
