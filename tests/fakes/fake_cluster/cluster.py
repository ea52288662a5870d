"""The cluster: brokers, topics, what is due later, and the way of a request to its API."""

from __future__ import annotations

import heapq
import uuid
import zlib
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from random import Random

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from tests.fakes.fake_cluster.batch_checks import RefusedError
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.connection import FakeConnection
from tests.fakes.fake_cluster.control import Control, Fault, Kind
from tests.fakes.fake_cluster.coordinators import Coordinators
from tests.fakes.fake_cluster.group_offsets import OFFSETS_PARTITION, GroupOffsets
from tests.fakes.fake_cluster.outcome import Outcome
from tests.fakes.fake_cluster.partition_log import PartitionLog
from tests.fakes.fake_cluster.requests import APIS, held_ms, outcome_of, readable
from tests.fakes.fake_cluster.transaction_coordinator import Transaction, TransactionCoordinator


@dataclass(eq=False)
class Topic:
    name: str
    topic_id: uuid.UUID
    partitions: list[PartitionLog]
    configs: dict[str, str] = field(default_factory=dict)


class FakeCluster:
    """See the package. ``logs`` holds every partition, ``transactions`` is the coordinator.

    Args:
        nodes: ids 1 to n. Node n listens on port 9092 + n of 127.0.0.1, as Metadata returns it.
        random: leaders of new topics, topic ids. Nothing else is left to chance.
        transaction_version: what ApiVersions says of the feature; 2 is protocol 2.
        marker_ms: how long a decided transaction waits for its markers; ``markers_ms`` has some, by
            their ids, for which it is another time.
        abort_scan_ms: how often timed-out transactions are looked for.
        versions: API key to highest version, for an older cluster; 0 or less takes the API away.
        broker_configs: what brokers tell of themselves, and of topics that don't set it; None: they
            have no DescribeConfigs.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        random: Random | None = None,
        transaction_version: int = 2,
        marker_ms: int = 2,
        abort_scan_ms: int = 10_000,
        auto_create_topics: bool = False,
        default_replication: int | None = None,
        min_isr: int = 1,
        versions: Mapping[int, int] | None = None,
        broker_configs: Mapping[str, str] | None = None,
    ) -> None:
        self.random = Random(0) if random is None else random
        self.transaction_version = transaction_version
        self.marker_ms = marker_ms
        self.markers_ms: dict[str, int] = {}
        #: Kafka 4.3.1 drops markers for a partition without a leader (``test_dropped_markers.py``),
        #: and for these.
        self.drops_markers = False
        self.markerless: set[TopicPartition] = set()
        self.abort_scan_ms = abort_scan_ms
        self.auto_create_topics = auto_create_topics
        self.default_replication = default_replication or min(3, nodes)
        self.min_isr = min_isr
        self.control = Control()
        self.now = 0
        #: Something is asked, or due, since :meth:`advance` looked.
        self.touched = False
        self.cluster_id = "fake-cluster"
        self.groups = GroupOffsets()
        self.broker_configs = broker_configs
        self.brokers = {node: 9092 + node for node in range(1, nodes + 1)}
        self.down: set[int] = set()
        self.topics: dict[str, Topic] = {}
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.transactions = TransactionCoordinator(
            self._decided, self._append, version=transaction_version
        )
        #: How long a change of a transaction is being written to the coordinator's log.
        self.append_ms: Callable[[], int] = lambda: 0
        #: How long nobody coordinates what a broker did that stops or starts, and how long the next
        #: one loads it then.
        self.failover_ms: Callable[[], tuple[int, int]] = lambda: (0, 0)
        #: Registered, and nobody can reach them; they lead and coordinate nothing.
        self.unreachable: set[int] = set()
        #: The latency of one request's work; also when the next of its connection begins.
        self.work_ms: Callable[[], int] = lambda: 0
        #: A broker went down: its connections are closed already.
        self.on_down: Callable[[int], None] = lambda node: None
        #: A transaction is decided, to be committed or not.
        self.on_decided: Callable[[Transaction, bool], None] = lambda transaction, commit: None
        #: What throttle time every answer tells.
        self.throttle_ms: Callable[[], int] = lambda: 0
        self.trace: Callable[[str], None] = lambda line: None
        self._placed: dict[str, int] = {}
        self.coordinators = Coordinators(self)
        #: When a broker came back last.
        self.up_ms = -NEVER
        #: Those that are cut off, and what they know.
        self.views: dict[int, View] = {}
        self._asked_ms = self.appended_ms = 0
        self._connections: list[FakeConnection] = []
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._due_count = 0
        self._next_scan_ms: int | None = None
        self.ranges = {key: api.VERSIONS for key, api in APIS.items()}
        silent = {ApiKey.DESCRIBE_CONFIGS: 0} if broker_configs is None else {}
        for key, highest in {**silent, **(versions or {})}.items():
            lowest = self.ranges.pop(key)[0]
            if highest > 0:
                self.ranges[key] = (min(lowest, highest), highest)

    # -- for a network --

    @property
    def ports(self) -> dict[int, int]:
        """Port to node id."""
        return {port: node for node, port in self.brokers.items()}

    def connect(self, node_id: int) -> FakeConnection | None:
        """None while that broker is down: connection refused."""
        if node_id in self.down or node_id in self.unreachable:
            return None
        connection = FakeConnection(self, node_id)
        self._connections = [c for c in self._connections if not c.closed and c.alive]
        self._connections.append(connection)
        return connection

    def next_due_ms(self) -> int:
        """When something happens without anybody's asking, or NEVER."""
        own = self._due[0][0] if self._due else NEVER
        return min(own, min((c.next_due_ms for c in self._connections), default=NEVER))

    def advance(self, now: int) -> None:
        """Let everything happen that is due by ``now``."""
        if now < self.now or (now == self.now and not self.touched):
            return
        self.touched = False
        while self._due and self._due[0][0] <= now:
            at, _, event = heapq.heappop(self._due)
            self.now = max(self.now, at)
            event()
        self.now = now
        for connection in self._connections:
            if connection._asked:  # most are idle, and this is asked at every turn
                connection.work(now)

    def at(self, at_ms: int, event: Callable[[], None]) -> None:
        """Have ``event`` happen at that time."""
        self.touched = True
        self._due_count += 1
        heapq.heappush(self._due, (at_ms, self._due_count, event))

    def wall_ms(self) -> int:
        """As FakeClock.wall_ms."""
        return 1_700_000_000_000 + self.now

    # -- topics, leaders, brokers --

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> Topic:
        topic_id = uuid.UUID(int=self.random.getrandbits(128), version=4)
        topic = self.topics[name] = Topic(name, topic_id, [], dict(configs or {}))
        self.add_partitions(name, partitions, replication=replication)
        return topic

    def add_partitions(self, name: str, count: int, *, replication: int | None = None) -> None:
        """Raise the topic's number of partitions to ``count``."""
        topic = self.topics[name]
        configs, nodes = topic.configs, [n for n in self.brokers if n not in self.unreachable]
        first = self.random.randrange(len(nodes))
        for partition in range(len(topic.partitions), count):
            turn = (first + partition) % len(nodes)
            order = nodes[turn:] + nodes[:turn]
            replicas = tuple(order[: replication or self.default_replication])
            log = PartitionLog(
                leader=replicas[0],
                replicas=replicas,
                isr=set(replicas) - self.down,
                min_isr=int(configs.get("min.insync.replicas", self.min_isr)),
                max_message_bytes=int(configs.get("max.message.bytes", 1048588)),
                compacted="compact" in configs.get("cleanup.policy", ""),
                log_append_time=configs.get("message.timestamp.type") == "LogAppendTime",
            )
            topic.partitions.append(log)
            self.logs[TopicPartition(name, partition)] = log
            self._elect(log)

    def delete_topic(self, name: str) -> None:
        for partition in range(len(self.topics.pop(name).partitions)):
            del self.logs[TopicPartition(name, partition)]

    def topic_of_id(self, topic_id: uuid.UUID) -> Topic | None:
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def move_leader(self, tp: TopicPartition, node: int) -> None:
        self.trace(f"{tp} is led by {node}")
        self.logs[tp].move(node)

    def shrink_isr(self, tp: TopicPartition, *nodes: int) -> None:
        """Followers fall behind; :meth:`heal` brings them back."""
        self.logs[tp].isr -= set(nodes)

    def heal(self) -> None:
        """All brokers up, all replicas in sync, no fault left."""
        for node in list(self.views):
            self.rejoin(node)
        for node in list(self.down):
            self.start_broker(node)
        for log in self.logs.values():
            log.isr = set(log.replicas)
            self._elect(log)
        self.control.clear()

    def stop_broker(self, node: int) -> None:
        """Its connections end with what they asked; its partitions move if they can."""
        self.trace(f"broker {node} is down")
        self.rejoin(node)
        with self.coordinators.failing_over():
            self.down.add(node)
        for connection in self._connections:
            if connection.node_id == node:
                connection.hang_up()
        for log in self.logs.values():
            if log.isr != {node}:  # the last one in sync stays so: no unclean election
                log.isr.discard(node)
            self._elect(log)
        self.on_down(node)

    def start_broker(self, node: int) -> None:
        self.trace(f"broker {node} is up")
        self.up_ms = self.now
        with self.coordinators.failing_over():
            self.down.discard(node)
        for log in self.logs.values():
            if node in log.replicas:
                log.isr.add(node)
            self._elect(log)

    def restart_broker(self, node: int) -> None:
        """Down and up again, cleanly: partitions that it alone has keep no more than a snapshot."""
        self.stop_broker(node)
        for log in self.logs.values():
            if log.replicas == (node,):
                log.restart()
        self.start_broker(node)

    def expire_producer(self, tp: TopicPartition, producer_id: int) -> None:
        self.logs[tp].forget(producer_id)

    def _elect(self, log: PartitionLog) -> None:
        """A leader that is up and in sync; -1 when there is none."""
        there = log.isr - self.down - self.views.keys()
        if log.leader in there:
            return
        able = [node for node in log.replicas if node in there]
        leader = able[0] if able else -1
        if leader != log.leader:
            log.move(leader)

    def cut_off(self, node: int) -> None:
        """It loses controller and peers, and does not know: it goes on answering clients with what
        it knew, until :meth:`rejoin`. Others lead and coordinate in its place; what it should
        write, it refuses.
        """
        if node in self.views or node in self.down:
            return
        self.trace(f"broker {node} is cut off")
        view = View(
            {tp: log.frozen() for tp, log in self.logs.items()},
            {
                tid: copy(t)
                for tid, t in self.transactions.transactions.items()
                if self.coordinators.refused_by(node, tid) is ErrorCode.NONE
            },
        )
        with self.coordinators.failing_over():
            self.views[node] = view
        for log in self.logs.values():
            if log.isr != {node}:
                log.isr.discard(node)
            self._elect(log)

    def rejoin(self, node: int) -> None:
        """A broker that was cut off learns what happened meanwhile."""
        if node not in self.views:
            return
        self.trace(f"broker {node} is back")
        with self.coordinators.failing_over():
            del self.views[node]
        for log in self.logs.values():
            if node in log.replicas:
                log.isr.add(node)
            self._elect(log)

    def is_cut_off(self, node: int) -> bool:
        return node in self.views

    def log_at(self, node: int, tp: TopicPartition) -> PartitionLog | None:
        """The partition as ``node`` knows it."""
        view = self.views.get(node)
        return self.logs.get(tp) if view is None else view.logs.get(tp)

    @property
    def registered(self) -> list[int]:
        """The brokers in Metadata."""
        return [node for node in self.brokers if node not in self.down]

    # -- transactions --

    def coordinator_of(self, key: str) -> int:
        """The node that answers for a transactional id, or is about to; or -1."""
        out = self.down | self.unreachable | self.views.keys()
        up = [node for node in self.brokers if node not in out]
        chosen = self._placed.get(key)
        if chosen is not None and chosen in up:
            return chosen
        if not up:
            return -1
        nodes = [node for node in self.brokers if node not in self.unreachable]
        first = zlib.crc32(key.encode()) % len(nodes)
        return next(n for n in nodes[first:] + nodes[:first] if n in up)

    def move_coordinator(
        self, key: str, node: int, *, resigned_ms: int = 0, loading_ms: int = 0
    ) -> None:
        """``node`` coordinates ``key`` from now on: after ``resigned_ms`` without one, and it has
        loaded it for ``loading_ms``.
        """
        before = self.coordinator_of(key)
        self._placed[key] = node
        self.transactions.epoch += 1
        self.coordinators.begin_move(key, before, (resigned_ms, loading_ms))

    def open_for_ms(self, transaction: Transaction) -> int:
        """(Very long, when it never began.)"""
        begun = transaction.start_ms
        return self.wall_ms() if begun < 0 else self.now - begun

    def _append(self, change: Callable[[], None]) -> bool:
        took = self.append_ms()
        if not took:
            change()
            return False
        # From when the request was due: time may have jumped over that, and its answer must not
        # come before the change.
        self.appended_ms = self.now + took - self._asked_ms
        self.at(self.now + took, change)
        return True

    def schedule_abort_scan(self) -> None:
        """A transaction is open: look for late ones until none is."""
        if self._next_scan_ms is None:
            self._next_scan_ms = self.now + self.abort_scan_ms
            self.at(self._next_scan_ms, self._scan)

    def _scan(self) -> None:
        self._next_scan_ms = None
        self.transactions.abort_timed_out(
            self.now, known=lambda key: self.coordinators.moving(key) is None
        )
        if any(t.state.value == "Ongoing" for t in self.transactions.transactions.values()):
            self.schedule_abort_scan()

    def _decided(self, transaction: Transaction, commit: bool, now: int) -> None:
        epoch, pid = transaction.epoch, transaction.producer_id
        self.trace(f"{transaction.transactional_id} is decided: {commit=} {pid=} {epoch=}")
        self.on_decided(transaction, commit)
        marked_ms = now + self.markers_ms.get(transaction.transactional_id, self.marker_ms)
        self.at(marked_ms, lambda: self._mark(transaction, commit, pid, epoch))

    def _mark(self, transaction: Transaction, commit: bool, pid: int, epoch: int) -> None:
        """Write the markers that are missing; those whose leader is down are tried again, and all
        while they have no coordinator.
        """
        if self.coordinators.moving(transaction.transactional_id) is not None:
            self.at(self.now + 20, lambda: self._mark(transaction, commit, pid, epoch))
            return
        for tp in sorted(transaction.partitions):
            log = self.logs.get(tp)
            dropped = tp in self.markerless or (
                self.drops_markers and log is not None and log.leader < 0
            )
            if log is not None and not dropped:
                if log.leader < 0 or len(log.isr) < log.needed_isr:
                    continue
                try:
                    log.end_transaction(
                        pid,
                        epoch,
                        commit=commit,
                        coordinator_epoch=self.transactions.epoch,
                        timestamp=self.wall_ms(),
                    )
                except RefusedError as refused:
                    self.trace(f"{tp} refuses a marker: {refused}")
            transaction.partitions.discard(tp)
            if tp == OFFSETS_PARTITION:
                self.groups.end(pid, commit=commit)
        if transaction.partitions:
            self.at(self.now + 100, lambda: self._mark(transaction, commit, pid, epoch))
        else:
            self.transactions.complete(transaction)

    # -- requests --

    def holds(self, node: int, frame: bytes) -> int:
        """So long a fault keeps this request from being worked on."""
        return held_ms(self, node, frame)

    def work(self, node: int, frame: bytes, now: int) -> Outcome:
        """Work on one request of a connection to ``node``."""
        self.now = max(self.now, now)
        self._asked_ms = now
        request = readable(self, node, frame)
        if isinstance(request, Outcome):
            return request
        faults = self.control.met_by(request, node)
        for fault in faults:
            self.trace(f"{fault.kind.value} for {request}")
        return self._work(request, node, {fault.kind: fault for fault in faults})

    def _work(self, request: Request, node: int, faults: dict[Kind, Fault]) -> Outcome:
        self.appended_ms = 0
        return outcome_of(self, request, node, faults)


@dataclass(frozen=True, slots=True)
class View:
    """What a broker knew when it was cut off."""

    logs: dict[TopicPartition, PartitionLog]
    transactions: dict[str, Transaction]
