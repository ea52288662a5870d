"""A task's commit message to the driver: step 13 of a record's way.

Owns: :class:`TaskCommitMessage` with its parts, and the driver's check of a batch's messages.
Never: the use of the messages (``planned_batch``, ``report/``).

Spark pickles a message on the executor and unpickles it on the driver. Both have the same package:
a task with another package fails before it writes (``planned_task.py`` ``_check_package``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import CommitError, KafkaError
from spark_kafka_sink.datasource.write.letter_counts import LetterCount
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction


@dataclass(slots=True)
class TaskCounts:
    """The counts of the writer's thread, in addition to its producer's ProduceReport. The report of
    the batch has the sums, under the same names; ``WriteReport`` describes them.
    """

    rows_in: int = 0
    skipped_rows: int = 0
    added_rows: int = 0
    input_wait_ms: int = 0
    rate_wait_ms: int = 0
    broker_wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """A task's part of exactly-once. ``prepared`` is to be ended by the driver, None when nothing
    was written. ``generation`` is the commit log's in the driver's plan, ``start_ms`` the wall time
    of the first row (-1: none). ``payload`` are the rows and bytes that the task wrote, or would
    have written if its batch were not committed already; None when it didn't count them.
    ``letters`` are the dead letters among them that are compared (``DeadLetters.check``).
    """

    generation: int
    prepared: PreparedTransaction | None = None
    start_ms: int = -1
    payload: tuple[int, int] | None = None
    letters: int = 0


@dataclass(frozen=True, slots=True)
class TaskCommitMessage(WriterCommitMessage):
    """A task attempt that wrote all of its rows. ``begun_ms`` is the wall time of its begin;
    ``transaction`` is None without exactly-once. ``letters`` count the rows that became dead
    letters; they are included in the acknowledged rows.
    """

    identity: TaskIdentity
    produced: ProduceReport
    counts: TaskCounts
    begun_ms: int
    elapsed_ms: int
    transaction: TaskTransaction | None = None
    letters: tuple[LetterCount, ...] = ()

    @property
    def rows(self) -> int:
        """Rows that Spark passed to the task and brokers acknowledged: the task compares both."""
        return self.produced.rows

    @property
    def prepared(self) -> PreparedTransaction | None:
        """The transaction that the driver must end."""
        return None if self.transaction is None else self.transaction.prepared


def checked_messages(
    messages: Sequence[WriterCommitMessage | None], error: type[KafkaError] = CommitError
) -> tuple[TaskCommitMessage, ...]:
    """Every message. Raises ``error`` when a task is missing. Runs on the driver.

    None is a task that Spark considers done and that sent no message. The only known cause is the
    continuous trigger: Spark never calls a Python sink's ``write`` then, and drops its rows (Spark
    builds the error for it and does not throw it).
    """
    finished = finished_messages(messages)
    missing = [i for i, one in enumerate(messages) if not isinstance(one, TaskCommitMessage)]
    if missing:
        raise error(
            f"{len(missing)} of {len(messages)} tasks sent no commit message (first: task "
            f"{missing[0]}), so their rows can't be confirmed",
            hint="with the continuous trigger Spark never calls a Python sink and drops every row: "
            "use trigger(processingTime=...) or trigger(availableNow=True)",
            kind=Kind.NO_COMMIT_MESSAGE,
        )
    for one in finished:
        counts = one.counts
        if counts.rows_in not in (0, one.rows + counts.skipped_rows - counts.added_rows):
            raise error(
                f"task {one.identity.partition_id}: {counts.rows_in} rows came in, and "
                f"{one.rows} were acknowledged, dead letters among them, "
                f"{counts.skipped_rows} skipped and {counts.added_rows} added",
                hint="this is a bug in spark-kafka-sink: please report it with this line",
            )
    return finished


def finished_messages(
    messages: Sequence[WriterCommitMessage | None],
) -> tuple[TaskCommitMessage, ...]:
    """The messages that there are. Never raises."""
    return tuple(m for m in messages if isinstance(m, TaskCommitMessage))
