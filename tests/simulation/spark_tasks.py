"""The tasks of a write as Spark runs them: worker processes, attempts, stages, what they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.exactly_once.transactional_producers import (
    Worker,
    producers_of_task,
)
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.datasource.write.write_task import WriteTask
from spark_kafka_sink.network.client.client_factory import new_network_client
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.column_plan import ColumnPlan
from tests.fakes.dead_letter_options import dead_letters as letters_of_task
from tests.simulation.processes import Process
from tests.simulation.scheduler import Scheduler

#: Attempts of a task (spark.task.maxFailures).
MOST_ATTEMPTS = 4


@dataclass(eq=False)
class PythonWorker:
    """A worker process of Spark: it lives on from task to task, and ends with one that raised."""

    process: Process
    kept: Worker
    busy: bool = False
    lost: bool = False

    @property
    def free(self) -> bool:
        return not (self.busy or self.lost or self.process.dead)


@dataclass(eq=False)
class Attempt:
    """One attempt of a task; ``message`` is what Spark gets of one that ended well."""

    task: int
    number: int
    worker: PythonWorker
    ended: bool = False
    message: TaskCommitMessage | None = None

    @property
    def over(self) -> bool:
        return self.ended or self.worker.process.dead


class Stage:
    """The tasks of one write, each by up to four attempts, which ``launch(task, attempt)`` starts.
    Spark does not inform attempts that failed or were beaten. ``stopped``: the user did it.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        launch: Callable[[int, int], Attempt],
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._scheduler = scheduler
        self._launch = launch
        self._stopped = stopped
        #: Those that are under way.
        self.attempts: list[Attempt] = []
        self._messages: dict[int, TaskCommitMessage] = {}

    def start(self, task: int, attempt: int = 0) -> None:
        self.attempts.append(self._launch(task, attempt))

    @property
    def messages(self) -> list[TaskCommitMessage]:
        """Of each task that has one, in the order of tasks."""
        return [self._messages[task] for task in sorted(self._messages)]

    def ends_well(self, tasks: int) -> bool:
        """Wait for all; False when a task failed too often, or the stage was stopped."""
        while True:
            self._scheduler.block(
                lambda: self._stopped() or any(a.over for a in self.attempts), NEVER
            )
            for attempt in [a for a in self.attempts if a.over]:
                self.attempts.remove(attempt)
                if attempt.task in self._messages:
                    continue  # commit denied: Spark drops its message, and tells nobody
                if attempt.message is not None and not attempt.worker.process.dead:
                    self._messages[attempt.task] = attempt.message
                    continue
                if any(a.task == attempt.task for a in self.attempts):
                    continue
                again = attempt.number % MOST_ATTEMPTS + 1
                if again == MOST_ATTEMPTS:
                    return False
                self.start(attempt.task, again)
            if len(self._messages) == tasks:
                return True
            if self._stopped():
                return False


def batch_of(
    rows: list[int], first: int, last: int, batch: int, task: int, attempt: int, more: int = 0
) -> pa.RecordBatch:
    """Rows ``first`` to ``last`` of a task, whose values say where they are from (all have as many
    bytes, and ``more``); ``rows`` are the partitions that they go to.
    """
    where = b"%05d:%04d:%d" % (batch, task, attempt)
    values = [b"%b:%02d:" % (where, row) + b"x" * (32 + more) for row in range(first, last)]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, pa.binary()), pa.array(rows[first:last], pa.int32())],
        names=["value", "partition"],
    )


def new_client(process: Process) -> Any:
    """KafkaProducer's and TransactionClient's argument: connections of ``process``."""
    network = process.network()
    return lambda c, m, k: new_network_client(c, m, k, selector=network)


def new_clients(process: Process) -> Any:
    """As :func:`new_client`, for a client that begins again with new connections."""
    return lambda c, m, k: new_network_client(c, m, k, selector=process.network())


def producer_of(process: Process, config: ProducerConfig) -> KafkaProducer:
    producer = KafkaProducer(
        config,
        clock=process.machine.scheduler,
        new_client=new_client(process),
        start_thread=process.start,
    )
    process.guard(producer)
    return producer


def write_rows(
    worker: PythonWorker,
    plan: TransactionPlan,
    config: ProducerConfig,
    identity: TaskIdentity,
    batches: Iterator[pa.RecordBatch],
    columns: ColumnPlan,
    dead_letters: str | None = None,
) -> TaskCommitMessage:
    """An attempt of a task, as ``WritePlan.write``; ``dead_letters`` is the topic of these."""
    scheduler = worker.process.machine.scheduler
    producers = producers_of_task(
        plan,
        config,
        None,
        identity,
        factory=lambda config, _: producer_of(worker.process, config),
        worker=worker.kept,
    )
    letters = None
    if dead_letters is not None:
        letters = letters_of_task(
            dead_letters,
            config,
            columns.topic,
            task=identity.partition_id,
            batch_id=plan.number or 0,
            admin=lambda: AdminClient(
                config, clock=scheduler, new_client=new_client(worker.process)
            ),
        )
    task = WriteTask(
        columns,
        producers,
        identity,
        transaction_time=plan.time,
        dead_letters=letters,
        monotonic_ms=scheduler.now_ms,
        wall_ms=scheduler.wall_ms,
    )
    if plan.is_done(identity):
        return task.drop(batches, count=plan.counts_replays)
    return task.run(batches)
