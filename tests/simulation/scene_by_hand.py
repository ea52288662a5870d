"""The part of a scene that needs no query: clients, drivers and transactions that a test makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.admin.transaction_description import TransactionDescription
from spark_kafka_sink.base.clock import NEVER, Clock
from spark_kafka_sink.base.errors import ErrorCode, KafkaError
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.operations.operator import Operator
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER, Control, Fault
from tests.fakes.fake_cluster.transaction_coordinator import State, Transaction
from tests.fakes.producer_world import columns
from tests.simulation.processes import Process
from tests.simulation.scene_requests import WatchedRequests
from tests.simulation.scheduler import Task
from tests.simulation.spark_tasks import new_clients, producer_of
from tests.simulation.spark_world import (
    LOG_TOPIC,
    PREFIX,
    TIMEOUT_MS,
    TOPIC,
    Run,
    SparkLife,
    SparkWorld,
)

#: How long a scene waits for the markers of a transaction that has ended.
_MARKERS_MS = 200


class SceneByHand(SparkWorld):
    """A test takes a :class:`Scene`, which adds Spark's way of doing the same."""

    def __init__(self, life: SparkLife) -> None:
        super().__init__(life)
        #: Of the configuration of each producer, driver and client that is made from now on.
        self.changes: dict[str, Any] = {}

    @property
    def control(self) -> Control:
        return self.cluster.control

    def wait(self, until: Callable[[], object]) -> None:
        self.scheduler.block(lambda: bool(until()), NEVER)

    def soon(self, milliseconds: int = 60_000) -> int:
        """A deadline."""
        return self.scheduler.now + milliseconds

    def after(self, milliseconds: int, event: Callable[[], None]) -> None:
        self.cluster.at(self.scheduler.now + milliseconds, event)

    def config(self, client_id: str) -> ProducerConfig:
        config = parse_producer_config(
            {
                "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in self.cluster.ports),
                "client.id": client_id,
                "request.timeout.ms": "5000",
                "delivery.timeout.ms": "20000",
                "max.block.ms": "20000",
                "transaction.timeout.ms": str(TIMEOUT_MS),
                "buffer.memory": "1000000",
                "batch.size": "200",
            }
        )
        return replace(config, **self.changes)

    # -- clients, each in a process of its own --

    def client(self, clock: Clock | None = None, **changes: Any) -> TransactionClient:
        return TransactionClient(
            replace(self.config("client"), **changes),
            clock=clock or self.scheduler,
            new_client=new_clients(self.machine.process("client")),
        )

    def run(self, name: str) -> Run:
        """A start of the query, in a driver process of its own."""
        return Run(name, self.machine.process("driver"))

    def driver(self, run: Run | None = None) -> ExactlyOnceDriver:
        """The driver's side of exactly-once, in the process of ``run`` or in one of its own."""
        return ExactlyOnceDriver(
            self.config("driver"),
            LOG_TOPIC,
            clock=self.scheduler,
            new_client=new_clients((run or self.run("driver")).process),
        )

    def producer(self, transactional_id: str, **options: Any) -> KafkaProducer:
        config = replace(self.config("task"), transactional_id=transactional_id, **options)
        return producer_of(self.machine.process("worker"), config)

    @contextmanager
    def by_hand(self, timeout_ms: int = TIMEOUT_MS, by: Run | None = None) -> Iterator[Operator]:
        """``kprod txn``, whose transaction.timeout.ms is ``timeout_ms``."""
        config = replace(self.config("cli"), transaction_timeout_ms=timeout_ms)
        client = new_clients((by or self.run("operator")).process)
        with TransactionClient(config, clock=self.scheduler, new_client=client) as found:
            yield Operator(CommitLog(found, LOG_TOPIC), found)

    def commit_by_hand(self, timeout_ms: int = TIMEOUT_MS, by: Run | None = None) -> CommitState:
        """``kprod txn commit``."""
        with self.by_hand(timeout_ms, by) as commands:
            return commands.commit(commands.plan_commit(PREFIX)).state

    # -- transactions --

    def open(self, transactional_id: str, *values: str) -> KafkaProducer:
        """A task's transaction that is open, with ``values`` acknowledged."""
        producer = self.producer(transactional_id)
        producer.init_transactions()
        producer.begin_transaction()
        producer.start_attempt()
        producer.send_columns(columns(*values))
        assert producer.finish_attempt().rows == len(values)
        return producer

    def prepared(self, transactional_id: str, *values: str) -> PreparedTransaction:
        return self.open(transactional_id, *values).prepare()

    def begin_foreign(self, transactional_id: str) -> None:
        """A transaction of somebody who is in the middle of it."""
        coordinator = self.cluster.transactions
        error, pid, epoch = coordinator.initialize(
            transactional_id, TIMEOUT_MS, None, self.cluster.now
        )
        assert error.name == "NONE"
        tp = next(tp for tp in self.cluster.logs if tp.topic == TOPIC)
        coordinator.add_partitions(
            transactional_id, (pid, epoch), [tp], self.cluster.now, version=2
        )

    def end_elsewhere(self, prepared: PreparedTransaction, *, commit: bool = False) -> None:
        """Have its coordinator end a transaction for another client."""
        coordinator = self.cluster.transactions
        found = coordinator.transactions[prepared.transactional_id]
        coordinator.end(
            prepared.transactional_id,
            (found.producer_id, found.epoch),
            commit=commit,
            version=prepared.transaction_version if prepared.transaction_version == 2 else 0,
            now=self.cluster.now,
        )

    def state_of(self, transactional_id: str) -> str:
        found = self.cluster.transactions.find(transactional_id)
        return "none" if found is None else found.state.value

    def settled(self, transactional_id: str) -> str:
        """Its state, once the markers are there."""
        self.scheduler.sleep(_MARKERS_MS)
        return self.state_of(transactional_id)

    @property
    def swept(self) -> str:
        """The state of a swept id: version 1 fences it by a new identity."""
        return "CompleteAbort" if self.life.transaction_version == 2 else "Empty"

    def open_ids(self) -> list[str]:
        return sorted(
            t.transactional_id
            for t in self.cluster.transactions.transactions.values()
            if t.state is State.ONGOING
        )

    def data_ids(self) -> list[str]:
        """Transactional ids that coordinators know, but for those of keys themselves."""
        return [i for i in self.cluster.transactions.transactions if "~~" not in i]

    # -- rows and the commit log --

    def values(self, topic: str = TOPIC) -> list[str]:
        """Values that readers of committed records see, sorted, once the markers are there."""
        self.scheduler.sleep(_MARKERS_MS)
        logs = (log for tp, log in self.cluster.logs.items() if tp.topic == topic)
        return sorted(
            (value or b"").decode() for log in logs for value in log.values(committed=True)
        )

    def logged(self, key: str) -> CommitState:
        """The state of ``key`` as another client reads it."""
        with self.client() as client:
            state = CommitLog(client, LOG_TOPIC).read(key, self.soon(30_000)).state
        assert state is not None
        return state

    def log_bytes(self) -> int:
        """Of all values that the log was written with, once the markers are there."""
        self.scheduler.sleep(_MARKERS_MS)
        log = self.cluster.logs[TopicPartition(LOG_TOPIC, 0)]
        return sum(len(value or b"") for value in log.values(committed=True))

    def change_log(self, key: str, change: Callable[[CommitState], CommitState | None]) -> None:
        """The state of ``key``, as an operator does."""
        with self.client() as client:
            session = CommitLog(client, LOG_TOPIC).open(key, client.deadline())
            session.write(change(session.state), client.deadline())

    # -- what happens meanwhile --

    def beside(self, process: Process, what: Callable[[], object]) -> tuple[Task, list[object]]:
        """Have ``what`` run in ``process``; what it gives, or raises, is in the list then."""
        told: list[object] = []

        def run() -> None:
            try:
                told.append(what())
            except KafkaError as error:
                told.append(error)

        return process.start(run, "a call beside others"), told

    def watch(self) -> WatchedRequests:
        """Every request from now on."""
        watched, meets = WatchedRequests(), self.cluster.control.met_by

        def met_by(request: Request, node: int) -> list[Fault]:
            watched.seen.append(request)
            watched.arrived.append((self.cluster.now, ApiKey(request.api).name))
            return meets(request, node)

        self.cluster.control.met_by = met_by
        return watched

    def before_send(
        self, run: Run, fits: Callable[[Request], bool], what: Callable[[], None]
    ) -> list[Request]:
        """Have ``what`` happen in the driver's process before it sends the first request that
        ``fits``; gives a list that the request is in then.
        """
        met: list[Request] = []

        def sends(request: Request) -> None:
            if not met and fits(request):
                met.append(request)
                what()

        run.process.before_send.append(sends)
        return met

    def when_decided(self, key: str, then: Callable[[], None]) -> None:
        """Have ``then`` happen when a write of the log of ``key`` is committed, once."""
        done: list[bool] = []

        def decided(transaction: Transaction, commit: bool) -> None:
            if transaction.transactional_id == log_id(key) and commit and not done:
                done.append(True)
                then()

        self.cluster.on_decided = decided

    def coordinators_load(self, where: Callable[[Request], bool] = lambda _: True) -> Fault:
        """They end nothing that fits, until the fault is over."""
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return self.control.answer(ApiKey.END_TXN, loading, FOREVER, where=where)

    def lose_leader(self, back_ms: int, of: TransactionDescription | None = None) -> None:
        """Of a partition with rows, or of the first one of a transaction; for ``back_ms``."""
        cluster = self.cluster
        cluster.drops_markers = True
        if of is not None:
            topic, partitions = of.partitions[0]
            tp = TopicPartition(topic, partitions[0])
        else:
            tp = next(tp for tp, log in cluster.logs.items() if tp.topic == TOPIC and log.batches)
        leader = cluster.logs[tp].leader
        cluster.move_leader(tp, -1)
        cluster.at(cluster.now + back_ms, lambda: cluster.move_leader(tp, leader))
