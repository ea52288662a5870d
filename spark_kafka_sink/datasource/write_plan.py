"""What planning decides and a writer carries: options, columns, cluster; and what is done with it.

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
from spark_kafka_sink.config import SinkConfig
from spark_kafka_sink.datasource.commit_message import (
    TaskCommitMessage,
    checked_messages,
    finished_messages,
)
from spark_kafka_sink.datasource.write_report import WriteReport, publish, show_on_driver
from spark_kafka_sink.errors import CommitError, IllegalStateError
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.secret_references import UnresolvedReferenceError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """One batch's or micro-batch's plan. Immutable and picklable.

    ``cluster`` is what the preflight saw, or None; ``package_version`` is the driver's.
    """

    config: SinkConfig
    columns: ColumnPlan
    cluster: Cluster | None
    package_version: str = __version__

    def write(
        self, batches: Iterator[pa.RecordBatch], columns: ColumnPlan | None = None
    ) -> TaskCommitMessage:
        """Writes one partition in this worker process; ``columns`` replaces the plan's own."""
        from spark_kafka_sink.datasource import producer_cache
        from spark_kafka_sink.datasource.write_task import TaskIdentity, WriteTask

        if self.package_version != __version__:
            raise IllegalStateError(
                f"spark-kafka-sink is {self.package_version} on the driver and {__version__} on "
                "this executor",
                hint="install the same version on both",
            )
        identity = TaskIdentity.current()
        producers = producer_cache.CachedProducers(
            producer_cache.process_cache(),
            producer_cache.effective_config(self.config.producer, identity.app_id),
            self.cluster,
        )
        try:
            return WriteTask(columns or self.columns, producers, identity).run(batches)
        except UnresolvedReferenceError as error:
            raise error.seen_by("an executor") from None

    def commit(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int | None = None
    ) -> None:
        """Vouches for a batch: every task's message is there, whole, and of our version.

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
        wall_ms = time.time_ns() // 1_000_000
        publish(WriteReport.of(checked), self.config.report_path, wall_ms)

    def abort(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int | None = None
    ) -> None:
        """Says what stays behind. Never raises: Spark would show that in place of the cause."""
        try:
            finished = finished_messages(messages)
            show_on_driver()
            _log.warning(
                "kprod write%s failed: %d of %d tasks had finished; their %d rows, and what others "
                "had sent, stay in Kafka and are written again when the batch is",
                "" if batch_id is None else f" of micro-batch {batch_id}",
                len(finished),
                len(messages),
                sum(message.rows for message in finished),
            )
        except Exception:  # noqa: BLE001 - the user needs the error that led here
            return
