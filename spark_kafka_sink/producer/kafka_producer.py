"""The producer's public API: records or columns in, outcomes out.

Owns: a producer's methods and its close. The writer thread calls it; the steps of a record's way
are ``record_appender.py`` (one record) and ``column_appender.py`` (many). Never: the assembly of
the parts (``wiring.py``), bytes, queues, sockets, the handling of a response (``sender.py``).

``send`` is thread-safe. Columns have one writer thread at a time; other threads may ``send``
concurrently. Records that one thread sends to a partition keep their order.
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
    FATAL_TOPIC_ERRORS,
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

#: Brokers' answers for a topic that can't be written to.
_TOPIC_UNAVAILABLE = FATAL_TOPIC_ERRORS | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
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

    Options have Java's names; ``configFile`` is a properties file with more of them.
    ``key.serializer`` and ``value.serializer`` may be a name (``str``, ``int``, ``long``,
    ``float``, ``double``, Java's class names), an import path, or an object with
    ``serialize(topic, data, headers)``; by default bytes and str are taken.
    ``interceptor.classes`` are import paths, or objects. Belongs to the process that made it.
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
        """``cluster``: initial metadata. The others are for tests, which substitute a simulated
        clock and network and a stepped thread.
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """As Java's try-with-resources: with or without an exception, queued records are sent, and
        a transaction that is neither committed nor aborted is aborted.
        """
        self.close()

    # ---- records -----------------------------------------------------------------------------

    def send(self, record: ProducerRecord, callback: Callback | None = None) -> RecordFuture:
        """Append ``record``; it is sent when its batch is full or linger.ms is over.

        Blocks while its topic is unknown or memory is exhausted, for max.block.ms in total.
        ``callback(metadata, error)`` runs on the network thread, in the order of the records of a
        partition; its exceptions are logged. While it blocks, nothing is sent.

        ApiErrors (a record too large, an unknown topic, exhausted memory, a broker's error) are
        passed to the future and the callback. Raised are SerializationError, DataError and
        IllegalStateError (closed, forked, no transaction begun), the error of the transaction, and
        DeliveryError once this producer has failed: by rows of columns, or by an authentication
        error.
        """
        try:
            return self._records.append(record, callback)
        except BaseException as raised:
            error = self._lifecycle.error
            if error is not None:
                # Also when this append was interrupted: unsent batches fail.
                self._fail_producer(error)
            if isinstance(raised, AttributeError) and not isinstance(record, ProducerRecord):
                raise TypeError(_TAKES_A_RECORD) from None
            raise

    def send_batch(self, batch: ArrowBatch, topic: str | None = None) -> None:
        """Append the rows of a pyarrow.RecordBatch, with the columns of the Spark sink: value, and
        optionally key, topic, partition, headers, timestamp; others are ignored. ``topic``
        overrides the column. One thread at a time. :meth:`flush` waits for acknowledgement.

        Raises SchemaError for invalid columns, and the errors of :meth:`send_columns`.
        """
        self._lifecycle.check()
        columns = self._batches.columns(batch, topic, self._clock.wall_ms())
        if columns.rows:
            self.send_columns(columns)

    def send_batches(self, batches: Iterable[ArrowBatch], topic: str | None = None) -> None:
        """:meth:`send_batch` for every batch of an iterable, such as a pyarrow.RecordBatchReader.

        Small batches are joined, unless linger.ms is 0, and linger.ms counts while the iterable is
        waited for. All rows are appended when this returns. Before, the last ones may be held back:
        an iterable must not flush or commit them. An Exception that it raises is raised behind the
        rows before it; for another BaseException (KeyboardInterrupt) those that were held back are
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
        """How many rows a call of :meth:`send_columns` should best have; those of the last call
        decide.
        """
        return self._columns.chunk_size

    def send_columns(self, columns: RecordColumns) -> None:
        """Append all rows. Blocks while topics are unknown (max.block.ms) or memory is exhausted.

        Raises DeliveryError for the first batch of this attempt that failed, DataError and
        RecordTooLargeError for rows that can't be sent, KafkaTimeoutError and BufferExhaustedError
        for waits that timed out. Rows before the one at fault may be sent nevertheless: the
        attempt has failed, and every method but :meth:`close` raises from then on (in a
        transaction: but :meth:`abort_transaction`).
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
        """Send all records and wait until they are acknowledged or failed.

        Raises DeliveryError when this producer has failed, and IllegalStateError from a callback.
        The error of a single record is in its future; the commit raises that of a transaction.
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
        """Record the duration of a blocking call that began at ``start``."""
        now = self._clock.now_ms()
        self._metrics.record(measurement, now - start, now)

    def partitions_for(self, topic: str, *, fresh: bool = False) -> tuple[PartitionInfo, ...]:
        """The partitions of ``topic``; fetches them when unknown, or to be ``fresh``, blocking for
        max.block.ms.

        Raises KafkaTimeoutError, InvalidTopicError, AuthorizationError.
        """
        self._lifecycle.check()
        deadline = self._clock.now_ms() + self._config.max_block_ms
        if fresh:
            self._metadata.refresh(deadline)
        return tuple(self._metadata.await_topics([topic], deadline).topics[topic])

    def unavailable_topics(self, topics: Sequence[str]) -> dict[str, ErrorCode]:
        """Those of ``topics`` that do not exist, or that brokers refuse to show, with their answer.
        Waits for all of them together, for max.block.ms. Raises KafkaTimeoutError when the answers
        say something else, or there is none.
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
                if not isinstance(cause, ApiError) or cause.code not in _TOPIC_UNAVAILABLE:
                    raise
                found[topic] = cause.code
        return found

    def metrics(self) -> Mapping[MetricName, float]:
        """Measurements by name, as docs/metrics.md lists them (Java's names and units); NaN where
        there are no recent samples. Any thread, also after :meth:`close`.
        """
        return self._metrics.snapshot()

    # ---- transactions ------------------------------------------------------------------------

    def describe_last_transaction(self) -> str:
        """The coordinator's name for the state of transactional.id's last transaction (Java's
        ``TransactionState``); "Dead" when it knows none. Call it before :meth:`init_transactions`,
        which would abort one that is open. Blocks for max.block.ms, as that does. Not in Java.
        """
        manager = self._transactional("describe_last_transaction")
        self._await(manager.describe_last_transaction, Measurement.TXN_INIT)
        return manager.requests.last_state

    def init_transactions(self) -> None:
        """Get a producer id for transactional.id; once, before any record is sent.

        Fences earlier producers of that id, and aborts their open transaction. Blocks for
        max.block.ms; after KafkaTimeoutError it may be called again to keep waiting.
        """
        begin = self._transactional("init_transactions").initialize_transactions
        self._await(begin, Measurement.TXN_INIT)

    @property
    def identity_in_doubt(self) -> bool:
        """True when an InitProducerId or an AddPartitionsToTxn got no response and was retried. The
        first request may still arrive: it then aborts the open transaction of this
        transactional.id, or opens one that only its timeout aborts.
        """
        return self._transactional("identity_in_doubt").requests.identity_in_doubt

    def begin_transaction(self) -> None:
        """Begin a transaction for the records sent from now on. Does not wait for a broker."""
        manager = self._transactional("begin_transaction")
        start = self._clock.now_ms()
        manager.begin_transaction()
        self._rows_before = self._accumulator.appended_records
        self._recorder.start_attempt()
        self._record_duration(Measurement.TXN_BEGIN, start)

    def commit_transaction(self) -> None:
        """Flush, then commit. Blocks for max.block.ms, as :meth:`init_transactions` does. Raises
        the transaction's error when it can only be aborted.
        """
        self._await(self._transactional("commit_transaction").begin_commit, Measurement.TXN_COMMIT)

    def abort_transaction(self) -> None:
        """Fail unsent records, and abort. Blocks for max.block.ms, as :meth:`init_transactions`."""
        self._await(self._transactional("abort_transaction").begin_abort, Measurement.TXN_ABORT)

    def prepare(self) -> PreparedTransaction:
        """Flush, count the rows, and detach from the transaction.

        Only the holder of the returned value can commit or abort it; else transaction.timeout.ms
        aborts it. Neither :meth:`close` nor the exit of the process does. Then this producer can be
        closed, or, once the transaction is committed or aborted, be reused by
        :meth:`forget_prepared`. Not in Java. Raises DeliveryError when a row is not acknowledged,
        the transaction's error when it failed, and IllegalStateError when nothing was written in
        it.
        """
        manager = self._transactional("prepare")
        start = self._clock.now_ms()
        self.finish_attempt()
        prepared = manager.prepare()
        self._record_duration(Measurement.TXN_PREPARE, start)
        return prepared

    def forget_prepared(self) -> None:
        """Forget a prepared transaction that was committed or aborted.

        Call :meth:`init_transactions` next, which would abort a transaction that is still open.
        IllegalStateError unless prepared.
        """
        self._transactional("forget_prepared").forget_prepared()

    def abandon(self, timeout_ms: int) -> None:
        """Close after a failure: fail unsent records, abort an open transaction, stop the thread.

        Waits at most ``timeout_ms``; after that transaction.timeout.ms aborts the transaction. No
        EndTxn is sent when no transaction is open, or when it is prepared; nor when a partition of
        it has no leader, or that is not known: Kafka 4.3.1 would drop its marker, and what follows
        there be invisible. Never raises.
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
        """By new metadata; without them that is not known, so it is False."""
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
        """True after a clean attempt: no batch in flight or unresolved, no error (rule R4)."""
        manager = self._transaction_manager
        return (
            self._lifecycle.is_open
            and not self._lifecycle.is_forked
            and self._thread.is_alive()
            and not self._accumulator.incomplete
            # A producer that never sent a record has no id yet, and is as good as new. One whose
            # transaction is prepared is reusable once that is completed (:meth:`forget_prepared`).
            and (
                manager is None
                or manager.reusable
                or not manager.has_producer_id
                or manager.state is State.PREPARED
            )
        )

    @property
    def producer_id_and_epoch(self) -> tuple[int, int]:
        """(-1, -1) without idempotence, and before the first batch was sent."""
        manager = self._transaction_manager
        return (-1, -1) if manager is None else manager.producer_id_and_epoch

    def start_attempt(self) -> None:
        """Reset the counts. IllegalStateError when the previous attempt has incomplete batches."""
        self._lifecycle.check()
        if self._accumulator.incomplete:
            raise IllegalStateError("the previous attempt has unacknowledged batches")
        self._rows_before = self._accumulator.appended_records
        self._recorder.start_attempt()

    def finish_attempt(self) -> ProduceReport:
        """Wait until all rows are acknowledged; returns their counts.

        Raises DeliveryError when any row failed. When only records of :meth:`send` failed, the next
        attempt can begin.
        """
        self.flush()
        if self._transaction_manager is not None:
            self._transaction_manager.maybe_fail_with_error()
        report = self._recorder.end_attempt(self._metadata.cluster.cluster_id)
        rows = self._accumulator.appended_records - self._rows_before
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
        """The progress of the attempt. Any thread; takes no lock that a row waits for."""
        return ProducerProgress(
            self._recorder.report(),
            self._sender.on_wire(self._clock.now_ms()),
            waits_for_memory=self._accumulator.pool.waiters > 0,
        )

    def park(self) -> None:
        """Idle between two tasks: no memory held, no timer. The next send wakes it up."""
        self._lifecycle.check()
        if self._accumulator.incomplete:
            raise IllegalStateError("a producer with unacknowledged batches can't be parked")
        self._accumulator.set_writer_waiting_since(None)
        self._metadata.set_parked(parked=True)
        self._parts.wakeup()

    def waiting_for_input(self, delay_ms: int = 0) -> WaitingForInput:
        """Around the wait for more rows: linger.ms runs only inside (docs/design/batches.md), and
        begins ``delay_ms`` later.
        """
        self._parts.waiting.delay_ms = delay_ms
        return self._parts.waiting

    # ---- failures ----------------------------------------------------------------------------

    def _fail_producer(self, error: KafkaError) -> None:
        """From now on every method but close raises ``error``; queued batches are not sent.

        In a transaction only the transaction fails and can be aborted, unless the producer has
        failed before (an interrupted append leaves the accumulator in an unknown state).
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
        """Send queued records for at most ``timeout_ms``, then fail the rest and stop the thread.

        0 fails all of them immediately; None waits for delivery.timeout.ms. An open transaction is
        aborted. Never raises for undelivered records: their futures, or :meth:`flush`, report
        them. In a forked child it does nothing; from a callback it is a forced close.
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
        if timeout_ms > 0 and not life.is_reported:
            self._sender.initiate_close()
            # Java's default is Long.MAX_VALUE; Python accepts no more than this.
            self._thread.join(min(timeout_ms / 1000, threading.TIMEOUT_MAX))
        else:
            self._sender.force_close()
        if self._thread.is_alive():
            self._sender.force_close()
            self._thread.join(_FORCED_CLOSE_MS / 1000)
        self._parts.close_plugins()
