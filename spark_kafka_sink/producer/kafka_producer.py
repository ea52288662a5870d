"""The public API of the producer, for single records and for columns.

Owns: a producer's methods and its close. The writer thread calls the methods. The steps of a
record's way are in ``record_appender.py`` (for single records) and ``column_appender.py`` (for
columns). Never: the creation of the components (``wiring.py``), bytes, queues, sockets, the
handling of a response (``sender.py``).

``send`` is thread-safe. Only one thread at a time may write columns. Other threads may ``send`` at
the same time. Records that one thread sends to a partition keep their order.
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

#: After delivery.timeout.ms every batch is done, and request.timeout.ms later none that expired is
#: in flight; a flush that still waits indicates a bug.
_FLUSH_GRACE_MS = 30_000

#: Most clients for Python take a topic and a value.
_TAKES_A_RECORD = (
    "send takes a record: send(ProducerRecord(topic, value, key=...)), and perhaps a callback"
)
#: How long close() waits for the network thread after a forced close, in ms.
_FORCED_CLOSE_MS = 5_000
#: How long abandon() waits for new metadata, in ms.
_LEADERS_MS = 1_000


class KafkaProducer:
    """Sends records to Kafka (Java's KafkaProducer); see the module docstring.

        with KafkaProducer({"bootstrap.servers": "localhost:9092"}) as producer:
            future = producer.send(ProducerRecord("topic", b"value", key=b"key"))
            future.result(10).offset

    Options have Java's names. ``configFile`` names a properties file with more options.
    ``key.serializer`` and ``value.serializer`` may be a name (``str``, ``int``, ``long``,
    ``float``, ``double``, ``uuid``, ``list<int>``, Java's class names ...), an import path, or an
    object with ``serialize(topic, data, headers)``. The default accepts bytes and str.
    ``interceptor.classes`` are import paths, or objects. Only the process that created a producer
    can use it.
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
        """Creates the producer. ``cluster`` is initial metadata. The other arguments are for tests,
        which pass a simulated clock, a simulated network and a stepped thread.
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
        """Closes the producer, with or without an exception, like Java's try-with-resources.

        Queued records are sent. A transaction without a commit or abort is aborted.
        """
        self.close()

    # ---- records -----------------------------------------------------------------------------

    def send(self, record: ProducerRecord, callback: Callback | None = None) -> RecordFuture:
        """Appends ``record`` to a batch. The batch is sent when it is full or linger.ms is over.

        The call blocks while the topic is unknown or memory is exhausted, for at most max.block.ms.
        ``callback(metadata, error)`` runs on the network thread, for the records of a partition in
        their order. Its exceptions are logged. While a callback blocks, the producer sends nothing.

        The future and the callback receive ApiErrors: a record too large, an unknown topic,
        exhausted memory, a broker's error. The call itself raises SerializationError, DataError and
        the error of the transaction. It raises IllegalStateError if the producer is closed, if the
        process was forked, or if no transaction was begun. It raises DeliveryError if this producer
        has failed before, in :meth:`send_columns` or because of an authentication error.
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
        """Appends the rows of a pyarrow.RecordBatch.

        The batch has the columns of the Spark sink: value, and optionally key, topic, partition,
        headers and timestamp. Other columns are ignored. The argument ``topic`` overrides the
        column. Only one thread at a time may call this method. :meth:`flush` waits until the rows
        are acknowledged.

        Raises SchemaError for invalid columns, and the errors of :meth:`send_columns`.
        """
        self._lifecycle.check()
        columns = self._batches.columns(batch, topic, self._clock.wall_ms())
        if columns.rows:
            self.send_columns(columns)

    def send_batches(self, batches: Iterable[ArrowBatch], topic: str | None = None) -> None:
        """Appends the rows of every batch of an iterable, such as a pyarrow.RecordBatchReader.

        Each batch is appended like by :meth:`send_batch`. Small batches are joined, unless
        linger.ms is 0. The time of linger.ms also runs while the iterable creates its next batch.
        When the method returns, all rows are appended. Before that, the producer may hold back the
        newest rows, so the code of the iterable must not call flush or commit.

        If the iterable raises an Exception, the earlier rows are appended, and the exception is
        raised. If it raises another BaseException (KeyboardInterrupt), rows that are held back are
        not appended.
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
        """The best number of rows for the next call of :meth:`send_columns`, estimated from the
        rows of the last call.
        """
        return self._columns.chunk_size

    def send_columns(self, columns: RecordColumns) -> None:
        """Appends all rows. Blocks while topics are unknown (max.block.ms) or memory is exhausted.

        Raises DeliveryError if a batch of this attempt has failed. Raises DataError and
        RecordTooLargeError for rows that can't be sent, and KafkaTimeoutError and
        BufferExhaustedError for waits that timed out. After such an error the attempt has failed,
        although earlier rows may be sent. Then every method raises an error, except :meth:`close`
        and, in a transaction, :meth:`abort_transaction`.
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
        """Sends all records, and waits until each is acknowledged or has failed.

        Raises DeliveryError if this producer has failed. Raises IllegalStateError if a callback
        calls this method. The error of a single record is only in the record's future, and the
        error of a transaction is only raised by the commit.
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
        """Records the duration in ms of a blocking call that began at ``start``."""
        now = self._clock.now_ms()
        self._metrics.record(measurement, now - start, now)

    def partitions_for(self, topic: str, *, fresh: bool = False) -> tuple[PartitionInfo, ...]:
        """The partitions of ``topic``. If they are unknown, or with ``fresh=True``, the call
        fetches them, and blocks for at most max.block.ms.

        Raises KafkaTimeoutError, InvalidTopicError, AuthorizationError.
        """
        self._lifecycle.check()
        deadline = self._clock.now_ms() + self._config.max_block_ms
        if fresh:
            self._metadata.refresh(deadline)
        return tuple(self._metadata.await_topics([topic], deadline).topics[topic])

    def unavailable_topics(self, topics: Sequence[str]) -> dict[str, ErrorCode]:
        """The ``topics`` that do not exist, or that brokers refuse to show, each with the broker's
        error code.

        Waits for all topics together, for at most max.block.ms. Raises KafkaTimeoutError if the
        brokers do not answer in this time, or answer with another error.
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
        """The values of all metrics, under Java's names and in Java's units (docs/metrics.md lists
        them). A metric without recent samples is NaN. Any thread may call this method, also after
        :meth:`close`.
        """
        return self._metrics.snapshot()

    # ---- transactions ------------------------------------------------------------------------

    def describe_last_transaction(self) -> str:
        """The state of the last transaction of transactional.id, by the coordinator's names (Java's
        ``TransactionState``). Without a transaction the state is "Dead".

        Call this method before :meth:`init_transactions`, which would abort an open transaction.
        Blocks for at most max.block.ms. Java's producer has no such method.
        """
        manager = self._transactional("describe_last_transaction")
        self._await(manager.describe_last_transaction, Measurement.TXN_INIT)
        return manager.requests.last_state

    def init_transactions(self) -> None:
        """Gets a producer id for transactional.id. Call it once, before any record is sent.

        The call fences earlier producers with this transactional.id, and aborts their open
        transaction. Blocks for at most max.block.ms. After KafkaTimeoutError you can call it again
        to continue the wait.
        """
        begin = self._transactional("init_transactions").initialize_transactions
        self._await(begin, Measurement.TXN_INIT)

    @property
    def identity_in_doubt(self) -> bool:
        """True if a request InitProducerId or AddPartitionsToTxn got no response and was retried.

        The first request may still arrive late. A late InitProducerId aborts the open transaction
        of this transactional.id. A late AddPartitionsToTxn opens a transaction that stays open
        until its timeout.
        """
        return self._transactional("identity_in_doubt").requests.identity_in_doubt

    def begin_transaction(self) -> None:
        """Begins a transaction for all records that are sent from now on. No broker is
        contacted.
        """
        manager = self._transactional("begin_transaction")
        start = self._clock.now_ms()
        manager.begin_transaction()
        self._rows_before = self._parts.appended_records
        self._recorder.start_attempt()
        self._record_duration(Measurement.TXN_BEGIN, start)

    def commit_transaction(self) -> None:
        """Flushes, then commits the transaction. Blocks for at most max.block.ms, like
        :meth:`init_transactions`.

        If the transaction can only be aborted, the call raises the transaction's error.
        """
        self._await(self._transactional("commit_transaction").begin_commit, Measurement.TXN_COMMIT)

    def abort_transaction(self) -> None:
        """Fails unsent records, and aborts the transaction. Blocks for at most max.block.ms."""
        self._await(self._transactional("abort_transaction").begin_abort, Measurement.TXN_ABORT)

    def prepare(self) -> PreparedTransaction:
        """Flushes, counts the rows, and detaches this producer from the transaction.

        Only the holder of the returned value can commit or abort the transaction. This producer can
        be closed, because :meth:`close` and the exit of the process neither commit nor abort it. If
        nobody ends the transaction, brokers abort it after transaction.timeout.ms. After the
        transaction has ended, :meth:`forget_prepared` makes this producer usable again. Java's
        producer has no such method.

        Raises DeliveryError if a row is not acknowledged, the error of the transaction if it has
        failed, and IllegalStateError if nothing was written in the transaction.
        """
        manager = self._transactional("prepare")
        start = self._clock.now_ms()
        self.finish_attempt()
        prepared = manager.prepare()
        self._record_duration(Measurement.TXN_PREPARE, start)
        return prepared

    def forget_prepared(self) -> None:
        """Forgets a prepared transaction that was committed or aborted.

        Call :meth:`init_transactions` next. If the prepared transaction is still open, that call
        aborts it. Raises IllegalStateError if there is no prepared transaction.
        """
        self._transactional("forget_prepared").forget_prepared()

    def abandon(self, timeout_ms: int) -> None:
        """Closes the producer after a failure: fails unsent records, aborts an open transaction,
        and stops the thread.

        Waits for at most ``timeout_ms``. If the transaction is still open after this time, brokers
        abort it after transaction.timeout.ms. The abort (EndTxn) is sent only for an open
        transaction that is not prepared, and only if all its partitions are known to have leaders.
        Without a leader, Kafka 4.3.1 would drop the partition's marker, and later records of the
        partition would be invisible. Never raises.
        """
        manager, until = self._transaction_manager, self._clock.now_ms() + timeout_ms
        if (
            not self._lifecycle.closed
            and not self._lifecycle.is_forked
            and manager is not None
            and manager.has_ongoing_transaction
            and not manager.is_completing
            and self._have_leaders(manager.partitions, min(timeout_ms, _LEADERS_MS))
        ):
            manager.transition_to_abortable_error(IllegalStateError("the transaction is abandoned"))
            self.close(max(0, until - self._clock.now_ms()))
        else:
            self.close(0)

    def _have_leaders(self, partitions: Collection[TopicPartition], timeout_ms: int) -> bool:
        """Requests new metadata. Returns True if all ``partitions`` have leaders. Returns False if
        no new metadata arrive.
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
        """True if another attempt can use this producer: no error occurred, and no batch has an
        unknown outcome (rule R4).
        """
        manager = self._transaction_manager
        return (
            self._lifecycle.is_open
            and not self._lifecycle.is_forked
            and self._thread.is_alive()
            and not self._accumulator.incomplete
            # A producer that never sent a record has no id yet, and is as good as new. A producer
            # with a prepared transaction is reusable after that is completed
            # (:meth:`forget_prepared`).
            and (
                manager is None
                or manager.reusable
                or not manager.has_producer_id
                or manager.state is State.PREPARED
            )
        )

    @property
    def producer_id_and_epoch(self) -> tuple[int, int]:
        """The producer id and its epoch. They are (-1, -1) without idempotence, and before the
        first batch is sent.
        """
        manager = self._transaction_manager
        return (-1, -1) if manager is None else manager.producer_id_and_epoch

    def start_attempt(self, task: int = 0) -> None:
        """Begins an attempt, and resets the counts of rows. Raises IllegalStateError if a batch of
        the previous attempt is not complete.

        ``task`` is the task's number within its write, for ``maxLeadersPerTask``.
        """
        self._lifecycle.check()
        if self._accumulator.incomplete:
            raise IllegalStateError("the previous attempt has unacknowledged batches")
        self._parts.load.choose_leaders(task)
        self._rows_before = self._parts.appended_records
        self._recorder.start_attempt()

    def finish_attempt(self) -> ProduceReport:
        """Waits until all rows are acknowledged, and returns their counts.

        Raises DeliveryError if any row failed. If only records of :meth:`send` failed, the next
        attempt can begin.
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
        """The progress of the current attempt. Any thread may call this method, which never delays
        a row.
        """
        return ProducerProgress(
            self._recorder.report(),
            self._sender.on_wire(self._clock.now_ms()),
            waits_for_memory=self._accumulator.pool.waiters > 0,
        )

    def park(self) -> None:
        """Makes this producer idle between two tasks: it holds no memory, and no timer runs. The
        next send wakes it up.
        """
        self._lifecycle.check()
        if self._accumulator.incomplete:
            raise IllegalStateError("a producer with unacknowledged batches can't be parked")
        self._accumulator.set_writer_waiting_since(None)
        self._metadata.set_parked(parked=True)
        self._parts.wakeup()

    def waiting_for_input(self, delay_ms: int = 0) -> WaitingForInput:
        """A context manager around the wait for more rows. The time of linger.ms runs only in this
        context (docs/design/batches.md). It begins ``delay_ms`` milliseconds after the context is
        entered.
        """
        self._parts.waiting.delay_ms = delay_ms
        return self._parts.waiting

    # ---- failures ----------------------------------------------------------------------------

    def _fail_producer(self, error: KafkaError) -> None:
        """Fails the producer: every method except :meth:`close` raises ``error``, and queued
        batches are not sent.

        In a transaction, only the transaction fails, and can be aborted. Exception: if the producer
        has failed before, it stays failed, because an interrupted append leaves the accumulator in
        an unknown state.
        """
        manager = self._transaction_manager
        if (
            manager is not None
            and manager.has_ongoing_transaction
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
        """Sends queued records for at most ``timeout_ms``, then fails the rest and stops the
        thread.

        If ``timeout_ms`` is 0, all queued records fail immediately. If it is None, the limit is
        delivery.timeout.ms. If a callback calls this method, or after Ctrl-C, all queued records
        also fail immediately. An open transaction is aborted. This method raises no error for
        undelivered records: their futures, or :meth:`flush`, report them. In a forked child the
        call does nothing.
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
