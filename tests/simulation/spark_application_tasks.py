"""The tasks of an application's writes: their rows, what befalls them, who kills them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.records.column_plan import ColumnPlan
from tests.simulation.spark_application_life import Kind
from tests.simulation.spark_sink import SERVERS
from tests.simulation.spark_tasks import MOST_ATTEMPTS, Attempt, PythonWorker, Stage, batch_of
from tests.simulation.spark_world import DEAD_LETTERS, TIMEOUT_MS, TOPIC
from tests.simulation.spark_writes import STRANGER, Write

if TYPE_CHECKING:
    from tests.simulation.spark_application import Application

#: Spark kills a task so long after it asked it to stop.
KILLED_MS = 4_000


class ApplicationTasks:
    def __init__(self, app: Application) -> None:
        self._app = app

    def run(self, write: Write) -> tuple[list[TaskCommitMessage], bool]:
        """The message of each task that has one; False when not all have."""
        app, run, life = self._app, write.run, self._app.life
        stage = Stage(
            app.scheduler,
            lambda task, number: self._attempt(write, task, number),
            lambda: run.stopped,
        )
        for task in range(life.tasks):
            stage.start(task)
            if life.stagger_ms:
                app.scheduler.sleep(life.stagger_ms)
        if app.fate.random() < life.speculative:
            stage.start(app.fate.randrange(life.tasks), MOST_ATTEMPTS)
            app.fired["= speculative attempts"] += 1
        whole = stage.ends_well(life.tasks)
        if whole and stage.attempts:
            # Spark kills those that were beaten.
            self.kill_soon([attempt.worker for attempt in stage.attempts])
        return stage.messages, whole

    def kill_soon(self, workers: Sequence[PythonWorker]) -> None:
        def kill() -> None:
            for worker in workers:
                if worker.busy:
                    worker.process.kill()

        self._app.timeline.after(self._app.fate.choice((0, 500, KILLED_MS)), kill)

    def _attempt(self, write: Write, task: int, number: int) -> Attempt:
        app, run, life = self._app, write.run, self._app.life
        worker = app.worker_of(run)
        jobs = (Kind.VERSIONS, Kind.JOB)
        told = write.streaming or (life.kind not in jobs and not life.connect)
        identity = TaskIdentity(
            partition_id=task,
            attempt=number,
            task_attempt_id=len(app.attempted) + 1,
            query_id=write.query if told else "",
            run_id=run.id if told else "",
            batch_id=write.number if told else -1,
        )

        def writes() -> TaskCommitMessage:
            message = app.sink.write(
                worker,
                write.options | {SERVERS: app.given[SERVERS]},
                write.planned,
                identity,
                self._rows_of(write, identity),
                ColumnPlan(topic=TOPIC, value_column=0, partition_column=1),
                DEAD_LETTERS if life.bad else None,
            )
            if message.prepared is not None and app.fate.random() < life.fails / 2:
                app.fired["= workers lost with a prepared transaction"] += 1
                worker.process.kill()
            return message

        return app.attempt(worker, task, number, f"batch {write.number}", writes)

    def _rows_of(self, write: Write, identity: TaskIdentity) -> Iterator[pa.RecordBatch]:
        app = self._app
        if not app.healed and app.fate.random() < app.life.late:
            app.scheduler.sleep(app.fate.randint(0, app.life.late_ms))
        if write.broken:
            raise KafkaError("a value can't be converted")
        rows = self.partitions(write, identity.partition_id)
        half = len(rows) // 2
        for first, last in ((0, half), (half, len(rows))):
            task = identity.partition_id + 100 * (write.part or 0)
            more = self._more_bytes(write)
            yield batch_of(rows, first, last, write.tag, task, identity.attempt, more)
            may_be_slow = not app.healed and write.tag < STRANGER
            if may_be_slow and app.fate.random() < app.life.slow:
                app.scheduler.sleep(app.fate.randint(0, TIMEOUT_MS // 2))
            if not app.healed and app.fate.random() < app.life.fails:
                app.fired["= attempts that raised"] += 1
                raise KafkaError("the user's code raised")

    def _more_bytes(self, write: Write) -> int:
        """By start, of a query that is not deterministic. Another application's rows are longer:
        tasks without rows could make its batch as large as another one, and no more is compared.
        """
        life = self._app.life
        if life.other_bytes:
            return self._app.runs.index(write.run) % 5
        return int(write.tag >= STRANGER and not life.alike)

    def partitions(self, write: Write, task: int) -> list[int]:
        """Of each row of a task: the same each time, unless it had none at first."""
        app, alike, part = self._app, self._app.life.alike, write.part or 0
        if write.empty or (app.life.kind is Kind.TRANSACTION and write.part is None):
            return []
        if alike:
            return app.rows(write.tag % STRANGER, task)
        rows = app.rows(write.tag, task + 100 * part)
        # A stranger's batch has other rows, and more of them; as has each write of a block.
        return [*rows, *[0] * part * bool(rows), *([0, 1] if write.tag >= STRANGER else ())]
