"""The public API of the producer: ``KafkaProducer``, for single records and for columns.

Application threads call the methods of this module. ``record_appender.py`` (single records) and
``column_appender.py`` (columns) do the work of an append, and ``sender.py`` sends the batches and
handles the responses. ``wiring.py`` creates these components.

``send`` is thread-safe. Only one thread at a time may write columns. Other threads may call
``send`` at the same time. Records that one thread sends to a partition keep their order.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    TOPIC_UNAVAILABLE,
    ApiError,
    DataError,
    DeliveryError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    warn,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client.kafka_client import KafkaClient
from spark_kafka_sink.producer.column_appender import WaitingForInput
from spark_kafka_sink.producer.exit_flush import watch
from spark_kafka_sink.producer.lifecycle import StartThread, first_line, start_thread
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport, ProducerProgress
from spark_kafka_sink.producer.metrics.producer_metrics import Measurement, MetricName
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.producer.send.record_future import Callback, RecordFuture
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager
from spark_kafka_sink.producer.transaction.transaction_states import State
from spark_kafka_sink.producer.transaction.txn_requests import TransactionalResult
from spark_kafka_sink.producer.wiring import NewClient, ProducerOptions, ProducerParts
from spark_kafka_sink.protocol.cluster import Cluster, PartitionInfo, TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.records.arrow_schema import ArrowBatch, ArrowBatchReader
from spark_kafka_sink.records.batch_joiner import BatchJoiner
from spark_kafka_sink.records.record_columns import ChunkSize, RecordColumns

_log = logging.getLogger(__name__)

#: The additional time in ms for which a flush waits, after delivery.timeout.ms and
#: request.timeout.ms. Every batch has its outcome after delivery.timeout.ms, and no expired batch
#: is in flight after a further request.timeout.ms. So a flush that waits even longer indicates a
#: bug.
_FLUSH_GRACE_MS = 30_000

#: The text of the TypeError for a call of ``send`` with a topic and a value, as in most clients for
#: Python.
_TAKES_A_RECORD = (
    "send takes a record: send(ProducerRecord(topic, value, key=...)), and perhaps a callback"
)
#: How long close() waits for the network thread after a forced close, in ms.
_FORCED_CLOSE_MS = 5_000
#: How long abandon() waits for new metadata, in ms.
_LEADERS_MS = 1_000
#: How long abandon() then sends the abort, in ms. Later, a partition may have lost its leader.
_ABORT_MS = 1_000


class KafkaProducer:
    """Sends records to Kafka, like Java's KafkaProducer.

        with KafkaProducer({"bootstrap.servers": "localhost:9092"}) as producer:
            future = producer.send(ProducerRecord("topic", b"value", key=b"key"))
            future.result(10).offset

    Options have Java's names. These are some of the options that differ from Java's:

    * ``configFile``: a properties file with more options.
    * ``key.serializer``, ``value.serializer``: a name (``str``, ``int``, ``long``, ``float``,
      ``double``, ``uuid``, ``list<int>``, Java's class names ...), an import path, or an object
      with ``serialize(topic, data, headers)``. The default serializer accepts bytes and str.
    * ``interceptor.classes``: import paths, classes or objects.

    A producer can be used only in the process that created it. Any number of threads may call
    :meth:`send`, but only one thread at a time may call the methods for columns.
    """

    def __init__(
        self,
        config: ProducerConfig | Mapping[str, object],
        *,
        cluster: Cluster | None = None,
        clock: Clock | None = None,
        client: KafkaClient | None = None,
        new_client: NewClient | None = None,
        start_thread: StartThread = start_thread,
    ) -> None:
        """Creates the producer from its options.

        ``cluster`` is metadata that is already known, so that the producer need not request it. The
        other arguments replace the clock, the network client and the network thread in tests.
        """
        parts = ProducerParts(
            ProducerOptions.of(config),
            cluster,
            SystemClock() if clock is None else clock,
            client,
            new_client,
            start_thread,
        )
        self._parts = parts
        self._config = parts.config
        self._clock = parts.clock
        self._lifecycle = parts.lifecycle
        self._accumulator = parts.accumulator
        self._transaction_manager = parts.transaction_manager
        self._interceptors = parts.interceptors
        self._metadata = parts.metadata
        self._metrics = parts.metrics
        self._recorder = parts.recorder
        self._columns = parts.columns
        self._records = parts.records
        self._sender = parts.sender
        self._thread = parts.thread
        self._batches = ArrowBatchReader()
        self._rows_before = 0
        if isinstance(parts.thread, threading.Thread):  # not a simulated one
            watch(parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the producer, even if the ``with`` block has raised an exception, like Java's
        try-with-resources.

        Queued records are sent. A transaction that was neither committed nor aborted is aborted.
        """
        self.close()

    # ---- records -----------------------------------------------------------------------------

    def send(self, record: ProducerRecord, callback: Callback | None = None) -> RecordFuture:
        """Adds ``record`` to a batch, and returns a future of its outcome. The batch is sent when
        it is full or when linger.ms is over.

        The call waits for the topic's metadata, and for memory if buffer.memory is used up. Both
        waits together take at most max.block.ms.

        ``callback(metadata, error)`` runs on the network thread, which sends nothing meanwhile. For
        the records of a partition, callbacks run in the order of the records. An exception of a
        callback is logged. In two cases, a callback runs on another thread:

        * The record can't be added to a batch: the callback runs within this call.
        * The producer fails because of an error in another call, such as :meth:`send_columns`. The
          records that were never sent then fail as well, and their callbacks run within that other
          call.

        An ApiError is not raised: the future and the callback receive it. Examples are a record
        that is too large, an unknown topic, no free memory within max.block.ms, and an error that a
        broker returned. Other errors are raised:

        * SerializationError or DataError: the record is invalid.
        * IllegalStateError: the producer is closed, the process was forked, or transactional.id is
          set and no transaction was begun.
        * The error of the transaction: the transaction has failed.
        * AuthenticationError: the producer has failed, because an authentication has failed.
        * DeliveryError: the producer has failed for another reason, such as a failed batch with
          rows of :meth:`send_columns`.
        """
        try:
            return self._records.append(record, callback)
        except BaseException as raised:
            error = self._lifecycle.error
            if error is not None:
                # This also holds when this append was interrupted: unsent batches fail.
                self._fail_producer(error)
            if isinstance(raised, AttributeError) and not isinstance(record, ProducerRecord):
                raise TypeError(_TAKES_A_RECORD) from None
            raise

    def send_batch(self, batch: ArrowBatch, topic: str | None = None) -> None:
        """Appends the rows of a pyarrow.RecordBatch to record batches.

        The columns are those of the Spark sink: value, and optionally key, topic, partition,
        headers and timestamp. Other columns are ignored. If ``topic`` is given, the column topic is
        not used. Only one thread at a time may call this method. :meth:`flush` waits until the rows
        are acknowledged.

        Raises SchemaError for invalid columns, and the errors of :meth:`send_columns`.
        """
        self._lifecycle.check()
        columns = self._batches.columns(batch, topic, self._clock.wall_ms())
        if columns.rows:
            self.send_columns(columns)

    def send_batches(self, batches: Iterable[ArrowBatch], topic: str | None = None) -> None:
        """Appends the rows of all Arrow batches of an iterable, such as a
        pyarrow.RecordBatchReader, in the way of :meth:`send_batch`. On return, all rows are
        appended.

        If linger.ms is not 0, the method joins small Arrow batches to larger ones. So the newest
        rows may be held back until the iterable returns its next Arrow batch. :meth:`flush` and
        :meth:`commit_transaction` do not wait for rows that are held back. So the code of the
        iterable must not call these two methods.

        While the method waits for the iterable, Kafka's record batches stay open for at most
        linger.ms. If rows are held back, the limit is linger.ms + 100 ms. After this time, the
        record batches are sent, even if they are not full.

        If the iterable raises an Exception, the method first appends all rows that it has received,
        and then raises the exception. After another BaseException, such as KeyboardInterrupt, the
        rows that are held back are not appended.
        """
        self._lifecycle.check()
        checked = map(self._batches.checked, batches)
        joiner = BatchJoiner(checked, self._clock.now_ms, self.waiting_for_input)
        rows = 0
        while (batch := joiner.next(self.chunk_size)) is not None:
            before, rows = rows, rows + batch.num_rows
            try:
                self.send_batch(batch, topic)
            except (DataError, RecordTooLargeError) as error:
                # Its row is counted in what was joined.
                error.add_note(f"  while sending rows {before} to {rows - 1} of all batches")
                raise
            del batch  # one Arrow batch at a time: it may be large

    @property
    def chunk_size(self) -> ChunkSize:
        """The recommended numbers of rows and bytes for the next call of :meth:`send_columns`,
        estimated from the rows of the last call.
        """
        return self._columns.chunk_size

    def send_columns(self, columns: RecordColumns) -> None:
        """Appends all rows of ``columns`` to record batches.

        The call waits for two things:

        * the metadata of an unknown topic, for at most max.block.ms
        * memory, for at most max.block.ms. If max.block.ms is not set, the limit is
          delivery.timeout.ms.

        It raises these errors:

        * DeliveryError: an earlier batch of this task attempt has failed.
        * DataError or RecordTooLargeError: a row can't be sent.
        * KafkaTimeoutError or BufferExhaustedError: a wait timed out.

        After an error, some of the rows may already be sent. In a transaction, the transaction can
        then only be aborted (:meth:`abort_transaction`). Without a transaction, the producer can
        then only be closed: every later call that sends or waits raises an error.
        """
        self._lifecycle.check()
        if self._transaction_manager is not None:
            self._transaction_manager.ensure_in_transaction()
        if self._interceptors is not None:
            columns = self._interceptors.on_send_columns(columns)
        try:
            self._columns.append(columns)
        except KafkaError as error:
            # A failed batch closes pool and accumulator: the writer's error is a consequence.
            self._lifecycle.raise_error()
            self._fail_producer(error)
            raise
        except BaseException as error:
            # KeyboardInterrupt above all: some rows are appended, some are not.
            self._fail_producer(
                IllegalStateError(f"sending was interrupted by {type(error).__name__}")
            )
            raise

    def flush(self) -> None:
        """Sends all queued records, and waits until each record is acknowledged or has failed.

        The errors of some records are not raised:

        * Records of :meth:`send`: their futures and callbacks have the error.
        * Records and rows in a transaction: :meth:`commit_transaction` raises the error.

        The method raises these errors:

        * DeliveryError: a batch with rows of :meth:`send_columns` has failed outside of a
          transaction. The batch may also have records of :meth:`send`.
        * The error of the producer: the producer has failed for another reason, such as a failed
          authentication.
        * IllegalStateError: a callback has called this method.
        """
        self._lifecycle.check()
        self._refuse_in_callback("flush")
        start = self._clock.now_ms()
        config = self._config
        deadline = start + config.delivery_timeout_ms + config.request_timeout_ms + _FLUSH_GRACE_MS
        flush = None
        try:
            flush = self._accumulator.begin_flush()
            self._parts.wakeup()
            complete = self._accumulator.await_flush_completion(flush, deadline)
        except BaseException as error:
            self._fail_producer(
                IllegalStateError(f"flush was interrupted by {type(error).__name__}")
            )
            raise
        finally:
            if flush is not None:
                self._accumulator.end_flush(flush)
            self._record_duration(Measurement.FLUSH_TIME, start)
        self._lifecycle.raise_error()
        if not complete:
            late = DeliveryError(
                f"{flush.remaining} batches neither acknowledged nor failed within "
                f"delivery.timeout.ms ({self._config.delivery_timeout_ms})",
                hint="this is a bug in spark_kafka_sink: please report it",
            )
            self._fail_producer(late)
            raise late

    def _record_duration(self, measurement: Measurement, start: int) -> None:
        """Adds the duration of a blocking call to the metrics. The call began at ``start``
        (monotonic ms).
        """
        now = self._clock.now_ms()
        self._metrics.record(measurement, now - start, now)

    def partitions_for(self, topic: str, *, fresh: bool = False) -> tuple[PartitionInfo, ...]:
        """The partitions of ``topic``, from the producer's metadata.

        The metadata is requested from a broker if the topic is unknown, or if ``fresh`` is True.
        The call then blocks for at most max.block.ms.

        Raises KafkaTimeoutError if the topic is still unknown after this time, InvalidTopicError if
        its name is invalid, and AuthorizationError if the principal may not see the topic.
        """
        self._lifecycle.check()
        deadline = self._clock.now_ms() + self._config.max_block_ms
        if fresh:
            self._metadata.refresh(deadline)
        return tuple(self._metadata.await_topics([topic], deadline).topics[topic])

    def unavailable_topics(self, topics: Sequence[str]) -> dict[str, ErrorCode]:
        """Returns the topics of ``topics`` that can't be used, each with the broker's error code.
        Such a topic does not exist, or the principal may not see it.

        Requests the metadata of all topics together, and blocks for at most max.block.ms. Raises
        KafkaTimeoutError if the brokers do not respond in this time, or if they return only a
        temporary error for a topic.
        """
        self._lifecycle.check()
        now = self._clock.now_ms()
        self._metadata.add_topics(topics, now)
        found: dict[str, ErrorCode] = {}
        for topic in topics:
            try:
                self._metadata.await_topics([topic], now + self._config.max_block_ms)
            except ApiError as error:
                # A wait that timed out has the brokers' last answer as its cause.
                cause = error if error.__cause__ is None else error.__cause__
                if not isinstance(cause, ApiError) or cause.code not in TOPIC_UNAVAILABLE:
                    raise
                found[topic] = cause.code
        return found

    def metrics(self) -> Mapping[MetricName, float]:
        """The current values of all metrics, with Java's names and units (docs/metrics.md lists
        them).

        A metric without recent measurements is NaN. Any thread may call this method, even after
        :meth:`close`.
        """
        return self._metrics.snapshot()

    # ---- transactions ------------------------------------------------------------------------

    def begin_reuse(self) -> None:
        """Sends the request of :meth:`describe_last_transaction` without waiting for the response.
        A later call of :meth:`describe_last_transaction` waits for this response.

        If the producer has a prepared transaction (:meth:`prepare`), it forgets this transaction.
        Java's producer has no such method.
        """
        manager = self._transactional("begin_reuse")
        if manager.state is State.PREPARED:
            manager.forget_prepared()
        manager.describe_last_transaction()

    def describe_last_transaction(self) -> str:
        """Returns the state of the last transaction of transactional.id, as its coordinator reports
        it. The state is a name of Java's ``TransactionState``, such as "Ongoing". It is "Dead" if
        the coordinator does not know transactional.id.

        Waits for the coordinator's response, for at most max.block.ms. If :meth:`begin_reuse` has
        already sent the request, this method sends no second request. Call this method before
        :meth:`init_transactions`, which would abort an open transaction. Java's producer has no
        such method.
        """
        manager = self._transactional("describe_last_transaction")
        self._await(manager.describe_last_transaction, Measurement.TXN_INIT)
        return manager.requests.last_state

    def init_transactions(self) -> None:
        """Requests a producer id for transactional.id. Call it once, before the first transaction.

        The call fences earlier producers with the same transactional.id, and aborts their open
        transaction. It blocks for at most max.block.ms. After KafkaTimeoutError you can call this
        method again: the second call continues to wait.
        """
        begin = self._transactional("init_transactions").initialize_transactions
        self._await(begin, Measurement.TXN_INIT)

    @property
    def identity_in_doubt(self) -> bool:
        """True after a request InitProducerId or AddPartitionsToTxn got no response and was sent
        again. The property never becomes False again.

        The coordinator may still receive the first request later. A late InitProducerId aborts the
        open transaction of this transactional.id. A late AddPartitionsToTxn opens a new
        transaction, which stays open until its timeout.
        """
        return self._transactional("identity_in_doubt").requests.identity_in_doubt

    def begin_transaction(self) -> None:
        """Begins a transaction. All records that are sent from now on belong to the transaction.
        Does not wait for a broker.
        """
        manager = self._transactional("begin_transaction")
        start = self._clock.now_ms()
        manager.begin_transaction()
        self._rows_before = self._parts.appended_records
        self._recorder.start_attempt()
        self._record_duration(Measurement.TXN_BEGIN, start)

    def commit_transaction(self) -> None:
        """Sends all queued records, waits for their acknowledgements, and commits the transaction.
        Blocks for at most max.block.ms.

        If the transaction has failed, the call raises the transaction's error, and the transaction
        can only be aborted. After KafkaTimeoutError you can call this method again: the second call
        continues to wait.
        """
        self._await(self._transactional("commit_transaction").begin_commit, Measurement.TXN_COMMIT)

    def abort_transaction(self) -> None:
        """Fails the records that were not sent yet, and aborts the transaction. Blocks for at most
        max.block.ms.
        """
        self._await(self._transactional("abort_transaction").begin_abort, Measurement.TXN_ABORT)

    def prepare(self) -> PreparedTransaction:
        """Sends all queued records, waits for their acknowledgements, and hands the open
        transaction over to the caller.

        From now on, only the caller can commit or abort the transaction, with the returned ids and
        epoch. :meth:`close` and the exit of the process leave the transaction open. If nobody ends
        it, brokers abort it after transaction.timeout.ms. After its end, :meth:`forget_prepared`
        makes this producer usable again. Java's producer has no such method.

        The method raises these errors:

        * DeliveryError: a row is not acknowledged.
        * The error of the transaction: the transaction has failed.
        * IllegalStateError: nothing was written in the transaction.
        """
        manager = self._transactional("prepare")
        start = self._clock.now_ms()
        self.finish_attempt()
        prepared = manager.prepare()
        self._record_duration(Measurement.TXN_PREPARE, start)
        return prepared

    def forget_prepared(self) -> None:
        """Makes this producer usable again after the transaction of :meth:`prepare` was committed
        or aborted.

        Call :meth:`init_transactions` next. If the prepared transaction is still open, that call
        aborts it. Raises IllegalStateError if there is no prepared transaction.
        """
        self._transactional("forget_prepared").forget_prepared()

    def abandon(self, timeout_ms: int) -> None:
        """Closes the producer after an error. Queued records fail. Waits for at most
        ``timeout_ms``, and never raises.

        An open transaction is aborted if new metadata shows a leader for each of its partitions.
        The abort may take at most one second. If the transaction is not aborted here, brokers abort
        it after transaction.timeout.ms. A prepared transaction stays open.
        """
        manager, until = self._transaction_manager, self._clock.now_ms() + timeout_ms
        if (
            not self._lifecycle.closed
            and not self._lifecycle.is_forked
            and manager is not None
            and manager.has_ongoing_transaction
            and not manager.is_completing
            # A bug in Kafka 4.3.1: for a partition without a leader, the transaction's marker would
            # be lost, and read_committed consumers would never see later records of the partition.
            and self._have_leaders(manager.partitions, min(timeout_ms, _LEADERS_MS))
        ):
            manager.transition_to_abortable_error(IllegalStateError("the transaction is abandoned"))
            self.close(max(0, min(_ABORT_MS, until - self._clock.now_ms())))
        else:
            self.close(0)

    def _have_leaders(self, partitions: Collection[TopicPartition], timeout_ms: int) -> bool:
        """Requests new metadata. Returns True if each of ``partitions`` has a leader. Returns False
        if a partition has no leader, or if no metadata arrives within ``timeout_ms``.
        """
        with suppress(KafkaError):
            if self._metadata.refresh(self._clock.now_ms() + timeout_ms):
                leader_for = self._metadata.cluster.leader_for
                return all(leader_for(tp) is not None for tp in partitions)
        return False

    def _transactional(self, operation: str) -> TransactionManager:
        self._lifecycle.check()
        manager = self._transaction_manager
        if manager is None or not manager.is_transactional:
            raise IllegalStateError(
                "Cannot use transactional methods without enabling transactions by setting the"
                " transactional.id configuration property"
            )
        if operation != "begin_transaction":
            self._refuse_in_callback(operation)
        return manager

    def _await(self, begin: Callable[[], TransactionalResult], measurement: Measurement) -> None:
        result = begin()
        self._parts.wakeup()
        start = self._clock.now_ms()
        try:
            result.await_(self._clock, start + self._config.max_block_ms)
        except KafkaTimeoutError as error:
            if result.is_acked:
                raise
            tried = self._metadata.addresses_tried()
            raise KafkaTimeoutError(f"{error.message}; {tried}", hint=error.hint) from None
        finally:
            self._record_duration(measurement, start)

    # ---- an attempt --------------------------------------------------------------------------

    @property
    def reusable(self) -> bool:
        """True if another task attempt can use this producer: the producer is open, no error has
        occurred, and every batch has its outcome (DESIGN.md, rule R4).
        """
        manager = self._transaction_manager
        return (
            self._lifecycle.is_open
            and not self._lifecycle.is_forked
            and self._thread.is_alive()
            and not self._accumulator.incomplete
            # A producer that never sent a record has no id yet, and is as good as new. A producer
            # with a prepared transaction can be used again after that transaction has ended, by
            # :meth:`forget_prepared`.
            and (
                manager is None
                or manager.reusable
                or not manager.has_producer_id
                or manager.state is State.PREPARED
            )
        )

    @property
    def producer_id_and_epoch(self) -> tuple[int, int]:
        """The producer id and the epoch, such as ``(4711, 0)``. It is ``(-1, -1)`` without
        idempotence, and before a broker has returned a producer id.
        """
        manager = self._transaction_manager
        return (-1, -1) if manager is None else manager.producer_id_and_epoch

    def start_attempt(self, task: int = 0) -> None:
        """Begins a task attempt, and sets its counts of rows to 0.

        ``task`` is the number of the task within its Spark write. ``maxLeadersPerTask`` uses it.
        Raises IllegalStateError if a batch of the previous attempt has no outcome yet.
        """
        self._lifecycle.check()
        if self._accumulator.incomplete:
            raise IllegalStateError("the previous attempt has unacknowledged batches")
        self._parts.load.choose_leaders(task)
        self._rows_before = self._parts.appended_records
        self._recorder.start_attempt()

    def finish_attempt(self) -> ProduceReport:
        """Sends all queued records of the task attempt, waits for their acknowledgements, and
        returns the counts of rows.

        Raises DeliveryError if a record or row was not acknowledged. If every such record was
        appended by :meth:`send`, this producer can be used for the next attempt.
        """
        self.flush()
        if self._transaction_manager is not None:
            self._transaction_manager.maybe_fail_with_error()
        report = self._recorder.end_attempt(self._metadata.cluster)
        rows = self._parts.appended_records - self._rows_before
        alone, cause = self._recorder.failed_alone
        if alone and report.rows + alone == rows:
            assert cause is not None
            raise DeliveryError(
                f"{alone} of {rows} rows were not acknowledged; the first failed with: "
                f"{first_line(cause)}",
                hint="the future of each record has its error; the other rows are written",
            ) from cause
        if report.rows != rows:
            error = DeliveryError(
                f"{rows} rows were appended, but {report.rows} were acknowledged; the attempt"
                " must be repeated",
                hint="this is a bug in spark_kafka_sink: please report it",
            )
            self._fail_producer(error)
            raise error
        return report

    def progress(self) -> ProducerProgress:
        """The progress of the current task attempt. Any thread may call this method. The call does
        not delay the thread that writes.
        """
        return ProducerProgress(
            self._recorder.report(),
            self._sender.on_wire(self._clock.now_ms()),
            waits_for_memory=self._accumulator.pool.waiters > 0,
        )

    def park(self) -> None:
        """Prepares this producer for the idle time between two tasks. The producer then holds no
        memory, and its network thread sleeps. The next record wakes the thread.

        Raises IllegalStateError if a batch has no outcome yet.
        """
        self._lifecycle.check()
        if self._accumulator.incomplete:
            raise IllegalStateError("a producer with unacknowledged batches can't be parked")
        self._accumulator.set_writer_waiting_since(None)
        self._metadata.set_parked(parked=True)
        self._parts.wakeup()

    def waiting_for_input(self, delay_ms: int = 0) -> WaitingForInput:
        """A context manager in which the caller waits for its next rows. If the wait takes longer
        than linger.ms plus ``delay_ms``, all open record batches are sent, even if they are not
        full.
        """
        self._parts.waiting.delay_ms = delay_ms
        return self._parts.waiting

    # ---- failures ----------------------------------------------------------------------------

    def _fail_producer(self, error: KafkaError) -> None:
        """Marks the open transaction as failed with ``error``. If no transaction is open, or if the
        producer has already failed, marks the producer as failed.

        * A failed transaction can only be aborted.
        * In a failed producer, batches that were never sent fail. Every later call that sends or
          waits raises the first error of the producer.
        """
        manager = self._transaction_manager
        if (
            manager is not None
            and manager.has_ongoing_transaction
            # After an interrupted append, the queues of batches may be inconsistent.
            and self._lifecycle.error is None
        ):
            manager.transition_to_abortable_error(error)
        else:
            self._accumulator.fail(error)
            self._lifecycle.is_reported = True

    def _in_callback(self) -> bool:
        return threading.current_thread() is self._thread

    def _refuse_in_callback(self, operation: str) -> None:
        if self._in_callback():
            raise IllegalStateError(
                f"KafkaProducer.{operation}() invocation inside a callback is not permitted because"
                " it may lead to deadlock.",
                hint="callbacks run on the network thread, which would have to do the work",
            )

    # ---- close -------------------------------------------------------------------------------

    def close(self, timeout_ms: int | None = None) -> None:
        """Sends the queued records for at most ``timeout_ms``, fails the records that are left, and
        ends the network thread. If ``timeout_ms`` is None, the limit is delivery.timeout.ms.

        The queued records fail immediately in these cases:

        * ``timeout_ms`` is 0.
        * A callback calls this method.
        * Ctrl-C interrupts this method.
        * This producer has failed, and another method has already raised the error.

        An open transaction is aborted within the same time. If this does not succeed, or if the
        queued records fail immediately, brokers abort the transaction after transaction.timeout.ms.
        A prepared transaction stays open.

        The method does not raise the errors of records. The future of a record has its error. For
        the errors of rows of :meth:`send_columns`, call :meth:`flush` first. For a closed producer,
        and in a forked child process, the method does nothing.
        """
        life = self._lifecycle
        if life.closed or life.is_forked:
            return
        if timeout_ms is None:
            timeout_ms = self._config.delivery_timeout_ms
        if self._in_callback():
            if timeout_ms > 0:
                warn(
                    _log,
                    Kind.CLOSE_IN_CALLBACK,
                    "Overriding close timeout %s ms to 0 ms in order to prevent useless blocking"
                    " due to self-join. This means you have incorrectly invoked close with a"
                    " non-zero timeout from the producer call-back.",
                    timeout_ms,
                )
            self._sender.force_close()
            self._parts.close_plugins()
            return
        try:
            if timeout_ms > 0 and not life.is_reported:
                self._sender.initiate_close()
                # Java's default is Long.MAX_VALUE; Python accepts no more than this.
                self._thread.join(min(timeout_ms / 1000, threading.TIMEOUT_MAX))
            else:
                self._sender.force_close()
        except BaseException:  # Ctrl-C: nobody waits any longer
            self._sender.force_close()
            raise
        if self._thread.is_alive():
            self._sender.force_close()
            self._thread.join(_FORCED_CLOSE_MS / 1000)
        self._parts.close_plugins()
