"""A query whose every step a test decides: for races that have names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode, KafkaError
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.datasource.exactly_once.transaction_commit import (
    payload_of,
    prepared_transactions,
)
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER, Control, Fault
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

#: The end of the transactional ids that write the commit log.
LOG_OF = log_id("")


class Written(NamedTuple):
    """A micro-batch that is written and not committed; the arguments of ``Scene.commit``."""

    run: Run
    number: int
    plan: TransactionPlan
    messages: list[TaskCommitMessage]

    @property
    def prepared(self) -> list[PreparedTransaction]:
        return [m.prepared for m in self.messages if m.prepared is not None]

    @property
    def ids(self) -> list[str]:
        return [one.transactional_id for one in self.prepared]


class Scene(SparkWorld):
    """A test with the fixture ``scene`` is its play, which runs as a process of its own."""

    def __init__(self, life: SparkLife) -> None:
        super().__init__(life)
        #: Of the configuration of each producer and driver.
        self.changes: dict[str, Any] = {}
        #: Of warm drivers, when nothing went wrong with them.
        self._kept: dict[Run, ExactlyOnceDriver] = {}
        self._play: Callable[[], None] = lambda: None
        self._last_batches: set[int] | None = None
        self._last_tasks: set[tuple[int, int]] | None = None

    def perform(self, play: Callable[[], None]) -> None:
        """To its end; then time ends what is open, and what is seen must be what it ends with."""
        self._play = play
        self.live()
        if self._last_batches is not None:
            seen = self.batches()
            assert seen == self._last_batches, f"{seen}, not {self._last_batches}"
        if self._last_tasks is not None:
            tasks = {(batch, task) for batch, task, _ in self.visible()}
            assert tasks == self._last_tasks, f"{tasks}, not {self._last_tasks}"

    def ends_with(self, *batches: int) -> None:
        """When all is over, rows of these batches are visible, each once, and of no others."""
        self._last_batches = set(batches)

    def ends_with_tasks(self, *tasks: tuple[int, int]) -> None:
        """As :meth:`ends_with`, of each (batch, task)."""
        self._last_tasks = set(tasks)

    def play(self) -> None:
        self._play()

    @property
    def control(self) -> Control:
        return self.cluster.control

    def wait(self, until: Callable[[], object]) -> None:
        self.scheduler.block(lambda: bool(until()), NEVER)

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

    def first_batch(self) -> Written:
        """Written, by run-0."""
        return self.written(self.run("run-0"), 0)

    def second_plan(self) -> tuple[Run, TransactionPlan]:
        """Of run-0, which has committed the first batch. (The first take-over changes the
        generation, and the ids with it.)
        """
        run = self.run("run-0")
        self.batch(run, 0)
        return run, self.plan(run)

    def second_batch(self) -> Written:
        """Written, by run-0, which has committed the first one."""
        run, plan = self.second_plan()
        return Written(run, 1, plan, self.write(run, 1, plan))

    def attempt_of(
        self, run: Run, number: int, task: int, attempt: int, plan: TransactionPlan
    ) -> TaskCommitMessage:
        """What an attempt of a task reports, when it is over."""
        found = self.launch(run, number, task, attempt, plan)
        self.wait(lambda: found.over)
        assert found.message is not None
        return found.message

    def speculative_pair(
        self, run: Run, number: int, plan: TransactionPlan
    ) -> tuple[TaskCommitMessage, TaskCommitMessage]:
        """Two attempts of the first task, which have both prepared."""
        first, second = (self.launch(run, number, 0, attempt, plan) for attempt in (0, 1))
        self.wait(lambda: first.over and second.over)
        assert first.message is not None
        assert second.message is not None
        return first.message, second.message

    def taken_over(self) -> tuple[Written, Written]:
        """run-0 has committed batch 0 and written batch 1. run-1, planned before and beside it, has
        committed that one, and so has the key; and it has written batch 2.
        """
        late, new = self.second_batch(), self.run("run-1")
        self.commit(*self.written(new, 1))
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

    def at_once(self, run: Run, *calls: Callable[[], object]) -> list[object]:
        """What each gives, or raises, of threads of one process, when all have ended."""
        threads = [self.beside(run.process, call) for call in calls]
        self.wait(lambda: all(thread.done for thread, _ in threads))
        return [told[0] for _, told in threads]

    def dies_undecided(self, name: str, number: int) -> None:
        """A start of the query that writes a micro-batch, and dies before its commit."""
        dead = self.written(self.run(name), number)
        dead.run.process.kill()

    def decides_and_dies(
        self, run: Run, number: int, plan: TransactionPlan, messages: list[TaskCommitMessage]
    ) -> None:
        """The driver is killed behind its decision; none of the transactions is ended."""
        silent = self.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=of_data)
        commit = run.process.start(lambda: self.commit(run, number, plan, messages), "commit")
        self.wait(lambda: silent.fired)
        run.process.kill()
        assert commit.done
        self.scheduler.sleep(100)  # what it has sent arrives
        self.control.clear()

    def coordinators_load(self, where: Callable[[Request], bool] = lambda _: True) -> Fault:
        """They end nothing that fits, until the fault is over."""
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return self.control.answer(ApiKey.END_TXN, loading, FOREVER, where=where)

    def abort(
        self,
        run: Run,
        number: int,
        plan: TransactionPlan,
        messages: list[TaskCommitMessage],
        *,
        tasks_may_run: bool = False,
    ) -> tuple[str, ...]:
        """Spark's; tasks may run where not every one has reported."""
        owner = owner_of(run.id, plan)
        with self.driver_side(run) as aborter:
            prepared = prepared_transactions(messages, owner)
            return aborter.abort(owner, number, prepared, tasks_may_run=tasks_may_run)

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
        config = ProducerConfig.parse(
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
        return replace(config, **self.changes)

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


def is_a_logs(request: Request) -> bool:
    """Of the transactions that write the commit log."""
    return str(request.body.transactional_id).endswith(LOG_OF)


def opens_a_log(request: Request) -> bool:
    return request.api == ApiKey.INIT_PRODUCER_ID and is_a_logs(request)


def writes_a_log(request: Request) -> bool:
    return request.api == ApiKey.PRODUCE and is_a_logs(request)


def of_the_log(request: Request) -> bool:
    return bool(request.body.transactional_id == log_id(PREFIX))


def of_data(request: Request) -> bool:
    """Of any key, named ones, too."""
    return "~~" not in request.body.transactional_id


def ends_data(request: Request) -> bool:
    return request.api == ApiKey.END_TXN and of_data(request)


def of_id(transactional_id: str) -> Callable[[Request], bool]:
    return lambda request: bool(request.body.transactional_id == transactional_id)


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
