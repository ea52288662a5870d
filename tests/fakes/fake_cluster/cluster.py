"""The cluster: brokers, topics, what is due later, and the way of a request to its API."""

from __future__ import annotations

import heapq
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from random import Random
from typing import Any

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.fakes.fake_cluster import (
    api_add_offsets_to_txn,
    api_add_partitions_to_txn,
    api_api_versions,
    api_create_topics,
    api_describe_cluster,
    api_describe_producers,
    api_describe_transactions,
    api_end_txn,
    api_fetch,
    api_find_coordinator,
    api_init_producer_id,
    api_list_offsets,
    api_list_transactions,
    api_metadata,
    api_offset_fetch,
    api_produce,
    api_txn_offset_commit,
)
from tests.fakes.fake_cluster.batch_checks import RefusedError
from tests.fakes.fake_cluster.codec import (
    Request,
    UnreadableError,
    peek,
    read_request,
    write_answer,
)
from tests.fakes.fake_cluster.connection import FakeConnection
from tests.fakes.fake_cluster.control import Control, Fault, Kind
from tests.fakes.fake_cluster.group_offsets import OFFSETS_PARTITION, GroupOffsets
from tests.fakes.fake_cluster.partition_log import PartitionLog
from tests.fakes.fake_cluster.transaction_coordinator import Transaction, TransactionCoordinator

_APIS: Mapping[int, Any] = {
    api.KEY: api
    for api in (
        api_add_offsets_to_txn,
        api_add_partitions_to_txn,
        api_api_versions,
        api_create_topics,
        api_describe_cluster,
        api_describe_producers,
        api_describe_transactions,
        api_end_txn,
        api_fetch,
        api_find_coordinator,
        api_init_producer_id,
        api_list_offsets,
        api_list_transactions,
        api_metadata,
        api_offset_fetch,
        api_produce,
        api_txn_offset_commit,
    )
}


@dataclass(slots=True)
class Outcome:
    """What becomes of a request: bytes, nothing, or the connection's end."""

    answer: bytes | None = None
    delay_ms: int = 0
    closes: bool = False


@dataclass(eq=False)
class Topic:
    name: str
    topic_id: uuid.UUID
    partitions: list[PartitionLog]
    configs: dict[str, str] = field(default_factory=dict)


class FakeCluster:
    """See the package. ``logs`` holds every partition, ``transactions`` is the coordinator.

    Args:
        nodes: ids 1 to n. Node n listens on port 9092 + n of 127.0.0.1, as Metadata tells it.
        random: leaders of new topics, topic ids. Nothing else is left to chance.
        transaction_version: what ApiVersions says of the feature; 2 is protocol 2.
        marker_ms: how long a decided transaction waits for its markers.
        abort_scan_ms: how often timed-out transactions are looked for.
        versions: API key to highest version, for an older cluster; 0 or less takes the API away.
        two_phase_commit: transaction.two.phase.commit.enable under unstable.api.versions.enable;
            None: without the latter, so no InitProducerId 6.
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
        two_phase_commit: bool | None = None,
    ) -> None:
        self.random = Random(0) if random is None else random
        self.transaction_version = transaction_version
        self.marker_ms = marker_ms
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
        self.two_phase_commit = two_phase_commit
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
        self._coordinators: dict[str, int] = {}
        self._moves: dict[str, Move] = {}
        #: When the last move of a coordinator is over, and when a broker came back last.
        self.moved_ms = self.up_ms = -NEVER
        self._cut_off: dict[int, View] = {}
        self._asked_ms = self._appended_ms = 0
        self._connections: list[FakeConnection] = []
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._due_count = 0
        self._next_scan_ms: int | None = None
        self.ranges = {key: api.VERSIONS for key, api in _APIS.items()}
        stable = {api_init_producer_id.KEY: 5} if two_phase_commit is None else {}
        for key, highest in {**stable, **(versions or {})}.items():
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
        for node in list(self._cut_off):
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
        with self._failing_over():
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
        with self._failing_over():
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
        there = log.isr - self.down - self._cut_off.keys()
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
        if node in self._cut_off or node in self.down:
            return
        self.trace(f"broker {node} is cut off")
        view = View(
            {tp: log.frozen() for tp, log in self.logs.items()},
            {
                tid: copy(t)
                for tid, t in self.transactions.transactions.items()
                if self.refused_by(node, tid) is ErrorCode.NONE
            },
        )
        with self._failing_over():
            self._cut_off[node] = view
        for log in self.logs.values():
            if log.isr != {node}:
                log.isr.discard(node)
            self._elect(log)

    def rejoin(self, node: int) -> None:
        """A broker that was cut off learns what happened meanwhile."""
        if node not in self._cut_off:
            return
        self.trace(f"broker {node} is back")
        with self._failing_over():
            del self._cut_off[node]
        for log in self.logs.values():
            if node in log.replicas:
                log.isr.add(node)
            self._elect(log)

    def is_cut_off(self, node: int) -> bool:
        return node in self._cut_off

    def log_at(self, node: int, tp: TopicPartition) -> PartitionLog | None:
        """The partition as ``node`` knows it."""
        view = self._cut_off.get(node)
        return self.logs.get(tp) if view is None else view.logs.get(tp)

    @property
    def registered(self) -> list[int]:
        """The brokers that Metadata tells of."""
        return [node for node in self.brokers if node not in self.down]

    # -- transactions --

    def coordinator_of(self, key: str) -> int:
        """The node that answers for a transactional id, or is about to; or -1."""
        out = self.down | self.unreachable | self._cut_off.keys()
        up = [node for node in self.brokers if node not in out]
        chosen = self._coordinators.get(key)
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
        """``node`` coordinates ``key`` from now on: after nobody did for ``resigned_ms``, and it
        has loaded it for ``loading_ms``.
        """
        before = self.coordinator_of(key)
        self._coordinators[key] = node
        self.transactions.epoch += 1
        self._begin_move(key, before, (resigned_ms, loading_ms))

    @contextmanager
    def _failing_over(self) -> Iterator[None]:
        """Ids that have another coordinator afterwards move, and that takes its time."""
        before = {tid: self.coordinator_of(tid) for tid in self.transactions.transactions}
        yield
        for tid, node in before.items():
            if self.coordinator_of(tid) != node:
                self._begin_move(tid, node, self.failover_ms())

    def _begin_move(self, key: str, before: int, took: tuple[int, int]) -> None:
        resigned, loading = took
        self.moved_ms = self.now + resigned + loading
        if resigned or loading:
            self.trace(f"the coordinator of {key} moves: {resigned} + {loading} ms")
            move = Move(before, self.now + resigned, self.now + resigned + loading)
            self._moves[key] = move

    def _moving(self, key: str) -> Move | None:
        move = self._moves.get(key)
        if move is not None and move.loaded_ms <= self.now:
            del self._moves[key]
            return None
        return move

    def coordinator_seen(self, node: int, key: str) -> int:
        """What ``node`` answers to FindCoordinator: its view may be old for a moment; -1: none."""
        view = self._cut_off.get(node)
        if view is not None and key in view.transactions:
            return node
        move = self._moving(key)
        found = self.coordinator_of(key)
        if move is None or move.resigned_ms <= self.now:
            return found
        return (move.before, -1, found)[node % 3]

    def coordinates(self, node: int, key: str) -> bool:
        return self.refused_by(node, key) is ErrorCode.NONE

    def refused_by(self, node: int, key: str, *, writes: bool = False) -> ErrorCode:
        """What ``node`` says to a question about that id, before it looks at it."""
        view = self._cut_off.get(node)
        if not key:
            return ErrorCode.NONE
        if view is not None:
            if key not in view.transactions:
                return ErrorCode.NOT_COORDINATOR
            # Its log is not replicated any more: a write to it ends with its time.
            return ErrorCode.COORDINATOR_NOT_AVAILABLE if writes else ErrorCode.NONE
        move = self._moving(key)
        if self.coordinator_of(key) != node or (move is not None and self.now < move.resigned_ms):
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if move is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def known_at(self, node: int) -> list[Transaction]:
        """The transactional ids that ``node`` coordinates, as it knows them."""
        view = self._cut_off.get(node)
        if view is not None:
            return list(view.transactions.values())
        return [t for i, t in self.transactions.transactions.items() if self.coordinates(node, i)]

    def is_loading(self, node: int) -> bool:
        """``node`` loads transactional ids, whichever."""
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return node not in self._cut_off and any(
            self.refused_by(node, key) is loading for key in list(self._moves)
        )

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
        self._appended_ms = self.now + took - self._asked_ms
        self.at(self.now + took, change)
        return True

    def schedule_abort_scan(self) -> None:
        """A transaction is open: look for late ones until none is."""
        if self._next_scan_ms is None:
            self._next_scan_ms = self.now + self.abort_scan_ms
            self.at(self._next_scan_ms, self._scan)

    def _scan(self) -> None:
        self._next_scan_ms = None
        self.transactions.abort_timed_out(self.now, known=lambda key: self._moving(key) is None)
        if any(t.state.value == "Ongoing" for t in self.transactions.transactions.values()):
            self.schedule_abort_scan()

    def _decided(self, transaction: Transaction, commit: bool, now: int) -> None:
        epoch, pid = transaction.epoch, transaction.producer_id
        self.trace(f"{transaction.transactional_id} is decided: {commit=} {pid=} {epoch=}")
        self.on_decided(transaction, commit)
        self.at(now + self.marker_ms, lambda: self._mark(transaction, commit, pid, epoch))

    def _mark(self, transaction: Transaction, commit: bool, pid: int, epoch: int) -> None:
        """Write the markers that are missing; those whose leader is down are tried again, and all
        while nobody coordinates them.
        """
        if self._moving(transaction.transactional_id) is not None:
            self.at(self.now + 20, lambda: self._mark(transaction, commit, pid, epoch))
            return
        for tp in sorted(transaction.partitions):
            log = self.logs.get(tp)
            if log is not None:
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
        if not self.control.may_hold:
            return 0
        try:
            request = read_request(frame)
        except UnreadableError:
            return 0
        fault = self.control.held_by(request, node)
        if fault is None:
            return 0
        self.trace(f"{request} is held for {fault.delay_ms} ms")
        return fault.delay_ms

    def work(self, node: int, frame: bytes, now: int) -> Outcome:
        """Work on one request of a connection to ``node``."""
        self.now = max(self.now, now)
        self._asked_ms = now
        try:
            api, version, _ = peek(frame)
            lowest, highest = self.ranges.get(api, (0, -1))
            if not lowest <= version <= highest:
                if api == api_api_versions.KEY:
                    return Outcome(api_api_versions.unsupported(self, frame))
                return Outcome(closes=True)
            request = read_request(frame)
        except UnreadableError as e:
            self.trace(f"node {node} can't read a request: {e}")
            return Outcome(closes=True)
        faults = self.control.met_by(request, node)
        for fault in faults:
            self.trace(f"{fault.kind.value} for {request}")
        return self._work(request, node, {fault.kind: fault for fault in faults})

    def _work(self, request: Request, node: int, faults: dict[Kind, Fault]) -> Outcome:
        delay = faults[Kind.DELAY].delay_ms if Kind.DELAY in faults else 0
        self._appended_ms = 0
        lost = faults.get(Kind.CUT) or faults.get(Kind.DROP)
        closes = Kind.CUT in faults
        if lost is not None and not lost.processed:
            return Outcome(None, delay, closes)
        body = self._answer(request, node, faults.get(Kind.ANSWER))
        delay += self._appended_ms
        if lost is not None:
            return Outcome(None, delay, closes)
        if isinstance(body, Closed):
            return Outcome(None, delay, closes=True)
        if body is None:
            return Outcome(None, delay)
        answer = body if isinstance(body, bytes) else write_answer(request, body)
        return Outcome(answer, delay)

    def _answer(self, request: Request, node: int, fault: Fault | None) -> Any:
        api = _APIS[request.api]
        if fault is None or (
            request.api == api_produce.KEY and isinstance(fault.answer, ErrorCode)
        ):
            if request.api == api_produce.KEY:
                return api_produce.handle(self, node, request, fault)
            return api.handle(self, node, request)
        if fault.processed:
            api.handle(self, node, request)
        if isinstance(fault.answer, ErrorCode):
            return api.refuse(self, request, fault.answer)
        return fault.answer(request) if callable(fault.answer) else fault.answer


@dataclass(frozen=True, slots=True)
class Move:
    """A transactional id changes its coordinator: nobody's until ``resigned_ms``, then loaded."""

    before: int
    resigned_ms: int
    loaded_ms: int


@dataclass(frozen=True, slots=True)
class View:
    """What a broker knew when it was cut off."""

    logs: dict[TopicPartition, PartitionLog]
    transactions: dict[str, Transaction]


class Closed:
    """A handler's answer that hangs up."""
