"""Runs one task attempt: writes Arrow batches, and returns a commit message.

``records/`` converts the columns to records, and ``producer/`` delivers the records. In "The way of
a record" (DESIGN.md), the loop over Spark's iterator is step 2, and the end of the attempt is step
13.

The attempt succeeds only if every row is acknowledged and the counts agree (rule R8 of DESIGN.md).
After a failed attempt, its producer is not used again, and Spark writes the whole partition in
another attempt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ApiError, DataError, DeliveryError, RecordTooLargeError
from spark_kafka_sink.config.named_columns import OnNullValue
from spark_kafka_sink.datasource.write.commit_message import (
    TaskCommitMessage,
    TaskCounts,
    TaskTransaction,
)
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.datasource.write.task_progress import (
    EVERY_S,
    ProgressListener,
    ProgressLog,
    TaskProgress,
    Watcher,
    waits_for,
)
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows
from spark_kafka_sink.records.batch_joiner import BatchJoiner
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.records.record_columns import (
    ChunkSize,
    RecordColumns,
    from_record_batch,
    rows_with_value,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.datasource.write.dead_letters import DeadLetters
    from spark_kafka_sink.datasource.write.rate_limit import RateLimit
    from spark_kafka_sink.producer.kafka_producer import KafkaProducer
    from spark_kafka_sink.records.changes.changed_rows import ChangedRows


class ProducerSource(Protocol):
    """The interface through which a task gets and releases its producer. ``acquire`` returns a
    producer. With exactly-once, this producer has already begun a transaction.

    There are two implementations: ``CachedProducers``, and with exactly-once
    ``TransactionalProducers``.
    """

    def begin(self) -> None:
        """Called when the task begins to wait for its first rows. May already send a request whose
        response :meth:`acquire` needs.
        """
        ...

    def acquire(self) -> KafkaProducer: ...

    def leave(self) -> None:
        """Undoes :meth:`begin`. Called in place of :meth:`acquire` if the task has no rows, or if
        its input fails before the first row.
        """
        ...

    def prepare(self, producer: KafkaProducer) -> PreparedTransaction | None:
        """Prepares the transaction, after all rows are acknowledged. Returns the transaction that
        the driver must end, or None if there is no transaction.
        """
        ...

    def release(self, producer: KafkaProducer) -> None:
        """Takes the producer back after a successful attempt. A reusable producer stays open for
        later tasks of this process.
        """
        ...

    def discard(self, producer: KafkaProducer) -> None:
        """Closes the producer after a failed attempt, without waiting for requests in flight. With
        exactly-once, first tries to abort the transaction, for at most 5 s.
        """
        ...


@dataclass(frozen=True, slots=True)
class TransactionTime:
    """The time limit of a task's transaction, in milliseconds. The transaction must end within
    ``timeout_ms`` (transaction.timeout.ms). The last ``margin_ms`` are for the driver's commit.

    ``generation`` is a number that the task returns to the driver (:class:`TaskTransaction`).
    """

    timeout_ms: int
    margin_ms: int
    generation: int = 0

    def check(self, open_ms: int, partition_id: int) -> None:
        """Raises DeliveryError if a transaction that has been open for ``open_ms`` milliseconds
        leaves the driver too little time to commit it. ``partition_id`` is for the message.
        """
        if open_ms <= self.timeout_ms - self.margin_ms:
            return
        raise DeliveryError(
            f"partition {partition_id}: its transaction is open for {open_ms} ms, and of "
            f"kafka.transaction.timeout.ms ({self.timeout_ms}) the driver needs the last "
            f"{self.margin_ms} to commit, so this attempt fails",
            hint="an exactly-once job must finish within kafka.transaction.timeout.ms of its first "
            "row: raise it (the broker's transaction.max.timeout.ms is the limit), or write in "
            "smaller jobs or micro-batches",
        )

    def check_rate(
        self, open_ms: int, rows: int, needed_ms: int, rate: str, partition: int
    ) -> None:
        """Raises DeliveryError if the transaction has less time left than ``needed_ms``, the time
        that the next ``rows`` rows need at the rate limit.

        Call this method before a wait for the rate limit, so that the attempt fails early.
        """
        left_ms = self.timeout_ms - self.margin_ms - open_ms
        if needed_ms <= left_ms:
            return
        raise DeliveryError(
            f"partition {partition}: {rows} more rows take {needed_ms} ms at {rate}, and its "
            f"transaction has {left_ms} ms left (kafka.transaction.timeout.ms is "
            f"{self.timeout_ms}, and the driver needs the last {self.margin_ms} of it)",
            hint="raise the limit or kafka.transaction.timeout.ms, or write fewer rows in a job or "
            "micro-batch",
            kind=Kind.RATE_TOO_LOW,
        )


class WriteTask:
    """Writes the rows of one task attempt: :meth:`run` takes the iterator that Spark passes to
    ``write``. Used once.
    """

    def __init__(
        self,
        plan: ColumnPlan,
        producers: ProducerSource,
        identity: TaskIdentity,
        *,
        transaction_time: TransactionTime | None = None,
        rate: RateLimit | None = None,
        dead_letters: DeadLetters | None = None,
        monotonic_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        progress_every_s: float = EVERY_S,
        progress_listeners: Sequence[ProgressListener] = (),
        watcher: Watcher | None = None,
    ) -> None:
        self._plan = plan
        self._producers = producers
        self.identity = identity
        self._monotonic_ms = monotonic_ms
        self._wall_ms = wall_ms
        self._rows = 0
        self._counts = TaskCounts()
        #: None without exactly-once.
        self._time = transaction_time
        self._rate = rate
        #: None with errors.tolerance=none.
        self._letters = dead_letters
        #: None if the rows are not changes of a table.
        self._changes: ChangedRows | None = None
        if plan.changes is not None:
            from spark_kafka_sink.records.changes.changed_rows import ChangedRows

            self._changes = ChangedRows(plan)
        #: Rows are numbered in the order of Spark's iterator, for dead letters and errors:
        #: the number of the current batch's first row in the task, and the number within the
        #: batch of each row that is kept. None if no row of the batch was skipped.
        self._first_number = 0
        self._kept_numbers: npt.NDArray[np.int64] | None = None
        self._first_row_ms = 0
        self._start_wall_ms = -1
        self._payload_bytes = 0
        self._compared_letters = 0
        self._begun_ms = monotonic_ms()
        self._progress_every_s = progress_every_s
        self._progress_listeners = progress_listeners
        self._watcher = watcher
        #: The current step of the writer's thread, for :meth:`_progress`, and its producer.
        self._step = ""
        self._producer: KafkaProducer | None = None
        self._reported_before = (self._begun_ms, 0)

    def run(self, batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Writes every row, and returns when all rows are acknowledged. If there are no rows,
        creates no producer. Errors:

        - DataError for a row that can't be sent.
        - If a row was not acknowledged: the error that is the cause, or DeliveryError.
        - DeliveryError if the transaction has no time left.
        - Any exception of Spark's input.
        """
        with ProgressLog(
            self._progress, self._progress_every_s, self._progress_listeners, self._watcher
        ):
            return self._run(batches)

    def _run(self, batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        start = self._monotonic_ms()
        joiner = BatchJoiner(batches, self._monotonic_ms, self._waiting_for_input)
        first = self._first_batch(joiner)
        if first is None:
            return self._message(start, ProduceReport(), self._transaction(None))
        self._step = "a producer (brokers, and the transaction's coordinator)"
        producer = self._producers.acquire()
        self._producer = producer
        try:
            producer.start_attempt(self.identity.partition_id)
            if self._time is not None:
                self._first_row_ms, self._start_wall_ms = self._monotonic_ms(), self._wall_ms()
            self._send(producer, first)
            del first  # one Arrow batch at a time: it may be 64 MB
            while (batch := self._next_batch(joiner, producer.chunk_size)) is not None:
                self._check_time()
                self._send(producer, batch)
                del batch
            if self._letters is not None:
                self._send_letters(producer, self._letters, last=True)
            self._step = "acknowledgements"
            all_sent = self._monotonic_ms()
            report = producer.finish_attempt()
            self._counts.broker_wait_ms = self._monotonic_ms() - all_sent
            self._check_counts(report)
            self._check_time()
            prepared = self._producers.prepare(producer)
        except BaseException as error:
            # Also for a KeyboardInterrupt: a later task must not reuse a producer with unsent rows.
            self._producers.discard(producer)
            if self._letters is not None and self._letters.rows:
                error.add_note(f"  {self._letters.said}")
            raise
        self._producers.release(producer)
        return self._message(start, report, self._transaction(prepared))

    @property
    def so_far(self) -> TaskCommitMessage:
        """The figures of the attempt up to now, in the form of a commit message without a
        transaction. The report of a failed attempt is made of them.
        """
        producer = self._producer
        report = ProduceReport() if producer is None else producer.progress().report
        return self._message(self._begun_ms, report, None)

    def drop(self, batches: Iterator[pa.RecordBatch], *, count: bool) -> TaskCommitMessage:
        """Ends the attempt without writing a row, because the batch is already committed.

        If ``count`` is True, reads and counts the rows, so that the driver can compare them with
        the written rows and bytes. If ``count`` is False, reads no row.
        """
        start = self._monotonic_ms()
        for kept in self._all_kept(batches) if count else ():
            self._rows += kept.num_rows
            bad = self._bad_rows(kept)
            columns = self._columns(kept, bad, self._wall_ms())
            self._payload_bytes += columns.payload_bytes()
            if self._letters is not None:
                self._compared_letters += self._letters.count(columns, bad)
        transaction = self._transaction(None)
        if transaction is not None and not count:
            transaction = replace(transaction, payload=None)
        return self._message(start, ProduceReport(), transaction)

    def _all_kept(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self._kept(batch)
        if (last := self._last()) is not None:
            yield last

    def _last(self) -> pa.RecordBatch | None:
        """The rows of a change feed that the task can only write after the end of its input. None
        if there are no such rows.
        """
        found = None if self._changes is None else self._changes.last()
        return None if found is None else self._counted(*found)

    def _counted(
        self, batch: pa.RecordBatch, numbers: npt.NDArray[np.int64] | None
    ) -> pa.RecordBatch:
        assert self._changes is not None
        self._kept_numbers = numbers
        self._counts.skipped_rows = self._changes.dropped
        self._counts.added_rows = self._changes.added
        return batch

    def _kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of ``batch`` that the task writes. Rows that are left out are counted.

        With a change feed, these are the records that result from the changes. With
        onNullValue=skip, rows with a null value are left out.
        """
        if self._changes is not None:
            return self._counted(*self._changes.changed(batch))
        if self._plan.on_null_value is not OnNullValue.SKIP:
            return batch
        kept, self._kept_numbers = rows_with_value(batch, self._plan)
        self._counts.skipped_rows += batch.num_rows - kept.num_rows
        return kept

    def _first_batch(self, batches: BatchJoiner) -> pa.RecordBatch | None:
        first = None
        self._producers.begin()
        try:
            first = self._next_batch(batches, ChunkSize())
        finally:
            if first is None:
                self._producers.leave()
        return first

    def _next_batch(self, batches: BatchJoiner, size: ChunkSize) -> pa.RecordBatch | None:
        begun = self._monotonic_ms()
        self._step = "Spark's next rows"
        try:
            while (batch := batches.next(size)) is not None:
                kept = self._kept(batch)
                self._first_number = self._counts.rows_in
                self._counts.rows_in += batch.num_rows
                if kept.num_rows:
                    return kept
                del batch, kept  # before the next one: it may be large
            self._first_number = self._counts.rows_in
            return self._last()
        finally:
            self._step = ""
            self._counts.input_wait_ms += self._monotonic_ms() - begun

    def _waiting_for_input(self, delay_ms: int) -> AbstractContextManager[None]:
        """A context manager for the time that the task waits for Spark's rows.

        If the task already has a producer, the waiting time after the first ``delay_ms``
        milliseconds counts towards linger.ms of the producer's open batches. Other time does not
        count.
        """
        producer = self._producer
        return nullcontext() if producer is None else producer.waiting_for_input(delay_ms)

    def _progress(self) -> TaskProgress:
        """The current progress of this attempt. Called on the thread of :class:`ProgressLog`."""
        identity, producer, now = self.identity, self._producer, self._monotonic_ms()
        progress = None if producer is None else producer.progress()
        report = ProduceReport() if progress is None else progress.report
        (before_ms, before), self._reported_before = self._reported_before, (now, report.rows)
        slowest, seen = max(
            report.nodes.items(), key=lambda one: one[1].mean_latency_ms, default=(-1, None)
        )
        answers = [f"broker {n}: {s.last_answer}" for n, s in report.nodes.items() if s.last_answer]
        on_wire = () if progress is None else progress.on_wire.values()
        return TaskProgress(
            partition=identity.partition_id,
            attempt=identity.attempt,
            batch_id=identity.batch_id,
            elapsed_ms=now - self._begun_ms,
            rows=report.rows,
            megabytes=round(report.bytes / 1e6, 3),
            rows_per_second=round((report.rows - before) * 1000 / max(now - before_ms, 1), 1),
            retries=report.retries,
            in_flight=sum(count for count, _ in on_wire),
            oldest_batch_ms=max((age for _, age in on_wire), default=0),
            slowest_broker=slowest,
            slowest_broker_ms=0.0 if seen is None else round(seen.mean_latency_ms, 1),
            input_wait_ms=self._counts.input_wait_ms,
            buffer_wait_ms=report.buffer_wait_ms,
            throttle_ms=report.throttle_ms,
            rate_wait_ms=0 if self._rate is None else self._rate.waited_ms,
            waits_for=waits_for(self._step, progress),
            last_answer=answers[-1] if answers else "",
        )

    def _send(self, producer: KafkaProducer, batch: pa.RecordBatch) -> None:
        if not self._plan.names_columns:
            self._send_part(producer, batch, 0)
            return
        from spark_kafka_sink.records.formats.composed_columns import parts_of

        first = 0
        for part in parts_of(batch):
            self._send_part(producer, part, first)
            first += part.num_rows

    def _send_part(self, producer: KafkaProducer, batch: pa.RecordBatch, first: int) -> None:
        """Sends the rows of ``batch``, which is a slice of an Arrow batch. ``first`` is the index
        of the slice's first row in the whole Arrow batch.

        Bad rows become dead letters. With errors.tolerance=none, a bad row raises an error.
        """
        before = self._rows
        self._rows += batch.num_rows
        try:
            now_ms, bad = self._wall_ms(), self._bad_rows(batch)
            columns = self._columns(batch, bad, now_ms)
            if self._time is not None:
                self._payload_bytes += columns.payload_bytes()
            if self._letters is not None:
                self._compared_letters += self._letters.check(columns, bad, producer, now_ms)
                if bad.found:
                    numbers = self._first_number + self._numbers(first + bad.rows)
                    self._letters.note(batch, columns, bad, numbers)
                    self._send_letters(producer, self._letters, last=False)
                    columns = columns.filter(bad.which == 0)
            if columns.rows:
                self._send_columns(producer, columns)
        except (DataError, RecordTooLargeError) as error:
            # One of these rows has caused the error. The error counts rows of an Arrow batch, and
            # the note counts rows of the partition, as users do. (Any other error may be caused by
            # rows that were sent before.)
            skipped = self._counts.skipped_rows
            uncounted = f", without {skipped} skipped rows"
            error.add_note(
                f"  while sending rows {before} to {self._rows - 1} of partition "
                f"{self.identity.partition_id} of the DataFrame"
                f"{uncounted if skipped else ''}"
            )
            raise

    def _bad_rows(self, batch: pa.RecordBatch) -> BadRows:
        """Creates the collector for the bad rows of a batch. With errors.tolerance=none, the
        collector raises an error at the first bad row.
        """
        return BadRows(None if self._letters is None else batch.num_rows)

    def _numbers(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Converts row indices in the batch of :meth:`_kept` to row indices in Spark's batch, which
        may have more rows.
        """
        return rows if self._kept_numbers is None else self._kept_numbers.take(rows)

    def _send_letters(self, producer: KafkaProducer, letters: DeadLetters, *, last: bool) -> None:
        # All letters of a call get the same time, so their times are in the order of their rows.
        now_ms = self._wall_ms()
        try:
            for part in letters.letters(
                lambda rows: self._columns(rows, self._bad_rows(rows), now_ms), now_ms, last=last
            ):
                self._send_columns(producer, part)
        except ApiError as error:
            raise letters.not_sent(error) from error

    def _columns(self, batch: pa.RecordBatch, bad: BadRows, now_ms: int) -> RecordColumns:
        plan = self._plan
        if plan.changes is not None:
            from spark_kafka_sink.records.changes.marks import note_changes

            note_changes(batch, plan, bad)
        if plan.names_columns:
            # Imported when it is used.
            from spark_kafka_sink.records.formats.composed_columns import with_composed

            batch, plan = with_composed(batch, plan, bad)
        return from_record_batch(batch, plan, now_ms, bad)

    def _send_columns(self, producer: KafkaProducer, columns: RecordColumns) -> None:
        if self._rate is None:
            producer.send_columns(columns)
        else:
            self._send_at_rate(producer, columns, self._rate)

    def _send_at_rate(
        self, producer: KafkaProducer, columns: RecordColumns, rate: RateLimit
    ) -> None:
        costs = rate.costs_ms(columns)
        if self._time is not None:
            self._time.check_rate(
                self._monotonic_ms() - self._first_row_ms,
                columns.rows,
                int(costs[-1]),
                rate.text,
                self.identity.partition_id,
            )
        for part, cost_ms in rate.parts(columns, costs):
            self._step = f"its rate ({rate.text})"
            # The producer sends its open batches now: more rows will come only after the wait.
            with producer.waiting_for_input():
                rate.wait(cost_ms)
            self._step = ""
            producer.send_columns(part)

    def _check_time(self) -> None:
        if self._time is not None:
            open_ms = self._monotonic_ms() - self._first_row_ms
            self._time.check(open_ms, self.identity.partition_id)

    def _check_counts(self, report: ProduceReport) -> None:
        """Raises DeliveryError if a row was not acknowledged, or if a dead letter was not
        acknowledged in the dead-letter topic.
        """
        topic, wanted = "", 0
        if self._letters is not None:
            topic, wanted = self._letters.writer.options.topic, self._letters.rows
        sent = sum(rows for tp, (rows, _, _) in report.by_partition.items() if tp.topic == topic)
        if report.rows != self._rows or sent != wanted:
            raise DeliveryError(
                f"partition {self.identity.partition_id}: {self._rows} rows came in, "
                f"{report.rows} were acknowledged"
                + (f", and {sent} of {wanted} dead letters" if sent != wanted else ""),
                hint="this is a bug in spark-kafka-sink: please report it with this line",
            )

    def _message(
        self, start: int, report: ProduceReport, transaction: TaskTransaction | None
    ) -> TaskCommitMessage:
        elapsed_ms = self._monotonic_ms() - start
        if self._rate is not None:
            self._counts.rate_wait_ms = self._rate.waited_ms
        return TaskCommitMessage(
            self.identity,
            report,
            self._counts,
            begun_ms=max(self._wall_ms() - elapsed_ms, 0),
            elapsed_ms=elapsed_ms,
            transaction=transaction,
            letters=() if self._letters is None else self._letters.counts,
        )

    def _transaction(self, prepared: PreparedTransaction | None) -> TaskTransaction | None:
        """The transaction part of the commit message. None without exactly-once."""
        if self._time is None:
            return None
        return TaskTransaction(
            self._time.generation,
            prepared,
            self._start_wall_ms,
            (self._rows, self._payload_bytes),
            self._compared_letters,
        )
