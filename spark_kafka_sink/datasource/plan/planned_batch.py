"""Commits or aborts the batch of a :class:`WritePlan` on the driver, and publishes its report.

This module checks the tasks' commit messages, creates the batch's report from them, and sends the
report to its destinations. ``exactly_once/transaction_commit.py`` ends the transactions.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    CommitError,
    DeliveryError,
    KafkaError,
    named,
    safe_text,
    warn,
)
from spark_kafka_sink.datasource.process.process_logging import configure_logging
from spark_kafka_sink.datasource.process.worker_heap import freeze_modules
from spark_kafka_sink.datasource.report.destinations import publish, topic_record
from spark_kafka_sink.datasource.report.kept_reports import is_kept, known_application
from spark_kafka_sink.datasource.report.log_line import failure_of
from spark_kafka_sink.datasource.report.report_of_batch import (
    after_commit,
    error_report,
    outcome_of_error,
    report_of_batch,
    with_attempts,
    with_failures,
)
from spark_kafka_sink.datasource.report.write_report import WriteOutcome, WriteReport
from spark_kafka_sink.datasource.write.commit_message import (
    TaskCommitMessage,
    checked_messages,
    finished_messages,
)
from spark_kafka_sink.datasource.write.letter_counts import STAYS, check_letters, listed

if TYPE_CHECKING:
    from pyspark.sql.datasource import WriterCommitMessage

    from spark_kafka_sink.datasource.plan.write_plan import WritePlan
    from spark_kafka_sink.transactions.results import AbortResult, Visible

_log = logging.getLogger(__name__)

#: Tasks that a log line lists.
_NAMED_TASKS = 10
_UNLESS_COMMITTED = ", unless the batch was committed before"


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """Commits or aborts the batch of ``plan``. Runs on the driver, when Spark has ended the
    stage.
    """

    plan: WritePlan

    def commit(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int | None = None
    ) -> None:
        """Checks that every task has sent a commit message. With exactly-once, commits the
        transactions. Then publishes the batch's report, also if the commit fails.

        ``batch_id`` is the micro-batch's id, or None for a batch job. If a message is missing, or
        if there are too many dead letters, raises one of these errors:

        * With exactly-once, CommitError.
        * With other guarantees, DeliveryError. The rows that were sent stay in Kafka, and Spark may
          write them again.

        With exactly-once, also raises the errors of :meth:`Committer.commit`.
        """
        begun = time.monotonic()
        report = None
        try:
            checked = checked_messages(messages, self._not_confirmed)
            # Before the commit, whose decision includes it (reportTopic); the result follows.
            report = report_of_batch(
                self.plan.config, checked, WriteOutcome.COMMITTED, batch_id=batch_id
            )
            with contextlib.suppress(Exception):  # files are read; none of them may fail a commit
                report = with_attempts(report, self.plan.failed.left(batch_id))
            with self._watched_commit(checked):
                outcome, why = self._committed(checked, batch_id, report)
            self.plan.failed.end()
        except KafkaError as error:
            if report is None:
                report = self._report_of_some(messages, WriteOutcome.FAILED, batch_id)
            publish(
                after_commit(report, self._outcome_of(error), error, _since(begun)),
                self.plan.config,
            )
            raise
        report = after_commit(report, outcome, why, _since(begun))
        publish(report, self.plan.config)
        freeze_modules()

    def _outcome_of(self, error: KafkaError) -> WriteOutcome:
        """The outcome of the batch after the commit has raised ``error``."""
        transactions = self.plan.transactions
        if transactions is None or not transactions.aborts_block:
            return outcome_of_error(error)
        is_unknown = self._may_be_committed(all_finished=True)
        return WriteOutcome.UNKNOWN if is_unknown else WriteOutcome.ABORTED

    def _may_be_committed(self, *, all_finished: bool) -> bool:
        """Whether the batch may be committed although its abort has failed."""
        from spark_kafka_sink.datasource.exactly_once import transaction_commit

        return transaction_commit.may_be_committed(
            self.plan.transactions, all_finished=all_finished
        )

    @property
    def _not_confirmed(self) -> type[KafkaError]:
        """The class of the error for a batch that fails the checks of :meth:`commit`. With
        exactly-once, the class is CommitError. With other guarantees, the class is DeliveryError,
        because rows of the batch are already visible.
        """
        return CommitError if self.plan.config.is_exactly_once else DeliveryError

    def _watched_commit(
        self, messages: Sequence[TaskCommitMessage]
    ) -> AbstractContextManager[object]:
        topic = self.plan.config.progress_topic
        if topic is None or not messages or not self.plan.config.is_exactly_once:
            return nullcontext()
        from spark_kafka_sink.datasource.write.worker_progress import watched_commit

        return watched_commit(self.plan.config.producer, topic, messages[0].identity)

    def _committed(
        self, messages: tuple[TaskCommitMessage, ...], batch_id: int | None, report: WriteReport
    ) -> tuple[WriteOutcome, KafkaError | None]:
        """Commits the batch, or aborts its block if the write is to abort it. Returns the outcome,
        and the error for the report if the block is not known to be committed.
        """
        for message in messages:
            if batch_id is not None and message.identity.batch_id not in (-1, batch_id):
                raise self._not_confirmed(
                    f"the commit of micro-batch {batch_id} was given a message of micro-batch "
                    f"{message.identity.batch_id} (task {message.identity.partition_id})"
                )
        if (limits := self.plan.config.dead_letters) and (letters := report.dead_letters):
            if self.plan.transactions is not None and self.plan.transactions.is_of_block:
                limits = replace(limits, max_fraction=None)  # of the rows of all writes
            stays = STAYS[self.plan.config.is_exactly_once]
            then = f"so the batch fails; {stays}: {listed(letters.by_reason)}"
            check_letters(limits, letters.total, report.rows_in, then, self._not_confirmed)
        if not self.plan.config.is_exactly_once:
            return WriteOutcome.ACKNOWLEDGED, None
        from spark_kafka_sink.datasource.exactly_once import transaction_commit

        configure_logging()
        config, transactions = self.plan.config, self.plan.transactions
        if transactions is not None and transactions.aborts_block:
            found = transaction_commit.abort_block(config, transactions, messages)
            return self._of_aborted_block(found, report)
        topic = config.report_topic
        record = None if topic is None else topic_record(report, topic)
        commit = transaction_commit.commit(config, transactions, messages, batch_id, record)
        return WriteOutcome(commit.value), None

    def _of_aborted_block(
        self, found: AbortResult, report: WriteReport
    ) -> tuple[WriteOutcome, KafkaError | None]:
        """Logs that the block is aborted, and returns the outcome and the error for the report of
        the write that was to abort the block.
        """
        outcome = _outcome_of_abort(found.visible, WriteOutcome.DONE_BEFORE)
        error = _block_was_aborted() if outcome is WriteOutcome.ABORTED else found.error
        # (A success is logged with its report, and the abort has logged a decision.)
        if error is not None and not found.is_decided:
            warn(
                _log,
                Kind.WRITE_ABORTED,
                "kprod write: the transaction block of batch %d is aborted%s; %s",
                self.plan.config.txn_version,
                "" if outcome is WriteOutcome.ABORTED else _UNLESS_COMMITTED,
                failure_of(replace(report, error=error_report(error))),
            )
        return outcome, error

    def _report_of_some(
        self,
        messages: Sequence[WriterCommitMessage | None],
        outcome: WriteOutcome,
        batch_id: int | None,
        error: KafkaError | None = None,
    ) -> WriteReport:
        """The report of a batch, from the commit messages of the tasks that have sent a message.
        The other tasks are listed as unfinished.
        """
        return report_of_batch(
            self.plan.config,
            finished_messages(messages),
            outcome,
            batch_id=batch_id,
            error=error,
            unfinished=_unfinished(messages),
        )

    def abort(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int | None = None
    ) -> None:
        """Ends a failed batch, and publishes its report. Never raises an error. Spark may also call
        this method after a commit that succeeded partly or completely.

        * With exactly-once, aborts the batch's transactions. If the decision to commit them is
          already recorded, they are not aborted.
        * Without exactly-once, logs the number of rows that stay in Kafka.

        If the failed commit has already published a report, no second report is published.
        """
        try:
            configure_logging()
            report = self._report_of_abort(messages, batch_id)
            if self.plan.config.is_exactly_once:
                report = self._abort_transactions(messages, batch_id, report)
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
            # Spark also aborts after a failed commit, and that commit has published a report.
            if not is_kept(report):
                with contextlib.suppress(Exception):  # (_of_its_query reads a file.)
                    report = self._of_its_query(report)
                publish(report, self.plan.config)
        # Spark would show an error of this method in place of the error that caused the abort.
        except Exception:  # noqa: BLE001 - the user needs the original error
            return

    def _report_of_abort(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int | None
    ) -> WriteReport:
        report = self._report_of_some(messages, WriteOutcome.ABORTED, batch_id)
        # Files are read here. An error of reading must not keep transactions open.
        with contextlib.suppress(Exception):
            begun_ms, told = self.plan.failed.begun_ms, self.plan.failed.told
            attempts = self.plan.failed.take(batch_id)
            report = self._identified(with_failures(report, attempts, begun_ms, told))
        return report

    def _identified(self, report: WriteReport) -> WriteReport:
        """Adds the name of the query and the application to a report that lacks them, as far as the
        driver knows them.
        """
        name = report.query_name or safe_text(self.plan.query_name) or None
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
        """Adds the query id from the checkpoint to the report, if no task has sent a query id.

        Call this method after the transactions are aborted: it can block for minutes, because the
        checkpoint may be in an object store that does not respond.
        """
        checkpoint = self.plan.config.checkpoint_location
        if report.query_id is not None or report.batch_id is None or checkpoint is None:
            return report
        from spark_kafka_sink.datasource.exactly_once.checkpoint import Checkpoint

        return replace(report, query_id=Checkpoint(checkpoint).known_query_id() or None)

    def _abort_transactions(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batch_id: int | None,
        report: WriteReport,
    ) -> WriteReport:
        """Aborts the batch's transactions. Returns ``report`` with the result: the error if the
        abort has failed, or another outcome if the batch is already decided or committed. After a
        failed abort, some of the transactions may still be open.
        """
        from spark_kafka_sink.datasource.exactly_once import transaction_commit
        from spark_kafka_sink.transactions.results import AbortResult

        what = "kprod write" if batch_id is None else f"kprod write of micro-batch {batch_id}"
        finished = finished_messages(messages)
        all_finished = len(finished) == len(messages)
        try:
            found = transaction_commit.abort(
                self.plan.config,
                self.plan.transactions,
                finished,
                batch_id,
                tasks_may_run=not all_finished,
                driver_token=self.plan.driver,
            )
        except KafkaError as error:
            unknown = None
            if self._may_be_committed(all_finished=all_finished) and self._has_commit(
                finished, batch_id
            ):
                unknown = transaction_commit.perhaps_committed(
                    self.plan.config, self.plan.transactions, batch_id, error
                )
            return self._with_failed_abort(report, what, error, unknown)
        outcome = _outcome_of_abort(found.visible, WriteOutcome.COMMITTED)
        if outcome is not WriteOutcome.ABORTED and not self._has_commit(finished, batch_id):
            # (Nothing of it can be visible, and its report is not committed with it.)
            is_done, found = outcome is WriteOutcome.COMMITTED, AbortResult(found.swept)
            outcome = WriteOutcome.NO_ROWS if is_done else WriteOutcome.ABORTED
        kind, fate = _fate(found, report.rows)
        warn(
            _log,
            kind,
            "%s failed: %d of %d tasks had finished%s; %s. Orphaned transactions ended: %d; %s",
            what,
            len(finished),
            len(messages),
            _names(report),
            fate,
            len(found.swept),
            failure_of(report),
        )
        if outcome is WriteOutcome.ABORTED:
            return report
        why = None if found.error is None else error_report(found.error)
        return replace(report, outcome=outcome, error=why)

    def _with_failed_abort(
        self, report: WriteReport, what: str, error: KafkaError, unknown: KafkaError | None
    ) -> WriteReport:
        """Logs that the abort of the batch has failed with ``error``. Returns ``report`` with the
        outcome and the error. ``what`` names the write. ``unknown`` is the error of the report if
        the batch may be committed, and None if not.
        """
        # (As a rule, a commit that has begun has failed for the same cause.)
        warn(
            _log,
            Kind.NOT_ABORTED,
            "%s failed, and its transactions could not be aborted (%s); brokers abort %s "
            "after kafka.transaction.timeout.ms (%d)%s; %s",
            what,
            error.message,
            "them" if unknown is None else "those that are still open",
            self.plan.config.producer.transaction_timeout_ms,
            "" if unknown is None else ", and a commit of them may have begun",
            failure_of(report),
        )
        if unknown is not None:
            return replace(report, outcome=WriteOutcome.UNKNOWN, error=error_report(unknown))
        return report if report.failed_attempts else replace(report, error=error_report(error))

    def _has_commit(self, finished: Sequence[TaskCommitMessage], batch_id: int | None) -> bool:
        from spark_kafka_sink.datasource.exactly_once import transaction_commit

        config, transactions = self.plan.config, self.plan.transactions
        return transaction_commit.has_commit(config, transactions, finished, batch_id)


def _fate(found: AbortResult, rows: int) -> tuple[Kind, str]:
    """The code and a part of the warning about a batch that Spark has aborted: whether its ``rows``
    rows are visible.
    """
    from spark_kafka_sink.transactions.results import Visible

    if found.is_decided:
        fate = "the batch of their %d rows is decided, so it is not aborted"
        return Kind.DECIDED_NOT_ABORTED, fate % rows
    if found.visible is Visible.ALL:
        fate = "the batch was committed before, so their %d rows are visible to consumers"
        return Kind.DECIDED_NOT_ABORTED, fate % rows
    if found.visible is Visible.SOME:
        fate = "the batch was committed before in part, so some of their %d rows are visible"
        return Kind.DECIDED_NOT_ABORTED, fate % rows
    fate = "of their %d rows nothing is visible to read_committed consumers"
    if found.visible is Visible.UNKNOWN:
        fate += _UNLESS_COMMITTED
    return Kind.WRITE_ABORTED, fate % rows


def _block_was_aborted() -> KafkaError:
    """The error in the report of a write that has aborted its ``transaction`` block."""
    return KafkaError(
        "the transaction block was aborted",
        hint="look for the exception that the code in the block has raised",
        kind=Kind.TASK_STOPPED,
    )


def _outcome_of_abort(visible: Visible, committed: WriteOutcome) -> WriteOutcome:
    """The outcome of an abort, by the rows that are visible after it. ``committed`` is the outcome
    if all are visible: DONE_BEFORE for the write that was to abort its ``transaction`` block, which
    has no rows of its own.
    """
    from spark_kafka_sink.transactions.results import Visible

    outcomes = {
        Visible.ALL: committed,
        Visible.SOME: WriteOutcome.PARTIAL,
        Visible.NONE: WriteOutcome.ABORTED,
    }
    return outcomes.get(visible, WriteOutcome.UNKNOWN)


def _since(begun: float) -> int:
    """The milliseconds since ``begun``, a value of ``time.monotonic``."""
    return round((time.monotonic() - begun) * 1000)


def _unfinished(messages: Sequence[WriterCommitMessage | None]) -> list[int]:
    """The numbers of the tasks without a readable commit message."""
    return [i for i, one in enumerate(messages) if not isinstance(one, TaskCommitMessage)]


def _names(report: WriteReport) -> str:
    """The numbers of unfinished tasks as text for a log line, such as `` (not task 3, 7)``. Empty
    if every task has finished.
    """
    if not report.unfinished:
        return ""
    return f" (not task {named(report.unfinished, _NAMED_TASKS)})"
