"""The commit message that a task sends to the driver: step 13 in "The way of a record" (DESIGN.md).

The driver checks the messages of a batch with :func:`checked_messages`, commits the batch
(``planned_batch``), and makes a report of the messages (``report/``).

Spark pickles a message on the executor and unpickles it on the driver. Both have the same version
of this package: a task with another version fails before it writes.
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
    """The row counts and waits (milliseconds) of the task's writer thread. The producer's counts
    are in its ProduceReport. The batch's report has the sums of these fields under the same names,
    and ``WriteReport`` describes each field.
    """

    rows_in: int = 0
    skipped_rows: int = 0
    added_rows: int = 0
    input_wait_ms: int = 0
    rate_wait_ms: int = 0
    broker_wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """The transaction of a task with exactly-once.

    - ``prepared``: the transaction that the driver must end. None if the task wrote nothing.
    - ``generation``: the generation that the write's key had in the commit log at planning. A key's
      generation is a number that grows when another run takes over the key.
    - ``start_ms``: the wall time of the first row in milliseconds. -1 if there was no row.
    - ``payload``: the numbers of rows and bytes that the task wrote, such as ``(1000, 52000)``. If
      the batch is already done, these are the rows and bytes that the task skipped. None if the
      task did not count.
    - ``letters``: the number of dead letters, without rows that only have a forbidden timestamp
      (``DeadLetters.check``). The driver compares this number if the batch runs again.
    """

    generation: int
    prepared: PreparedTransaction | None = None
    start_ms: int = -1
    payload: tuple[int, int] | None = None
    letters: int = 0


@dataclass(frozen=True, slots=True)
class TaskCommitMessage(WriterCommitMessage):
    """The commit message of a successful task attempt. The attempt wrote all of its rows, or it
    wrote nothing because its batch is already committed.

    - ``produced``: the producer's figures.
    - ``counts``: the figures of the writer's thread.
    - ``begun_ms``: the wall time of the attempt's start in milliseconds.
    - ``transaction``: None without exactly-once.
    - ``letters``: the numbers of rows that became dead letters. An acknowledged dead letter is also
      an acknowledged row.
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
        """The number of rows that brokers acknowledged. It is the number of rows that Spark passed
        to the task, minus the skipped rows, plus the rows that a change feed added. It is 0 if the
        batch was already committed.
        """
        return self.produced.rows

    @property
    def prepared(self) -> PreparedTransaction | None:
        """The transaction that the driver must end. None if there is no transaction."""
        return None if self.transaction is None else self.transaction.prepared


def checked_messages(
    messages: Sequence[WriterCommitMessage | None], error: type[KafkaError] = CommitError
) -> tuple[TaskCommitMessage, ...]:
    """Returns the messages of all tasks. Raises ``error`` if a message is missing, or if the counts
    of a message contradict each other.
    """
    finished = finished_messages(messages)
    missing = [i for i, one in enumerate(messages) if not isinstance(one, TaskCommitMessage)]
    # A message is None if Spark considers a task done although it sent no message. The only known
    # cause is the continuous trigger (session/refused_streams.py).
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
    """The commit messages of the tasks that have sent one, in the order of the tasks. Unlike
    :func:`checked_messages`, this function raises no error for a missing message.
    """
    return tuple(m for m in messages if isinstance(m, TaskCommitMessage))
