"""What planning decides and a writer carries: options, columns, cluster, and with exactly-once how
far the commit log is; and what is done with it.

Owns: :class:`WritePlan`, made on the driver, and its three uses: ``write`` in a task, ``commit``
and ``abort`` on the driver again, in another process. Never: the names of Spark's writer classes
(``source``).

State that ``write`` leaves in a plan never reaches ``commit``: Spark pickles the plan to each of
them. Only commit messages travel back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink import __version__
from spark_kafka_sink.config.secret_references import UnresolvedReferenceError
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.write.commit_message import (
    TaskCommitMessage,
    checked_messages,
    finished_messages,
)
from spark_kafka_sink.datasource.write.write_report import (
    ACKNOWLEDGED,
    WriteReport,
    configure_driver_logging,
    publish,
)
from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import CommitError, IllegalStateError, KafkaError, warn
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.records.column_plan import ColumnPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage

    from spark_kafka_sink.datasource.write.write_task import ProducerSource, TaskIdentity

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """One batch's or micro-batch's plan. Immutable and picklable.

    ``cluster`` is what the preflight saw, or None; ``transactions`` is None without exactly-once,
    and at the commit and abort of a stream. ``driver`` is the token of ``driver_identity``, empty
    in batch jobs. ``package_version`` is the driver's.
    """

    config: SinkConfig
    columns: ColumnPlan
    cluster: Cluster | None
    transactions: TransactionPlan | None = None
    driver: str = ""
    package_version: str = __version__

    def write(
        self, batches: Iterator[pa.RecordBatch], columns: ColumnPlan | None = None
    ) -> TaskCommitMessage:
        """Writes one partition in this worker process; ``columns`` replaces the plan's own."""
        from spark_kafka_sink.datasource.write.write_task import TaskIdentity, WriteTask

        if self.package_version != __version__:
            raise IllegalStateError(
                f"spark-kafka-sink is {self.package_version} on the driver and {__version__} on "
                "this executor",
                hint="install the same version on both",
                kind=Kind.VERSIONS_DIFFER,
            )
        identity = TaskIdentity.current()
        plan = self.transactions
        if plan is None and self.config.is_exactly_once:
            # Without transactions the rows would be visible at once, and not to be taken back.
            raise IllegalStateError(
                "this write was planned without a look at the commit log, so it can't be "
                "exactly-once",
                hint="Spark planned it in a way that spark-kafka-sink doesn't know: please report "
                "it with this line and the version of Spark",
            )
        task = WriteTask(
            columns or self.columns,
            self._producers(identity),
            identity,
            transaction_time=None if plan is None else plan.time,
        )
        try:
            if plan is not None and plan.is_done(identity):
                _log.info(
                    "task %d writes nothing: its batch is committed already", identity.partition_id
                )
                return task.drop(batches, look=plan.verify)
            return task.run(batches)
        except UnresolvedReferenceError as error:
            raise error.seen_by("an executor") from None

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
        """Vouches for a batch: every task's message is there, whole, and of our version; with
        exactly-once, every transaction is committed.

        ``batch_id`` is the micro-batch's, None for a batch job. Raises CommitError; then nothing
        is undone: with at-least-once the rows stay in Kafka, and Spark may write them again.
        """
        checked = checked_messages(messages)
        for message in checked:
            if batch_id is not None and message.batch_id not in (-1, batch_id):
                raise CommitError(
                    f"the commit of micro-batch {batch_id} was given a message of micro-batch "
                    f"{message.batch_id} (task {message.partition_id})"
                )
        outcome = ACKNOWLEDGED
        if self.config.is_exactly_once:
            from spark_kafka_sink.datasource.exactly_once import transaction_commit

            configure_driver_logging()
            outcome = transaction_commit.commit(
                self.config, self.transactions, checked, batch_id
            ).value
        wall_ms = time.time_ns() // 1_000_000
        report = WriteReport.of(checked, self.config.delivery_guarantee, outcome)
        publish(report, self.config.report_path, wall_ms)

    def abort(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int | None = None
    ) -> None:
        """Says what stays behind; with exactly-once, undoes what is not decided.

        Never raises: Spark would show that in place of the cause. It may follow a commit that
        succeeded, in part or in full.
        """
        try:
            finished = finished_messages(messages)
            configure_driver_logging()
            if self.config.is_exactly_once:
                self._abort_transactions(messages, finished, batch_id)
                return
            warn(
                _log,
                Kind.WRITE_FAILED,
                "kprod write%s failed: %d of %d tasks had finished; their %d rows, and what others "
                "had sent, stay in Kafka and are written again when the batch is",
                "" if batch_id is None else f" of micro-batch {batch_id}",
                len(finished),
                len(messages),
                sum(message.rows for message in finished),
            )
        except Exception:  # noqa: BLE001 - the user needs the error that led here
            return

    def _abort_transactions(
        self,
        messages: Sequence[WriterCommitMessage | None],
        finished: Sequence[TaskCommitMessage],
        batch_id: int | None,
    ) -> None:
        from spark_kafka_sink.datasource.exactly_once import transaction_commit

        what = "kprod write" if batch_id is None else f"kprod write of micro-batch {batch_id}"
        try:
            swept = transaction_commit.abort(
                self.config,
                self.transactions,
                finished,
                batch_id,
                tasks_may_live=len(finished) < len(messages),
                driver_token=self.driver,
            )
        except KafkaError as error:
            warn(
                _log,
                Kind.NOT_ABORTED,
                "%s failed, and its transactions could not be aborted (%s); brokers abort them "
                "after kafka.transaction.timeout.ms (%d)",
                what,
                error.message,
                self.config.producer.transaction_timeout_ms,
            )
            return
        warn(
            _log,
            Kind.WRITE_ABORTED,
            "%s failed: %d of %d tasks had finished; of their %d rows nothing is visible to "
            "read_committed consumers, unless the batch was decided before. Orphaned transactions "
            "ended: %d",
            what,
            len(finished),
            len(messages),
            sum(message.rows for message in finished),
            len(swept),
        )
