"""A query whose every step a test decides: for races that have names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import pyarrow as pa

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.datasource.exactly_once.transaction_commit import (
    payload_of,
    prepared_transactions,
)
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.committer import Batch, Commit
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.fakes.fake_cluster.transaction_coordinator import State
from tests.simulation.processes import Process
from tests.simulation.scheduler import Task
from tests.simulation.spark_tasks import (
    Attempt,
    PythonWorker,
    Stage,
    batch_of,
    new_client,
    write_rows,
)
from tests.simulation.spark_world import (
    LOG_TOPIC,
    PREFIX,
    QUERY,
    TIMEOUT_MS,
    TOPIC,
    Run,
    SparkLife,
    SparkWorld,
)


class Written(NamedTuple):
    """A micro-batch that is written and not committed; the arguments of ``Scene.commit``."""

    run: Run
    number: int
    plan: TransactionPlan
    messages: list[TaskCommitMessage]


class Scene(SparkWorld):
    """``play`` gets the scene and runs as a process of its own; at the end all are gone."""

    def __init__(self, play: Callable[[Any], None], life: SparkLife | None = None) -> None:
        super().__init__(life or SparkLife(1, tasks=1))
        self._play = play
        #: Of warm drivers, when nothing went wrong with them.
        self._kept: dict[Run, ExactlyOnceDriver] = {}

    @classmethod
    def of(cls, play: Callable[[Self], None], life: SparkLife | None = None) -> Self:
        """Played to its end, and let time end what is open."""
        scene = cls(play, life)
        scene.live()
        return scene

    def play(self) -> None:
        self._play(self)

    def run(self, name: str) -> Run:
        """A start of the query, in a driver process of its own."""
        return Run(name, self.machine.process("driver"))

    def plan(self, run: Run) -> TransactionPlan:
        with self.driver_side(run) as planner:
            return _plan(planner.plan(PREFIX))

    def write(
        self, run: Run, number: int, plan: TransactionPlan, tasks: int | None = None
    ) -> list[TaskCommitMessage]:
        """All tasks of a micro-batch, each written by one attempt."""
        tasks = self.life.tasks if tasks is None else tasks
        stage = Stage(
            self.scheduler, lambda task, attempt: self.launch(run, number, task, attempt, plan)
        )
        for task in range(tasks):
            stage.start(task)
        assert stage.ends_well(tasks)
        return stage.messages

    def written(self, run: Run, number: int) -> Written:
        """A micro-batch, planned and written."""
        plan = self.plan(run)
        return Written(run, number, plan, self.write(run, number, plan))

    def taken_over(self) -> tuple[Written, Written]:
        """run-0 has committed batch 0 and written batch 1. run-1, planned before and beside it, has
        committed that one, and so has the key; and it has written batch 2.
        """
        old, new = self.run("run-0"), self.run("run-1")
        self.batch(old, 0)
        plan_old, plan_new = self.plan(old), self.plan(new)
        late = Written(old, 1, plan_old, self.write(old, 1, plan_old))
        self.commit(new, 1, plan_new, self.write(new, 1, plan_new))
        return late, self.written(new, 2)

    def commit(
        self,
        run: Run,
        number: int,
        plan: TransactionPlan,
        messages: list[TaskCommitMessage],
        query: str = QUERY,
    ) -> Commit:
        owner = owner_of(run.id, plan, query)
        batch = Batch(number, prepared_transactions(messages, owner), payload_of(messages, TOPIC))
        with self.driver_side(run) as committer:
            return committer.commit(owner, batch)

    def beside(self, process: Process, what: Callable[[], object]) -> tuple[Task, list[object]]:
        """Have ``what`` run in ``process``; what it gives, or raises, is in the list then."""
        told: list[object] = []

        def run() -> None:
            try:
                told.append(what())
            except KafkaError as error:
                told.append(error)

        return process.start(run, "a call beside others"), told

    def decides_and_dies(
        self, run: Run, number: int, plan: TransactionPlan, messages: list[TaskCommitMessage]
    ) -> None:
        """The driver is killed behind its decision; none of the transactions is ended."""
        silent = self.cluster.control.drop(
            ApiKey.END_TXN, FOREVER, processed=False, where=lambda r: not of_the_log(r)
        )
        commit = run.process.start(lambda: self.commit(run, number, plan, messages), "commit")
        self.scheduler.block(lambda: silent.fired > 0, NEVER)
        run.process.kill()
        assert commit.done
        self.scheduler.sleep(100)  # what it has sent arrives
        self.cluster.control.clear()

    def abort(
        self, run: Run, number: int, plan: TransactionPlan, messages: list[TaskCommitMessage]
    ) -> tuple[str, ...]:
        owner = owner_of(run.id, plan)
        with self.driver_side(run) as aborter:
            prepared = prepared_transactions(messages, owner)
            return aborter.abort(owner, number, prepared, tasks_may_run=False)

    def batch(self, run: Run, number: int) -> Commit:
        """A whole micro-batch."""
        plan = self.plan(run)
        return self.commit(run, number, plan, self.write(run, number, plan))

    def visible(self) -> set[tuple[int, int, int]]:
        """(batch, task, row) as read_committed shows them; each once, or it fails."""
        rows = [(b, t, r) for found in self.seen().values() for b, t, _, r in found]
        assert len(rows) == len(set(rows)), f"doubled: {rows}"
        return set(rows)

    def batches(self) -> set[int]:
        """Of which rows are visible."""
        return {batch for batch, _, _ in self.visible()}

    def begin_foreign(self, transactional_id: str) -> None:
        """A transaction of somebody who is in the middle of it."""
        coordinator = self.cluster.transactions
        error, pid, epoch = coordinator.initialize(
            transactional_id, TIMEOUT_MS, None, self.cluster.now
        )
        assert error.name == "NONE"
        tp = next(tp for tp in self.cluster.logs if tp.topic == "t")
        coordinator.add_partitions(
            transactional_id, (pid, epoch), [tp], self.cluster.now, version=2
        )

    def open_ids(self) -> list[str]:
        return sorted(
            t.transactional_id
            for t in self.cluster.transactions.transactions.values()
            if t.state is State.ONGOING
        )

    # -- the driver's side --

    @contextmanager
    def driver_side(self, run: Run) -> Iterator[ExactlyOnceDriver]:
        """As ``exactly_once.shared_driver``, of one process."""
        driver = self._kept.pop(run, None) or self._new_driver(run)
        try:
            yield driver
        except BaseException:
            driver.close()
            raise
        if self.life.warm_driver:
            self._kept[run] = driver
        else:
            driver.close()

    def _new_driver(self, run: Run) -> ExactlyOnceDriver:
        client = new_client(run.process)
        return ExactlyOnceDriver(
            self.config("driver"), LOG_TOPIC, clock=self.scheduler, new_client=client
        )

    def config(self, client_id: str) -> ProducerConfig:
        return ProducerConfig.parse(
            {
                "bootstrap.servers": "127.0.0.1:9093,127.0.0.1:9094,127.0.0.1:9095",
                "client.id": client_id,
                "request.timeout.ms": "5000",
                "delivery.timeout.ms": "20000",
                "max.block.ms": "20000",
                "transaction.timeout.ms": str(TIMEOUT_MS),
                "buffer.memory": "1000000",
                "batch.size": "200",
            }
        )

    # -- tasks --

    def launch(
        self, run: Run, number: int, task: int, attempt: int, plan: TransactionPlan
    ) -> Attempt:
        """Start an attempt of a task."""
        worker = self.worker_of(run)
        identity = TaskIdentity(
            partition_id=task,
            attempt=attempt,
            task_attempt_id=len(self.attempted) + 1,
            query_id=QUERY,
            run_id=run.id,
            batch_id=number,
        )
        return self.attempt(
            worker, task, attempt, f"batch {number}", lambda: self._write(worker, identity, plan)
        )

    def _write(
        self, worker: PythonWorker, identity: TaskIdentity, plan: TransactionPlan
    ) -> TaskCommitMessage:
        columns = ColumnPlan(topic=TOPIC, value_column=0, partition_column=1)
        config = self.config("task")
        return write_rows(worker, plan, config, identity, self._batches(identity), columns)

    def _batches(self, identity: TaskIdentity) -> Iterator[pa.RecordBatch]:
        """The rows of a task, in two pieces."""
        batch, task = identity.batch_id, identity.partition_id
        rows = self.rows(batch, task)
        half = len(rows) // 2
        for first, last in ((0, half), (half, len(rows))):
            yield batch_of(rows, first, last, batch, task, identity.attempt)


def of_the_log(request: Request) -> bool:
    return bool(request.body.transactional_id == log_id(PREFIX))


def of_a_sweep(request: Request) -> bool:
    """A ListTransactions that looks for idle ids, too."""
    return "Empty" in request.body.state_filters


def _plan(state: CommitState) -> TransactionPlan:
    """What planning ships (``transaction_plan.plan_transactions``)."""
    return TransactionPlan(
        key=PREFIX,
        state=state,
        numbering=Numbering.STREAM,
        context=None,
        number=None,
        driver="",
        verify=True,
        transaction_timeout_ms=TIMEOUT_MS,
        log_topic=LOG_TOPIC,
    )


def owner_of(run_id: str, plan: TransactionPlan, query_id: str = QUERY) -> Owner:
    """Who commits what ``plan`` has planned."""
    state = plan.state
    return Owner(PREFIX, run_id, query_id, state.generation)
