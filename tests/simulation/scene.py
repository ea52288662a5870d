"""A test whose every step is its own: queries, batch jobs, foreachBatch and operators.

A stream's micro-batch is planned, written and committed by calls of the test. A job, and a
micro-batch of foreachBatch, goes the way that Spark takes: the options are planned, tasks write,
and commit or abort gets their messages (:class:`WritePlan`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource import foreach_batch
from spark_kafka_sink.datasource.exactly_once.named_writes import NamedWrites
from spark_kafka_sink.datasource.exactly_once.transaction_commit import (
    payload_of,
    prepared_transactions,
)
from spark_kafka_sink.datasource.exactly_once.transaction_plan import (
    TransactionPlan,
    plan_transactions,
)
from spark_kafka_sink.datasource.plan.planned_batch import PlannedBatch
from spark_kafka_sink.datasource.plan.write_plan import WritePlan
from spark_kafka_sink.datasource.process import calling_query
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.transactions import exactly_once
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.control import FOREVER
from tests.fakes.jvm_session import RunningQuery, jvm_session
from tests.simulation.processes import Process
from tests.simulation.scene_by_hand import SceneByHand
from tests.simulation.scene_requests import of_data
from tests.simulation.spark_sink import Frame
from tests.simulation.spark_tasks import Attempt, PythonWorker, Stage, batch_of, write_rows
from tests.simulation.spark_world import LOG_TOPIC, PREFIX, QUERY, TIMEOUT_MS, TOPIC, Run, SparkLife

#: The error of a job that is to fail.
PLANNED = "a task's process was killed, as planned"
VERSIONS = pytest.mark.parametrize("version", [1, 2])
TOLD_OR_NOT = pytest.mark.parametrize("tells_query", [True, False])
KAFKAS_TIMEOUTS = {
    "max_block_ms": 10_000, "request_timeout_ms": 30_000, "delivery_timeout_ms": 120_000
}  # fmt: skip
T = TypeVar("T")

#: Whose driver process the code that runs now belongs to.
_driving: ContextVar[Run] = ContextVar("driving")


class _FrameOfRun(Frame):
    """In the session of ``run``, which names the query unless it is hidden."""

    def __init__(self, save: Any, query_id: str | None, run: Run) -> None:
        super().__init__(save, query_id)
        self._run = run

    @property
    def sparkSession(self) -> Any:
        session = super().sparkSession
        run = self._run.id
        active = [] if self._query_id is None else [RunningQuery(QUERY, run, run)]
        session._jsparkSession = jvm_session(run, *active)
        return session


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


class Scene(SceneByHand):
    """A test with the fixture ``scene`` is its play, which runs as a process of its own.

    ``tells_query``: the tasks of a batch job have the local properties of their micro-batch, as in
    foreachBatch on the stream's own thread. They have none in a thread pool, none over Spark
    Connect, and none in a plain batch job.
    """

    def __init__(self, life: SparkLife, *, tells_query: bool = True) -> None:
        super().__init__(life)
        self.tells_query = tells_query
        #: Of warm drivers, when nothing went wrong with them.
        self._kept: dict[Run, ExactlyOnceDriver] = {}
        self._play: Callable[[], object] = lambda: None
        self._last_batches: set[int] | None = None
        self._last_tasks: set[tuple[int, int]] | None = None
        self._task_errors: list[KafkaError] = []
        self._starts = 0

    def perform(self, play: Callable[[], T]) -> T:
        """Run ``play`` once, and return its result. Then time ends what is open, and what is seen
        must be what the scene ends with.
        """
        found: list[T] = []
        self._play = lambda: found.append(play())
        self.live()
        if self._last_batches is not None:
            seen = self.batches()
            assert seen == self._last_batches, f"{seen}, not {self._last_batches}"
        if self._last_tasks is not None:
            tasks = {(batch, task) for batch, task, _ in self.visible()}
            assert tasks == self._last_tasks, f"{tasks}, not {self._last_tasks}"
        return found[0]

    def ends_with(self, *batches: int) -> None:
        """When all is over, rows of these batches are visible, each once, and of no others."""
        self._last_batches = set(batches)

    def ends_with_tasks(self, *tasks: tuple[int, int]) -> None:
        """As :meth:`ends_with`, of each (batch, task)."""
        self._last_tasks = set(tasks)

    def play(self) -> None:
        """Each process has named writes of its own."""
        named: defaultdict[Process | None, NamedWrites] = defaultdict(NamedWrites)
        with (
            patch.object(exactly_once, "shared_driver", self._shared),
            patch.object(foreach_batch, "_runs", lambda: named[self._process()]),
            patch.object(calling_query, "_found", lambda found={}: found),
        ):
            self._play()

    def _process(self) -> Process | None:
        """None: the play's own."""
        try:
            return self.machine.current
        except StopIteration:
            return None

    @contextmanager
    def _shared(self, *_: object) -> Iterator[ExactlyOnceDriver]:
        with self.driver_side(_driving.get()) as driver:
            yield driver

    @contextmanager
    def driving(self, run: Run) -> Iterator[None]:
        """What planning, commit and abort do within belongs to the driver process of ``run``."""
        token = _driving.set(run)
        try:
            yield
        finally:
            _driving.reset(token)

    # -- streams --

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

    def attempts(
        self, run: Run, number: int, plan: TransactionPlan, tasks: int, *, attempt: int = 0
    ) -> list[Attempt]:
        """One attempt of each task, when all are over."""
        found = [self.launch(run, number, task, attempt, plan) for task in range(tasks)]
        self.wait(lambda: all(a.over for a in found))
        return found

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
            return aborter.abort(owner, number, prepared, tasks_may_run=tasks_may_run).swept

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

    # -- the driver's side --

    @contextmanager
    def driver_side(self, run: Run) -> Iterator[ExactlyOnceDriver]:
        """As ``exactly_once.shared_driver``, of one process."""
        driver = self._kept.pop(run, None) or self.driver(run)
        try:
            yield driver
        except BaseException:
            driver.close()
            raise
        if self.life.warm_driver:
            self._kept[run] = driver
        else:
            driver.close()

    # -- batch jobs and foreachBatch --

    def options(self, **more: object) -> dict[str, str]:
        """Of the sink, exactly-once."""
        given = {
            "kafka.bootstrap.servers": "127.0.0.1:9093",
            "topic": TOPIC,
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": PREFIX,
            "kafka.transaction.timeout.ms": TIMEOUT_MS,
            **more,
        }
        return {key: str(value) for key, value in given.items()}

    def job(
        self,
        run: Run,
        options: dict[str, str],
        number: int,
        *,
        tasks: int | None = None,
        rows: int | None = None,
        ends: str = "commit",
    ) -> WritePlan:
        """A batch job as Spark runs it; ``number`` is what its rows say of their batch.

        ``ends``: "commit"; "kill", when the driver dies with everything prepared; "fail", when the
        process of the last task is killed with all its rows in Kafka: Spark aborts the job, and
        raises.
        """
        life = self.life
        tasks = life.tasks if tasks is None else tasks
        config = parse_sink_config(options)
        with self.driving(run):
            driver = f"d{run.process.nth}" if config.txn_app_id else ""
            transactions = plan_transactions(config, streaming=False, driver=driver)
            plan = WritePlan(config, ColumnPlan(topic=TOPIC, value_column=0), None, transactions)
            self.life = replace(life, rows=life.rows if rows is None else rows)
            attempts = self.attempts(run, number, transactions, tasks)
            self.life = life
            if ends == "kill":
                run.process.kill()
                return plan
            if ends == "fail":
                attempts[-1].worker.process.kill()
            messages = [None if a.worker.process.dead else a.message for a in attempts]
            if any(message is None for message in messages):
                PlannedBatch(plan).abort(messages)
                raise KafkaError(PLANNED) if ends == "fail" else self._task_errors[-1]
            try:
                PlannedBatch(plan).commit(messages)
            except KafkaError:
                PlannedBatch(plan).abort(messages)
                raise
        return plan

    def version_of_job(self, run: Run, number: int, name: str = "app", **how: Any) -> WritePlan:
        """A job with a version, which is also what its rows say of their batch."""
        return self.job(run, self.options(txnAppId=name, txnVersion=number), number, **how)

    def foreach_batch(self, name: str) -> Callable[..., None]:
        """A start of a query in a driver of its own: the function gets the number of a micro-batch,
        and what :meth:`frame` gets.
        """
        self._starts += 1
        run = self.run(f"driver {self._starts}")
        write = foreach_batch.foreach_batch(name, **self.options())
        return lambda number, **how: write(self.frame(run, number, **how), number)

    def frame(self, run: Run, number: int, **how: Any) -> Any:
        """A DataFrame whose rows say that they are of batch ``number``; ``how`` as :meth:`job`."""
        nothing = {"tasks": 1, "rows": 0}

        def save(options: dict[str, str], part: int | None) -> None:
            self.job(run, options, number, **(nothing if part is None else how))

        return _FrameOfRun(save, QUERY if self.tells_query else None, run)

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
        batches = self._batches(identity)
        if plan.key != PREFIX:  # a batch job's: Spark tells it of no run
            identity = replace(identity, run_id="")
            if not self.tells_query:
                identity = replace(identity, query_id="", batch_id=-1)
        try:
            return write_rows(worker, plan, self.config("task"), identity, batches, columns)
        except KafkaError as error:
            self._task_errors.append(error)
            raise

    def _batches(self, identity: TaskIdentity) -> Iterator[pa.RecordBatch]:
        """The rows of a task, in two pieces."""
        batch, task = identity.batch_id, identity.partition_id
        rows = self.rows(batch, task)
        half = len(rows) // 2
        for first, last in ((0, half), (half, len(rows))):
            yield batch_of(rows, first, last, batch, task, identity.attempt)


def scene_of(version: int = 2, **life: Any) -> Scene:
    """A scene of one task, whose clients have Kafka's timeouts except for ``max.block.ms``, and
    whose commit log has one partition.
    """
    given = {"seed": 1, "tasks": 1, "transaction_version": version, **life}
    found = Scene(SparkLife(**given))
    found.changes |= KAFKAS_TIMEOUTS
    found.cluster.create_topic(LOG_TOPIC, 1, configs={"cleanup.policy": "compact"})
    return found


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
