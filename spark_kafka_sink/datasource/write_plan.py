"""The plan of a write: options, columns, cluster, and with exactly-once the state of the commit
log; and its execution.

Owns: :class:`WritePlan`, made on the driver, and its three uses: ``write`` in a task, ``commit``
and ``abort`` on the driver again, in another process. Never: the names of Spark's writer classes
(``source``).

State that ``write`` leaves in a plan never reaches ``commit``: Spark pickles the plan for each of
them. Only commit messages are sent back.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    CommitError,
    IllegalStateError,
    KafkaError,
    named,
    safe_text,
    warn,
)
from spark_kafka_sink.base.security.secret_references import UnresolvedReferenceError
from spark_kafka_sink.base.version import __version__
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.exactly_once.checkpoint import Checkpoint
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.package_digest import package_digest
from spark_kafka_sink.datasource.process_logging import configure_logging
from spark_kafka_sink.datasource.report.destinations import publish, topic_record
from spark_kafka_sink.datasource.report.failed_attempts import FailedAttempts
from spark_kafka_sink.datasource.report.kept_reports import is_kept, known_application
from spark_kafka_sink.datasource.report.log_line import failure_of
from spark_kafka_sink.datasource.report.report_of_batch import (
    after_commit,
    error_report,
    outcome_of_error,
    report_of_attempt,
    report_of_batch,
    with_failures,
)
from spark_kafka_sink.datasource.report.write_report import Outcome, WriteReport
from spark_kafka_sink.datasource.worker_heap import freeze_modules
from spark_kafka_sink.datasource.write.commit_message import (
    TaskCommitMessage,
    TaskCounts,
    checked_messages,
    finished_messages,
)
from spark_kafka_sink.datasource.write.letter_counts import STAYS, check_letters, listed
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.records.bad_rows.topic_limits import TopicLimits
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.transactions.ownership import Numbering

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage

    from spark_kafka_sink.datasource.write.dead_letters import DeadLetters
    from spark_kafka_sink.datasource.write.rate_limit import RateLimit
    from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
    from spark_kafka_sink.datasource.write.task_progress import Watcher
    from spark_kafka_sink.datasource.write.write_task import ProducerSource, WriteTask

_log = logging.getLogger(__name__)

#: Tasks that a log line lists.
_NAMED_TASKS = 10


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The plan of a batch or micro-batch. Immutable and picklable.

    ``cluster`` is the preflight's, or None; ``transactions`` is None without exactly-once,
    and at the commit and abort of a stream. ``driver`` is the token of ``driver_identity``, empty
    in batch jobs, as ``query_name``. ``limits`` are what the topics accept, as far as it is known.
    ``package_version`` and ``package_files`` (a digest) are the driver's.
    """

    config: SinkConfig
    columns: ColumnPlan
    cluster: Cluster | None
    transactions: TransactionPlan | None = None
    driver: str = ""
    limits: Mapping[str, TopicLimits] = field(default_factory=dict)
    query_name: str = ""
    failed: FailedAttempts = field(default_factory=FailedAttempts)
    package_version: str = __version__
    package_files: str = field(default_factory=package_digest)

    def write(
        self, batches: Iterator[pa.RecordBatch], columns: ColumnPlan | None = None
    ) -> TaskCommitMessage:
        """Writes one partition in this worker process; ``columns`` replaces the plan's."""
        task = None
        try:
            self._check_package()
            task = self._task(columns)
            return self._run(task, batches)
        except BaseException as error:
            self._leave(task, error)
            raise

    def _task(self, columns: ColumnPlan | None) -> WriteTask:
        from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
        from spark_kafka_sink.datasource.write.task_progress import progress_listener
        from spark_kafka_sink.datasource.write.write_task import WriteTask

        plan = self.transactions
        if plan is None and self.config.is_exactly_once:
            # Without transactions the rows would be visible immediately, and could not be aborted.
            raise IllegalStateError(
                "this write was planned without reading the commit log, so it can't be "
                "exactly-once",
                hint="Spark planned it in a way that spark-kafka-sink doesn't support: please "
                "report it with this line and the version of Spark",
            )
        identity = TaskIdentity.current()
        if identity.partition_id == identity.attempt == 0:
            self.failed.tell(identity)
        return WriteTask(
            columns or self.columns,
            self._producers(identity),
            identity,
            transaction_time=None if plan is None else plan.time,
            rate=self._rate(),
            dead_letters=self._dead_letters(identity),
            progress_listeners=[progress_listener(p) for p in self.config.progress_listeners],
            watcher=self._watcher(identity),
        )

    def _run(self, task: WriteTask, batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        plan = self.transactions
        try:
            if plan is not None and plan.is_done(task.identity):
                _log.info(
                    "task %d writes nothing: its batch is committed already",
                    task.identity.partition_id,
                )
                return task.drop(batches, count=plan.counts_replays)
            return task.run(batches)
        except UnresolvedReferenceError as error:
            raise error.seen_by("an executor") from None
        finally:
            freeze_modules()

    def _leave(self, task: WriteTask | None, error: BaseException) -> None:
        """Leaves the attempt's error for the report of its batch. Never raises: Spark must get
        that error.
        """
        from spark_kafka_sink.datasource.write.task_identity import TaskIdentity

        with contextlib.suppress(Exception):
            attempt = (
                TaskCommitMessage(
                    TaskIdentity.current(), ProduceReport(), TaskCounts(), _now_ms(), 0
                )
                if task is None
                else task.so_far
            )
            self.failed.leave(report_of_attempt(self.config, attempt, error))

    def _watcher(self, identity: TaskIdentity) -> Watcher | None:
        if self.config.progress_topic is None:
            return None
        from spark_kafka_sink.datasource.write.worker_progress import this_worker

        return this_worker(self.config.producer, self.config.progress_topic, identity)

    def _check_package(self) -> None:
        # (The plan of another version may have no such field: its version is compared first.)
        if self.package_version != __version__:
            here, there = __version__, self.package_version
        elif self.package_files != package_digest():
            here = f"{__version__} with the files {package_digest()}"
            there = f"{self.package_version} with the files {self.package_files}"
        else:
            return
        raise IllegalStateError(
            f"spark-kafka-sink is {there} on the driver and {here} on this executor",
            hint="install the same package on both",
            kind=Kind.VERSIONS_DIFFER,
        )

    def _rate(self) -> RateLimit | None:
        """This task's share of the limits; None when there is none."""
        config = self.config
        if config.max_records_per_second is None and config.max_bytes_per_second is None:
            return None
        from spark_kafka_sink.datasource.write.rate_limit import RateLimit, tasks_at_once
        from spark_kafka_sink.datasource.write.task_identity import local_property

        return RateLimit(config, tasks_at_once(config, local_property))

    def _dead_letters(self, identity: TaskIdentity) -> DeadLetters | None:
        """None with errors.tolerance=none."""
        options, config, plan = self.config.dead_letters, self.config, self.transactions
        if options is None:
            return None
        from spark_kafka_sink.datasource.checks.topic_checks import forbidden_topics
        from spark_kafka_sink.datasource.write.dead_letters import DeadLetters
        from spark_kafka_sink.records.letters.letter_writer import LetterWriter
        from spark_kafka_sink.records.letters.row_limits import RowLimits

        number = identity.batch_id
        if number < 0 and plan is not None and plan.numbering is Numbering.MICRO_BATCHES:
            number = -1 if plan.number is None else plan.number  # of foreach_batch
        name = config.transactional_id_prefix or config.txn_app_id or identity.query_name
        of_rows, of_letters = (
            RowLimits(config.producer, self.limits.get(topic or "", TopicLimits()))
            for topic in (self.columns.topic, options.topic)
        )
        writer = LetterWriter(options, of_letters, name or "kprod", identity.partition_id, number)
        forbidden = partial(forbidden_topics, config.producer)
        return DeadLetters(writer, self.columns.topic, of_rows, forbidden)

    def _producers(self, identity: TaskIdentity) -> ProducerSource:
        if self.transactions is not None:
            from spark_kafka_sink.datasource.exactly_once.transactional_producers import (
                producers_of_task,
            )

            return producers_of_task(
                self.transactions, self.config.producer, self.cluster, identity
            )
        from spark_kafka_sink.datasource.write import producer_cache

        return producer_cache.CachedProducers(
            producer_cache.process_cache(),
            producer_cache.effective_config(self.config.producer, identity.app_id),
            self.cluster,
        )

    def commit(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int | None = None
    ) -> None:
        """Confirms a batch: every task's message is present; with exactly-once, commits every
        transaction.

        ``batch_id`` is the micro-batch's, None for a batch job. Raises CommitError; then nothing
        is undone: with at-least-once the rows stay in Kafka, and Spark may write them again.
        """
        begun = time.monotonic()
        report = None
        try:
            checked = checked_messages(messages)
            # Before the commit, whose decision includes it (reportTopic); the result follows.
            report = report_of_batch(self.config, checked, Outcome.COMMITTED, batch_id=batch_id)
            with self._watched_commit(checked):
                outcome = self._committed(checked, batch_id, report)
            self.failed.end()
        except KafkaError as error:
            if report is None:
                report = self._report_of_some(messages, Outcome.FAILED, batch_id)
            publish(
                after_commit(report, outcome_of_error(error), error, _since(begun)), self.config
            )
            raise
        publish(after_commit(report, outcome, None, _since(begun)), self.config)
        freeze_modules()

    def _watched_commit(
        self, messages: Sequence[TaskCommitMessage]
    ) -> AbstractContextManager[object]:
        topic = self.config.progress_topic
        if topic is None or not messages or not self.config.is_exactly_once:
            return nullcontext()
        from spark_kafka_sink.datasource.write.worker_progress import watched_commit

        return watched_commit(self.config.producer, topic, messages[0].identity)

    def _committed(
        self, messages: tuple[TaskCommitMessage, ...], batch_id: int | None, report: WriteReport
    ) -> Outcome:
        for message in messages:
            if batch_id is not None and message.identity.batch_id not in (-1, batch_id):
                raise CommitError(
                    f"the commit of micro-batch {batch_id} was given a message of micro-batch "
                    f"{message.identity.batch_id} (task {message.identity.partition_id})"
                )
        if (limits := self.config.dead_letters) and (letters := report.dead_letters):
            if self.transactions is not None and self.transactions.is_of_block:
                limits = replace(limits, max_fraction=None)  # of the rows of all writes
            stays = STAYS[self.config.is_exactly_once]
            then = f"so the batch fails; {stays}: {listed(letters.by_reason)}"
            check_letters(limits, letters.total, report.rows_in, then)
        if not self.config.is_exactly_once:
            return Outcome.ACKNOWLEDGED
        from spark_kafka_sink.datasource.exactly_once import transaction_commit

        configure_logging()
        topic = self.config.report_topic
        commit = transaction_commit.commit(
            self.config,
            self.transactions,
            messages,
            batch_id,
            None if topic is None else topic_record(report, topic),
        )
        return Outcome(commit.value)

    def _report_of_some(
        self,
        messages: Sequence[WriterCommitMessage | None],
        outcome: Outcome,
        batch_id: int | None,
        error: KafkaError | None = None,
    ) -> WriteReport:
        """The report of a batch without some tasks' messages."""
        return report_of_batch(
            self.config,
            finished_messages(messages),
            outcome,
            batch_id=batch_id,
            error=error,
            unfinished=_unfinished(messages),
        )

    def abort(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int | None = None
    ) -> None:
        """Logs what stays in Kafka; with exactly-once, aborts what is not decided.

        Never raises: Spark would show that instead of the cause. It may follow a commit that
        succeeded, partly or completely.
        """
        try:
            configure_logging()
            report = self._report_of_abort(messages, batch_id)
            if self.config.is_exactly_once:
                problem = self._abort_transactions(messages, batch_id, report)
                if problem is not None and not report.failed_attempts:
                    report = replace(report, error=error_report(problem))
            else:
                warn(
                    _log,
                    Kind.WRITE_FAILED,
                    "kprod write%s failed: %d of %d tasks had finished%s; their %d rows, and what "
                    "others had sent, stay in Kafka and are written again when the batch is; %s",
                    "" if batch_id is None else f" of micro-batch {batch_id}",
                    report.tasks - report.unfinished_tasks,
                    report.tasks,
                    _names(report),
                    report.rows,
                    failure_of(report),
                )
            # Spark aborts after a failed commit, too, which has published a report.
            if not is_kept(report):
                with contextlib.suppress(Exception):  # (It reads a file, too.)
                    report = self._of_its_query(report)
                publish(report, self.config)
        except Exception:  # noqa: BLE001 - the user needs the original error
            return

    def _report_of_abort(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int | None
    ) -> WriteReport:
        report = self._report_of_some(messages, Outcome.ABORTED, batch_id)
        # Files are read for it; none of them may keep transactions open.
        with contextlib.suppress(Exception):
            begun_ms, told = self.failed.begun_ms, self.failed.told
            attempts = self.failed.take(batch_id)
            report = self._identified(with_failures(report, attempts, begun_ms, told))
        return report

    def _identified(self, report: WriteReport) -> WriteReport:
        """With what the driver knows itself, when no task left it."""
        name = report.query_name or safe_text(self.query_name) or None
        application = report.application_id, report.application_name
        if report.application_id is None:
            application = known_application()
        return replace(
            report,
            query_name=name,
            application_id=application[0],
            application_name=application[1],
        )

    def _of_its_query(self, report: WriteReport) -> WriteReport:
        """With the query id, which the checkpoint has when no task left it. An object store may not
        respond for minutes: not before the transactions are aborted.
        """
        checkpoint = self.config.checkpoint_location
        if report.query_id is not None or report.batch_id is None or checkpoint is None:
            return report
        return replace(report, query_id=Checkpoint(checkpoint).known_query_id() or None)

    def _abort_transactions(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batch_id: int | None,
        report: WriteReport,
    ) -> KafkaError | None:
        """The error why transactions may still be open; None when they are not."""
        from spark_kafka_sink.datasource.exactly_once import transaction_commit

        what = "kprod write" if batch_id is None else f"kprod write of micro-batch {batch_id}"
        finished = finished_messages(messages)
        try:
            swept = transaction_commit.abort(
                self.config,
                self.transactions,
                finished,
                batch_id,
                tasks_may_run=len(finished) < len(messages),
                driver_token=self.driver,
            )
        except KafkaError as error:
            warn(
                _log,
                Kind.NOT_ABORTED,
                "%s failed, and its transactions could not be aborted (%s); brokers abort them "
                "after kafka.transaction.timeout.ms (%d); %s",
                what,
                error.message,
                self.config.producer.transaction_timeout_ms,
                failure_of(report),
            )
            return error
        warn(
            _log,
            Kind.WRITE_ABORTED,
            "%s failed: %d of %d tasks had finished%s; of their %d rows nothing is visible to "
            "read_committed consumers, unless the batch was decided before. Orphaned transactions "
            "ended: %d; %s",
            what,
            len(finished),
            len(messages),
            _names(report),
            report.rows,
            len(swept),
            failure_of(report),
        )
        return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _since(begun: float) -> int:
    """In milliseconds."""
    return round((time.monotonic() - begun) * 1000)


def _unfinished(messages: Sequence[WriterCommitMessage | None]) -> list[int]:
    """The tasks without a readable message."""
    return [i for i, one in enumerate(messages) if not isinstance(one, TaskCommitMessage)]


def _names(report: WriteReport) -> str:
    """Some of the unfinished tasks, for a log line."""
    if not report.unfinished:
        return ""
    return f" (not task {named(report.unfinished, _NAMED_TASKS)})"
