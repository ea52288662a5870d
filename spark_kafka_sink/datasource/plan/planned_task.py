"""Runs a task of a :class:`WritePlan` in a worker: writes one partition of the DataFrame.

This module creates the objects that a :class:`WriteTask` needs, such as its rate limit. If the
attempt fails, this module stores a report of the attempt.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.base.security.secret_references import UnresolvedReferenceError
from spark_kafka_sink.base.version import __version__
from spark_kafka_sink.datasource.process.package_digest import package_digest
from spark_kafka_sink.datasource.process.worker_heap import freeze_modules
from spark_kafka_sink.datasource.process.worker_memory import memory_error
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage, TaskCounts
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from spark_kafka_sink.records.bad_rows.topic_limits import TopicLimits
from spark_kafka_sink.records.column_plan import ColumnPlan

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.datasource.plan.write_plan import WritePlan
    from spark_kafka_sink.datasource.write.dead_letters import DeadLetters
    from spark_kafka_sink.datasource.write.producer_cache import ProducerFactory
    from spark_kafka_sink.datasource.write.rate_limit import RateLimit
    from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
    from spark_kafka_sink.datasource.write.task_progress import Watcher
    from spark_kafka_sink.datasource.write.write_task import ProducerSource, WriteTask

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """The task that writes one partition of the DataFrame, in a worker process."""

    plan: WritePlan

    def run(
        self, batches: Iterator[pa.RecordBatch], columns: ColumnPlan | None = None
    ) -> TaskCommitMessage:
        """Writes the rows of one partition of the DataFrame. Returns the commit message for the
        driver. If the batch is already committed, nothing is written.

        ``columns`` replaces the plan's columns on pyspark 4.0, where the Arrow batches of a stream
        have other column indices (``RowAdapter``). If the attempt fails, its report is stored, and
        its error is raised.
        """
        task = None
        try:
            self._check_package()
            task = self._task(columns)
            return self._written(task, batches)
        except BaseException as error:
            self._leave(task, memory_error(error) or error)
            raise

    def _task(self, columns: ColumnPlan | None) -> WriteTask:
        from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
        from spark_kafka_sink.datasource.write.task_progress import progress_listener
        from spark_kafka_sink.datasource.write.write_task import WriteTask

        transactions = self.plan.transactions
        if transactions is None and self.plan.config.is_exactly_once:
            # Without transactions the rows would be visible immediately, and could not be aborted.
            raise IllegalStateError(
                "this write was planned without reading the commit log, so it can't be "
                "exactly-once",
                hint="Spark planned it in a way that spark-kafka-sink doesn't support: please "
                "report it with this line and the version of Spark",
            )
        identity = TaskIdentity.current()
        if identity.partition_id == identity.attempt == 0:
            self.plan.failed.tell(identity)
        return WriteTask(
            columns or self.plan.columns,
            self._producers(identity),
            identity,
            transaction_time=None if transactions is None else transactions.time,
            rate=self._rate(),
            dead_letters=self._dead_letters(identity),
            progress_listeners=[progress_listener(p) for p in self.plan.config.progress_listeners],
            watcher=self._watcher(identity),
        )

    def _written(self, task: WriteTask, batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        transactions = self.plan.transactions
        try:
            if transactions is not None and transactions.is_done(task.identity):
                _log.info(
                    "task %d writes nothing: its batch is committed already",
                    task.identity.partition_id,
                )
                return task.drop(batches, count=transactions.counts_replays)
            return task.run(batches)
        except UnresolvedReferenceError as error:
            raise error.seen_by("an executor") from None
        finally:
            freeze_modules()

    def _leave(self, task: WriteTask | None, error: BaseException) -> None:
        """Stores a report of this failed attempt in a file. The driver reads the file, and adds its
        content to the batch's report. Never raises, because Spark must get the error of the
        attempt.
        """
        from spark_kafka_sink.datasource.report.report_of_batch import report_of_attempt
        from spark_kafka_sink.datasource.write.task_identity import TaskIdentity

        with contextlib.suppress(Exception):
            attempt = (
                TaskCommitMessage(
                    TaskIdentity.current(), ProduceReport(), TaskCounts(), _now_ms(), 0
                )
                if task is None
                else task.so_far
            )
            self.plan.failed.leave(report_of_attempt(self.plan.config, attempt, error))

    def _watcher(self, identity: TaskIdentity) -> Watcher | None:
        if self.plan.config.progress_topic is None:
            return None
        from spark_kafka_sink.datasource.write.worker_progress import this_worker

        return this_worker(self.plan.config.producer, self.plan.config.progress_topic, identity)

    def _check_package(self) -> None:
        # (The plan of another version may lack package_files: the version is compared first.)
        if self.plan.package_version != __version__:
            here, there = __version__, self.plan.package_version
        elif self.plan.package_files != package_digest():
            here = f"{__version__} with the files {package_digest()}"
            there = f"{self.plan.package_version} with the files {self.plan.package_files}"
        else:
            return
        raise IllegalStateError(
            f"spark-kafka-sink is {there} on the driver and {here} on this executor",
            hint="install the same package on both",
            kind=Kind.VERSIONS_DIFFER,
        )

    def _rate(self) -> RateLimit | None:
        """This task's share of the rate limits. None if no limit is set."""
        config = self.plan.config
        if config.max_records_per_second is None and config.max_bytes_per_second is None:
            return None
        from spark_kafka_sink.datasource.write.rate_limit import RateLimit, tasks_at_once
        from spark_kafka_sink.datasource.write.task_identity import local_property

        return RateLimit(config, tasks_at_once(config, local_property))

    def _dead_letters(self, identity: TaskIdentity) -> DeadLetters | None:
        """The collector of the task's dead letters. None with errors.tolerance=none."""
        options, config = self.plan.config.dead_letters, self.plan.config
        transactions = self.plan.transactions
        if options is None:
            return None
        from spark_kafka_sink.admin.admin_client import AdminClient
        from spark_kafka_sink.datasource.checks.topic_checks import TopicsNow, forbidden_topics
        from spark_kafka_sink.datasource.write.dead_letters import DeadLetters
        from spark_kafka_sink.records.letters.letter_writer import LetterWriter
        from spark_kafka_sink.records.letters.row_limits import RowLimits

        number = identity.batch_id
        if number < 0 and transactions is not None:
            number = transactions.number_of_foreach_batch
        name = config.transactional_id_prefix or config.txn_app_id or identity.query_name
        of_rows, of_letters = (
            RowLimits(config.producer, self.plan.limits.get(topic or "", TopicLimits()))
            for topic in (self.plan.columns.topic, options.topic)
        )
        writer = LetterWriter(options, of_letters, name or "kprod", identity.partition_id, number)
        forbidden = partial(forbidden_topics, config.producer)
        topics = TopicsNow(partial(AdminClient, config.producer))
        return DeadLetters(writer, self.plan.columns.topic, of_rows, forbidden, topics)

    def _producers(self, identity: TaskIdentity) -> ProducerSource:
        config = replace(
            self.plan.config.producer, max_leaders_per_task=self.plan.config.max_leaders_per_task
        )
        if self.plan.transactions is not None:
            from spark_kafka_sink.datasource.exactly_once.transactional_producers import (
                producers_of_task,
            )

            return producers_of_task(
                self.plan.transactions,
                config,
                self.plan.cluster,
                identity,
                factory=self._factory(identity),
            )
        from spark_kafka_sink.datasource.write import producer_cache

        return producer_cache.CachedProducers(
            producer_cache.process_cache(),
            producer_cache.effective_config(config, identity.app_id),
            self.plan.cluster,
            self._factory(identity),
        )

    def _factory(self, identity: TaskIdentity) -> ProducerFactory:
        from spark_kafka_sink.datasource.write.producer_cache import new_producer

        rate = self.plan.config.connections_per_second
        if rate is None:
            return new_producer
        from spark_kafka_sink.datasource.write.connection_pace import paced, wait_ms
        from spark_kafka_sink.datasource.write.rate_limit import tasks_at_once
        from spark_kafka_sink.datasource.write.task_identity import local_property

        tasks = tasks_at_once(self.plan.config, local_property)
        return paced(new_producer, wait_ms(identity.partition_id, tasks, rate))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
