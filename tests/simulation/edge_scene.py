"""Scenes at the edges of exactly-once: batch jobs, foreachBatch, killed tasks, frozen drivers.

A job, and a micro-batch of foreachBatch, goes the way that Spark takes: the options are planned,
tasks write, and commit or abort gets their messages (:class:`WritePlan`). A stream is driven as in
every :class:`Scene`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.admin.transaction_description import TransactionDescription
from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource import foreach_batch
from spark_kafka_sink.datasource.exactly_once.named_writes import NamedWrites
from spark_kafka_sink.datasource.exactly_once.transaction_plan import (
    TransactionPlan,
    plan_transactions,
)
from spark_kafka_sink.datasource.plan.planned_batch import PlannedBatch
from spark_kafka_sink.datasource.plan.write_plan import WritePlan
from spark_kafka_sink.datasource.process import calling_query
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.network.channel.selectable import NetworkSend
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.transactions import exactly_once
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.operations.operator import Operator
from tests.fakes.fake_cluster.codec import Request, read_request
from tests.fakes.jvm_session import RunningQuery, jvm_session
from tests.simulation.processes import Network, Process
from tests.simulation.spark_scene import Scene
from tests.simulation.spark_sink import Frame
from tests.simulation.spark_tasks import Attempt, PythonWorker, new_client
from tests.simulation.spark_world import LOG_TOPIC, PREFIX, QUERY, TIMEOUT_MS, TOPIC, Run, SparkLife

#: The error of a job that is to fail.
PLANNED = "a task's process was killed, as planned"
VERSIONS = pytest.mark.parametrize("version", [1, 2])
TOLD_OR_NOT = pytest.mark.parametrize("tells_query", [True, False])
_LENGTH = 4

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


@dataclass(eq=False)
class WatchedRequests:
    """Requests as the cluster meets them, in order."""

    seen: list[Request] = field(default_factory=list)

    def of(self, *apis: int) -> list[Request]:
        return [request for request in self.seen if request.api in apis]


class EdgeScene(Scene):
    """``tells_query``: the tasks of a batch job have the local properties of their micro-batch, as
    in foreachBatch on the stream's own thread. They have none in a thread pool, none over Spark
    Connect, and none in a plain batch job.
    """

    def __init__(self, life: SparkLife, *, tells_query: bool = True) -> None:
        super().__init__(life)
        self.tells_query = tells_query
        self._identities: dict[int, TaskIdentity] = {}
        self._task_errors: list[KafkaError] = []
        self._starts = 0

    def play(self) -> None:
        """Each process has named writes of its own."""
        named: defaultdict[Process | None, NamedWrites] = defaultdict(NamedWrites)
        with (
            patch.object(exactly_once, "shared_driver", self._shared),
            patch.object(foreach_batch, "_runs", lambda: named[self._process()]),
            patch.object(calling_query, "_found", lambda found={}: found),
        ):
            super().play()

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

    def attempts(
        self, run: Run, number: int, plan: TransactionPlan, tasks: int, *, attempt: int = 0
    ) -> list[Attempt]:
        """One attempt of each task, when all are over."""
        found = [self.launch(run, number, task, attempt, plan) for task in range(tasks)]
        self.wait(lambda: all(a.over for a in found))
        return found

    def watch(self) -> WatchedRequests:
        """Every request from now on."""
        watched, meets = WatchedRequests(), self.cluster.control.met_by

        def met_by(request: Request, node: int) -> Any:
            watched.seen.append(request)
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
        new_network = run.process.network

        def network() -> Network:
            made = new_network()
            truly_send = made.send

            def sends(send: NetworkSend) -> None:
                data = b"".join(bytes(buffer) for buffer in send.buffers)
                request = read_request(data[_LENGTH:])
                if not met and fits(request):
                    met.append(request)
                    what()
                truly_send(send)

            made.send = sends
            return made

        run.process.network = network
        return met

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
        config = SinkConfig.parse(options)
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

    def _write(
        self, worker: PythonWorker, identity: TaskIdentity, plan: TransactionPlan
    ) -> TaskCommitMessage:
        if plan.key != PREFIX:  # a batch job's: Spark tells it of no run
            self._identities[identity.task_attempt_id] = identity
            identity = replace(identity, run_id="")
            if not self.tells_query:
                identity = replace(identity, query_id="", batch_id=-1)
        try:
            return super()._write(worker, identity, plan)
        except KafkaError as error:
            self._task_errors.append(error)
            raise

    def _batches(self, identity: TaskIdentity) -> Iterator[pa.RecordBatch]:
        return super()._batches(self._identities.get(identity.task_attempt_id, identity))

    # -- brokers and operators --

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

    def change_log(self, key: str, change: Callable[[CommitState], CommitState | None]) -> None:
        """The state of ``key``, as an operator does."""
        with self.driver_side(self.run("operator")) as driver:
            session = CommitLog(driver.client, LOG_TOPIC).open(key, driver.client.deadline())
            session.write(change(session.state), driver.client.deadline())

    @contextmanager
    def by_hand(self, timeout_ms: int = TIMEOUT_MS, by: Run | None = None) -> Iterator[Operator]:
        """``kprod txn``, whose transaction.timeout.ms is ``timeout_ms``."""
        config = replace(self.config("cli"), transaction_timeout_ms=timeout_ms)
        client = new_client((by or self.run("operator")).process)
        with TransactionClient(config, clock=self.scheduler, new_client=client) as found:
            yield Operator(CommitLog(found, LOG_TOPIC), found)

    def commit_by_hand(self, timeout_ms: int = TIMEOUT_MS, by: Run | None = None) -> CommitState:
        """``kprod txn commit``."""
        with self.by_hand(timeout_ms, by) as commands:
            return commands.commit(commands.plan_commit(PREFIX)).state

    # -- what came of it --

    def data_ids(self) -> list[str]:
        """Transactional ids that coordinators know, but for those of keys themselves."""
        return [i for i in self.cluster.transactions.transactions if "~~" not in i]
