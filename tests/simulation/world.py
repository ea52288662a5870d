"""Runs the real producer over the simulated network, with a writer that follows a script.

One such run is a *life*. This module creates the components, performs the writer's steps, and
records the answers that the writer gets (:class:`Ledger`). ``invariants.py`` has the conditions
that must hold after a life.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.network.client.client_factory import new_network_client
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from spark_kafka_sink.producer.producer_record import ProducerRecord, RecordMetadata
from spark_kafka_sink.producer.send.record_future import RecordFuture
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records.record_columns import RecordColumns
from tests.fakes.simulated_network import NetworkFaults, SimulatedNetwork
from tests.simulation.life import Action, AddPartitions, Attempt, Close, Flush, Life, Pause, Send
from tests.simulation.scheduler import START_MS, Scheduler, TurnLock
from tests.simulation.seeded_cluster import SeededCluster

#: The type of locks. A latch is one, too, and is named ``_gate``.
Lock = type(threading.Lock())
T = TypeVar("T")
_FAR_AWAY_MS = 30 * 86_400_000


@dataclass
class Row:
    """One row that was handed to the producer."""

    topic: str
    #: None: the producer chose.
    partition: int | None
    key: bytes | None
    padding: bytes
    attempt: int
    #: send_columns returned; the row is not lost on the way into the producer.
    taken: bool = False
    #: A broker refuses it, and it never comes into a log.
    invalid: bool = False
    timestamp: int | None = None
    #: When ``send`` returned, when its callback was called, and the partition that this had.
    sent_ms: int = 0
    told_ms: int = 0
    placed: int = -1
    #: ``send`` gave a future that had failed.
    refused: bool = False
    #: Of a row that went by ``send``: how often its callback was called, and with what.
    called: int = 0
    error: KafkaError | None = None


@dataclass
class Ledger:
    """What the writer handed over and what it was answered."""

    rows: list[Row] = field(default_factory=list)
    reports: list[ProduceReport] = field(default_factory=list)
    #: Attempts that ended well.
    finished: set[int] = field(default_factory=set)
    #: Transactions that were aborted, as the producer said.
    aborted: set[int] = field(default_factory=set)
    #: What each call raised.
    errors: list[KafkaError] = field(default_factory=list)
    attempt: int = 0
    #: Of rows that went by ``send``, by row number.
    futures: dict[int, RecordFuture] = field(default_factory=dict)
    #: Row numbers in the order in which their callbacks told success, by partition.
    completed: dict[TopicPartition, list[int]] = field(default_factory=lambda: defaultdict(list))


class World:
    """``live`` is called once."""

    def __init__(
        self, life: Life, *, mutate: Callable[[KafkaProducer], None] = lambda _: None
    ) -> None:
        self.life = life
        self.ledger = Ledger()
        self.trace: list[str] = []
        fate = random.Random(f"world {life.seed}")
        self.scheduler = Scheduler(random.Random(f"turns {life.seed}"), life.preemption)
        self.scheduler.slow_writer = life.slow_writer
        topics = {t: n for t, n in life.topics.items() if t not in life.late_topics}
        self.cluster = SeededCluster(
            topics,
            fate,
            life.cluster,
            too_large=life.too_large,
            transaction_version=life.transaction_version,
            versions=life.versions,
            trace=self._note,
        )
        if life.sick is not None:
            self.cluster.sick = replace(
                life.sick, from_ms=START_MS + life.sick.from_ms, to_ms=START_MS + life.sick.to_ms
            )
        self.network = SimulatedNetwork(
            self.scheduler, self.cluster, self.cluster.ports, fate, life.network, trace=self._note
        )
        self.cluster.on_down = self.network.cut_all
        self.timeline = Timeline(self.scheduler)
        self.scheduler.sources += [self.timeline, self.network]
        for topic, at in life.late_topics.items():
            self.timeline.after(at, lambda t=topic: self._add_partitions(t, life.topics[t]))
        if life.heals_after_ms is not None:
            self.timeline.after(life.heals_after_ms, self.heal)
        self.fate = random.Random(f"rows {life.seed}")
        self._ills = random.Random(f"invalid rows {life.seed}")
        self._mutate = mutate
        self.producer: KafkaProducer | None = None
        self.ended_ms = START_MS

    def _note(self, what: str) -> None:
        self.trace.append(f"{self.scheduler.now - START_MS:>8} {what}")

    def heal(self) -> None:
        self._note("the world heals")
        self.cluster.heal()
        self.scheduler.lost_ms = (1, 2, 7)
        self.network.faults = NetworkFaults(latency_ms=self.life.network.latency_ms)

    def _add_partitions(self, topic: str, count: int) -> None:
        self._note(f"{topic} has {count} partitions")
        self.cluster.have(topic, count)

    @property
    def fired(self) -> Counter[str]:
        return self.network.fired + self.cluster.fired

    # -- the writer --

    def live(self) -> None:
        """From the first action to the producer's end."""
        # The product's jitters and starting points come from the module's own generator.
        before = random.getstate()
        random.seed(self.life.seed)
        try:
            self.scheduler.run(self._write)
        finally:
            self.ended_ms = self.scheduler.now
            random.setstate(before)

    def _write(self) -> None:
        config = parse_producer_config(self.life.options)
        producer = KafkaProducer(
            config,
            clock=self.scheduler,
            new_client=lambda c, m, k: new_network_client(c, m, k, selector=self.network),
            start_thread=self.scheduler.start,
        )
        self.producer = producer
        accumulator = producer._accumulator
        turn_lock = TurnLock(self.scheduler, accumulator.lock)
        accumulator.lock = turn_lock  # type: ignore[assignment]  # it is only entered
        locks = [lock for name, lock in _owned(producer, Lock, set()) if name != "_gate"]
        self.scheduler.locked = lambda: any(lock.locked() for lock in locks)
        for _, generator in _owned(producer, random.Random, set()):
            generator.seed(self.life.seed)
        self._mutate(producer)
        self._begin(producer, first=True)
        for action in self.life.actions:
            if producer._lifecycle.closed:
                break
            self._note(f"writer: {action}")
            try:
                self._do(producer, action)
            except KafkaError as error:
                self._note(f"writer: {type(error).__name__}: {error.message}")
                self.ledger.errors.append(error)
                self._give_up(producer)
        self._note("writer: done")

    def _begin(self, producer: KafkaProducer, *, first: bool = False) -> None:
        if not self.life.transactional:
            producer.start_attempt()
            return
        try:
            if first:
                producer.init_transactions()
            producer.begin_transaction()
        except KafkaError as error:
            self._note(f"writer: {type(error).__name__}: {error.message}")
            self.ledger.errors.append(error)
            producer.close(0)

    def _give_up(self, producer: KafkaProducer) -> None:
        """The attempt is lost. A transaction may be aborted and the next begun; else all ends."""
        ledger = self.ledger
        if self.life.transactional and self.fate.random() < 0.7:
            try:
                producer.abort_transaction()
                self._note("writer: aborted what had failed")
                ledger.aborted.add(ledger.attempt)
                ledger.attempt += 1
                self._begin(producer)
            except KafkaError as error:
                self._note(f"writer: {type(error).__name__}: {error.message}")
            else:
                return
        producer.close(self.fate.choice((0, 0, 1_000)))

    def _end_transaction(self, producer: KafkaProducer, *, aborts: bool) -> None:
        ledger = self.ledger
        if aborts:
            producer.abort_transaction()
            ledger.aborted.add(ledger.attempt)
        else:
            producer.commit_transaction()
            ledger.finished.add(ledger.attempt)
        ledger.attempt += 1
        self._begin(producer)

    def settle(self) -> None:
        """Let the brokers end what the producer left behind: late requests, open transactions."""
        self.heal()
        for _ in range(40):
            self.scheduler.now += 30_000
            self.network.happen(self.scheduler.now)

    def _do(self, producer: KafkaProducer, action: Action) -> None:
        ledger, scheduler = self.ledger, self.scheduler
        if isinstance(action, Send):
            rows = self._rows(action)
            if action.singly:
                for row in rows:
                    self._send(producer, row)
            else:
                first = len(ledger.rows)
                ledger.rows += rows
                producer.send_columns(_columns(rows, action, first))
                for row in rows:
                    row.taken = True
        elif isinstance(action, Pause):
            if action.silent:
                scheduler.sleep(action.ms)
            else:
                with producer.waiting_for_input():
                    scheduler.sleep(action.ms)
        elif isinstance(action, Flush):
            producer.flush()
        elif isinstance(action, Attempt) and self.life.transactional:
            self._end_transaction(producer, aborts=action.aborts)
        elif isinstance(action, Attempt):
            ledger.reports.append(producer.finish_attempt())
            ledger.finished.add(ledger.attempt)
            ledger.attempt += 1
            if action.park_ms is not None:
                producer.park()
                scheduler.sleep(action.park_ms)
            producer.start_attempt()
        elif isinstance(action, AddPartitions):
            self._add_partitions(action.topic, action.count)
        else:
            assert isinstance(action, Close)
            producer.close(action.timeout_ms)

    def _send(self, producer: KafkaProducer, row: Row) -> None:
        number = len(self.ledger.rows)
        self.ledger.rows.append(row)

        def called(metadata: RecordMetadata, error: KafkaError | None) -> None:
            row.called += 1
            row.error = error
            row.told_ms, row.placed = self.scheduler.now, metadata.partition
            if error is None:
                tp = TopicPartition(metadata.topic, metadata.partition)
                self.ledger.completed[tp].append(number)

        value = b"%d:" % number + row.padding
        record = ProducerRecord(row.topic, value, row.key, row.partition, row.timestamp)
        future = self.ledger.futures[number] = producer.send(record, called)
        row.sent_ms = self.scheduler.now
        # A topic that stays unknown, memory that stays used up: the future says so at once.
        row.refused = future.done() and future.exception(0) is not None
        row.taken = not row.refused

    def _rows(self, send: Send) -> list[Row]:
        fate = self.fate
        rows = []
        for _ in range(send.rows):
            topic = fate.choice(send.topics)
            partition = fate.randrange(self.life.topics[topic]) if send.explicit else None
            key = b"k%d" % fate.randrange(5) if send.keyed else None
            # Half of it can be compressed.
            padding = fate.randbytes(send.size // 2) + b"x" * (send.size - send.size // 2)
            rows.append(Row(topic, partition, key, padding, self.ledger.attempt))
            if self.life.invalid and self._ills.random() < self.life.invalid:
                self._make_invalid(rows[-1])
        return rows

    def _make_invalid(self, row: Row) -> None:
        """Too large for its topic, or of a day that is too far away."""
        row.invalid = True
        limit = self.life.too_large.get(row.topic)
        if limit is None or limit + 200 > int(self.life.options["max.request.size"]):
            row.timestamp = self.scheduler.wall_ms() + _FAR_AWAY_MS
        else:
            row.padding = self._ills.randbytes(limit)

    # -- what came of it --

    def outcomes(self) -> Counter[str]:
        ledger = self.ledger
        found: Counter[str] = Counter()
        found["= rows"] = len(ledger.rows)
        found["= rows acknowledged"] = sum(report.rows for report in ledger.reports)
        found["= rows sent singly"] = len(ledger.futures)
        found["= invalid rows"] = sum(row.invalid for row in ledger.rows)
        found["= rows sent singly that failed"] = sum(row.error is not None for row in ledger.rows)
        what = "transactions" if self.life.transactional else "attempts"
        found[f"= {what} finished"] = len(ledger.finished)
        found["= transactions aborted"] = len(ledger.aborted)
        for error in ledger.errors:
            cause = error.__cause__
            name = type(error).__name__ + ("" if cause is None else f" of {type(cause).__name__}")
            found[f"= lives ended by {name}"] += 1
        for report in ledger.reports:
            found["= batches sent again"] += report.retries
            found["= batches split"] += report.splits
            found["= duplicates"] += report.duplicates
        return found

    def log_of(self, tp: TopicPartition, *, committed: bool = False) -> dict[int, int]:
        """Row numbers by offset, in the order of offsets; ``committed``: as read_committed."""
        records = self.cluster.logs[tp].records(committed=committed)
        return {r.offset: int((r.value or b"").partition(b":")[0]) for r in records}


def _columns(rows: list[Row], send: Send, first: int) -> RecordColumns:
    values = [b"%d:" % (first + i) + row.padding for i, row in enumerate(rows)]
    names = pa.array([row.topic for row in rows]).dictionary_encode()
    return RecordColumns(
        rows=len(rows),
        topic=names if len(send.topics) > 1 else rows[0].topic,
        partition=np.array([r.partition for r in rows], np.int32) if send.explicit else None,
        key=pa.array([row.key for row in rows], pa.binary()) if send.keyed else None,
        value=pa.array(values, pa.binary()),
    )


class Timeline:
    """Things that happen to the world at a time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._events: list[tuple[int, Callable[[], None]]] = []

    def after(self, ms: int, event: Callable[[], None]) -> None:
        self._events.append((self._scheduler.now + ms, event))
        self._events.sort(key=lambda e: e[0])

    def next_due_ms(self) -> int:
        return self._events[0][0] if self._events else NEVER

    def happen(self, now: int) -> None:
        while self._events and self._events[0][0] <= now:
            self._events.pop(0)[1]()


def _owned(thing: object, kind: type[T], seen: set[int]) -> Iterator[tuple[str, T]]:
    """Every attribute of that kind in the product's objects that ``thing`` owns."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    names = {name for cls in type(thing).__mro__ for name in getattr(cls, "__slots__", ())}
    names |= set(getattr(thing, "__dict__", ()))
    for name in sorted(names):
        value = getattr(thing, name, None)
        if isinstance(value, kind):
            yield name, value
        elif type(value).__module__.startswith("spark_kafka_sink"):
            yield from _owned(value, kind, seen)
