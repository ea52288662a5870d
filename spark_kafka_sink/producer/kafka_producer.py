"""The producer as its callers see it: columns in, a report of what was acknowledged out.

Owns: the sequence of one ``send_columns`` (metadata, partitions, groups, memory, positions,
encoding, appending), the count of rows, the network thread, and what a failure does to all of it.
On a record's way it is the writer's side of steps 2 and 3. Never: bytes, queues, sockets, or a
decision about an answer (``sender.py``).

One writer thread at a time. Records of one partition keep the order of the rows.

Memory is reserved for a whole chunk *before* positions are asked: the wait for memory is long, the
sender closes open batches during it (the waiter makes every batch sendable), and slices encoded
before the wait would all be refused after it.

``send()`` record by record, transactions and interceptors come onto the same accumulator: a
transaction manager goes in where the idempotent one is made here, interceptors around
``_send_chunk``.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self

from spark_kafka_sink.clock import Clock, SystemClock
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import (
    BufferExhaustedError,
    DataError,
    DeliveryError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    RecordTooLargeError,
)
from spark_kafka_sink.network.kafka_client import KafkaClient
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.report import ProduceRecorder, ProduceReport
from spark_kafka_sink.producer.sender import Sender
from spark_kafka_sink.producer.transaction_manager import TransactionManager
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.records.encoded_slice import EncodedSlice
from spark_kafka_sink.records.partitioners import TopicView, partitioner
from spark_kafka_sink.records.ragged import offsets_of
from spark_kafka_sink.records.record_batch import HEADER_SIZE
from spark_kafka_sink.records.record_columns import MAX_CHUNK_BYTES, RecordColumns
from spark_kafka_sink.records.record_encoder import (
    Groups,
    content_sizes,
    encode_groups,
    encode_slice_again,
    group_rows,
)

#: Bytes of a record besides key, value and headers, as many as they can get: length, attributes,
#: the two deltas, the two lengths.
_RECORD_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5

#: Header of a batch and Java's bound of a record's overhead, for its size check.
_JAVA_OVERHEAD = 61 + 21

#: After delivery.timeout.ms every batch has ended; a flush that still waits has met a bug.
_FLUSH_GRACE_MS = 30_000

#: How long close() waits for the network thread after it was told to drop everything.
_FORCED_CLOSE_MS = 5_000

#: Names for producers without client.id, as Java's: producer-1, producer-2, ... in a process.
_numbers = itertools.count(1)


class NetworkThread(Protocol):
    """What the producer needs of the thread that runs the sender."""

    def is_alive(self) -> bool: ...

    def join(self, timeout: float | None = None) -> None: ...


NewClient = Callable[[ProducerConfig, Metadata, Clock], KafkaClient]
StartThread = Callable[[Callable[[], None], str], NetworkThread]


def _start_thread(run: Callable[[], None], name: str) -> NetworkThread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


class KafkaProducer:
    """Writes columns of records to Kafka (see the module docstring).

    Belongs to one writer thread and to the process that made it. After the first failure nothing
    is sent any more: every call raises that failure, until :meth:`close`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        cluster: Cluster | None = None,
        clock: Clock | None = None,
        client: KafkaClient | None = None,
        new_client: NewClient | None = None,
        start_thread: StartThread = _start_thread,
    ) -> None:
        """``cluster``: metadata that is known already. The others are for tests, which put a clock
        that jumps, a network that is simulated and a thread that is stepped in their place.
        """
        if not config.client_id:
            config = replace(config, client_id=f"producer-{next(_numbers)}")
        self._config = config
        self._clock: Clock = SystemClock() if clock is None else clock
        self._pid = os.getpid()
        self._closed = False
        self._broken: KafkaError | None = None
        self._rows = 0
        self._recorder = ProduceRecorder(self._batch_failed)
        self._metadata = Metadata(config, self._clock, cluster)
        self._partitioner = partitioner(
            config.partitioner_class, ignore_keys=config.partitioner_ignore_keys
        )
        self._transaction_manager = (
            TransactionManager(max_in_flight=config.max_in_flight_requests_per_connection)
            if config.enable_idempotence
            else None
        )
        self._accumulator = RecordAccumulator(
            config, self._clock, self._transaction_manager, self._recorder, self._wakeup
        )
        self._waiting = _WaitingForInput(self._accumulator, self._clock, self._wakeup)
        # A chunk must leave room for the batches that others of it are in, or nothing overlaps.
        self._chunk_bytes = max(1, min(MAX_CHUNK_BYTES, config.buffer_memory // 4))
        if client is None:
            if new_client is None:
                from spark_kafka_sink.network.client_factory import new_network_client

                new_client = new_network_client
            client = new_client(config, self._metadata, self._clock)
        try:
            self._sender = Sender(
                client,
                self._metadata,
                self._accumulator,
                self._transaction_manager,
                config,
                self._clock,
                self._recorder,
            )
            self._thread = start_thread(
                self._sender.run, f"kafka-producer-network-thread | {config.client_id}"
            )
        except BaseException:
            client.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(0 if error_type is not None else self._config.delivery_timeout_ms)

    def _wakeup(self) -> None:
        self._sender.wakeup()

    # ---- an attempt --------------------------------------------------------------------------

    @property
    def reusable(self) -> bool:
        """True after a clean end: nothing in flight, nothing unresolved, no error (rule 5.4)."""
        manager = self._transaction_manager
        return (
            not self._closed
            and self._broken is None
            and self._recorder.failed_batch is None
            and self._pid == os.getpid()
            and self._thread.is_alive()
            and not self._accumulator.has_incomplete
            # A producer that never sent anything has no id yet, and is as good as new.
            and (manager is None or manager.reusable or not manager.has_producer_id)
        )

    @property
    def producer_id_and_epoch(self) -> tuple[int, int]:
        """(-1, -1) without idempotence, and before the first batch was sent."""
        manager = self._transaction_manager
        return (-1, -1) if manager is None else manager.producer_id_and_epoch

    def start_attempt(self) -> None:
        """Count from zero. IllegalStateError unless the attempt before ended cleanly."""
        self._check_usable()
        if self._accumulator.has_incomplete:
            raise IllegalStateError("the attempt before has batches that are not acknowledged")
        self._rows = 0
        self._recorder.start_attempt()

    def finish_attempt(self) -> ProduceReport:
        """Wait until everything is acknowledged; what was, counted.

        Raises DeliveryError when anything is not.
        """
        self.flush()
        report = self._recorder.report()
        if report.rows != self._rows:
            error = DeliveryError(
                f"{self._rows} rows were appended, but {report.rows} were acknowledged; the attempt"
                " must be repeated",
                hint="this is a bug in spark_kafka_sink: please report it",
            )
            self._break(error)
            raise error
        return report

    def park(self) -> None:
        """Between two tasks: no memory held, no timer run. The next send wakes it up again."""
        self._check_usable()
        if self._accumulator.has_incomplete:
            raise IllegalStateError("a producer with batches that are not acknowledged can't park")
        self._accumulator.set_writer_waiting_since(None)
        self._metadata.set_parked(parked=True)
        self._sender.wakeup()

    # ---- sending -----------------------------------------------------------------------------

    def send_columns(self, columns: RecordColumns) -> None:
        """Append all rows. Blocks while topics are unknown (max.block.ms) or memory is used up.

        Raises DeliveryError for the first batch of this attempt that failed, DataError and
        RecordTooLargeError for rows that can't be sent, KafkaTimeoutError and BufferExhaustedError
        for waits that were too long. Rows before the one at fault may be sent all the same: the
        attempt is lost, and the producer refuses everything but :meth:`close` from then on.
        """
        self._check_usable()
        try:
            for chunk in columns.chunks(self._chunk_bytes):
                self._send_chunk(chunk)
        except KafkaError as error:
            # A failed batch closes pool and accumulator: what the writer ran into is a consequence.
            self._raise_failure()
            self._break(error)
            raise
        except BaseException as error:
            # KeyboardInterrupt above all: some rows are appended, some are not.
            self._break(IllegalStateError(f"sending was interrupted by {type(error).__name__}"))
            raise

    def _send_chunk(self, chunk: RecordColumns) -> None:
        topics = chunk.topics()
        cluster = self._await_topics(topics)
        size = self._upper_bound(chunk)
        if chunk.rows > 1 and size > self._config.buffer_memory // 2:
            half = chunk.rows // 2
            self._send_chunk(chunk.slice(0, half))
            self._send_chunk(chunk.slice(half, chunk.rows - half))
            return
        accumulator = self._accumulator
        limits = {topic: accumulator.raw_limit(topic) for topic in topics}
        try:
            groups = self._group(chunk, cluster, limits)
        except DataError:
            # An explicit partition that the topic lacks: it may have been added since we asked.
            self._metadata.refresh(self._clock.now_ms() + self._config.max_block_ms)
            groups = self._group(chunk, self._await_topics(topics), limits)
        self._allocate(size)
        taken = 0
        try:
            now_ms = self._clock.wall_ms()
            slices: Sequence[EncodedSlice] = encode_groups(
                chunk,
                groups,
                accumulator.positions(groups.tps),
                [limits[tp.topic] for tp in groups.tps],
                now_ms,
                max_request_size=self._config.max_request_size,
            )
            while slices:
                result = accumulator.append(slices, self._clock.now_ms())
                taken += result.taken
                self._rows += sum(s.record_count for s in slices)
                self._rows -= sum(s.record_count for s in result.refused)
                slices = self._encode_again(chunk, groups, result.refused, now_ms)
        finally:
            accumulator.pool.adjust(size, taken)

    def _group(self, chunk: RecordColumns, cluster: Cluster, limits: Mapping[str, int]) -> Groups:
        views = {topic: TopicView.of(cluster, topic, limit) for topic, limit in limits.items()}
        partitions = self._partitioner.assign(chunk, views, self._accumulator.open_room)
        return group_rows(chunk, partitions)

    def _encode_again(
        self, chunk: RecordColumns, groups: Groups, refused: Sequence[EncodedSlice], now_ms: int
    ) -> list[EncodedSlice]:
        """The refused rows anew, in order. One slice of a partition after the other: where the
        second goes depends on what the first one leaves.
        """
        slices: list[EncodedSlice] = []
        seen = set()
        for piece in refused:
            if piece.tp in seen:
                # Its generation is 0 (only the first of a chunk continues a batch), so it opens a
                # batch wherever the one before it went, and its bytes are right as they are.
                slices.append(piece)
                continue
            seen.add(piece.tp)
            position = self._accumulator.positions([piece.tp])[0]
            limit = self._accumulator.raw_limit(piece.tp.topic)
            slices += encode_slice_again(chunk, groups, piece, position, limit, now_ms)
        return slices

    def _await_topics(self, topics: Sequence[str]) -> Cluster:
        cluster = self._metadata.fetch()
        if self._metadata.parked or not all(topic in cluster.topics for topic in topics):
            deadline = self._clock.now_ms() + self._config.max_block_ms
            return self._metadata.await_topics(topics, deadline)
        self._metadata.add_topics(topics, self._clock.now_ms())
        return cluster

    def _upper_bound(self, chunk: RecordColumns) -> int:
        """At least the encoded bytes of ``chunk``, without looking at its rows."""
        size = chunk.rows * _RECORD_OVERHEAD + HEADER_SIZE
        for column in (chunk.key, chunk.value, chunk.headers):
            if column is not None:
                offsets = offsets_of(column)
                size += int(offsets[-1]) - int(offsets[0])
        memory = self._config.buffer_memory
        if chunk.rows > 1 or size <= memory:
            return size
        # The bound leaves slack, so this row may fit exactly.
        exact = int(content_sizes(chunk)[0]) + _JAVA_OVERHEAD
        if exact > self._config.max_request_size:
            return 0  # encode_groups refuses it, and must not wait for memory first
        if exact > memory:
            raise RecordTooLargeError(
                f"Row {chunk.first_row} of the Arrow batch (topic {chunk.topics()[0]}): The "
                f"message is {exact} bytes when serialized which is larger than the total memory "
                "buffer you have configured with the buffer.memory configuration.",
                hint="raise kafka.buffer.memory",
                code=ErrorCode.MESSAGE_TOO_LARGE,
            )
        return memory

    def _allocate(self, size: int) -> None:
        config = self._config
        deadline = self._clock.now_ms() + config.buffer_wait_ms
        try:
            self._accumulator.pool.allocate(size, deadline, self._wakeup)
        except BufferExhaustedError as error:
            last = self._recorder.last_answer
            raise BufferExhaustedError(
                f"buffer.memory ({config.buffer_memory} bytes) stayed used up for "
                f"{config.buffer_wait_ms} ms while {size} bytes were wanted (max.block.ms is "
                f"{config.max_block_ms}, delivery.timeout.ms {config.delivery_timeout_ms}); "
                f"the brokers' last answer: {last or 'none since the attempt began'}",
                hint="the brokers take rows more slowly than they come, or not at all",
                code=error.code,
            ) from error

    def waiting_for_input(self) -> _WaitingForInput:
        """Around the wait for more rows: linger.ms runs only inside (design.md section 8)."""
        return self._waiting

    def flush(self) -> None:
        """Send everything and wait until it is acknowledged. DeliveryError when anything failed."""
        self._check_usable()
        deadline = self._clock.now_ms() + self._config.delivery_timeout_ms + _FLUSH_GRACE_MS
        flush = None
        try:
            flush = self._accumulator.begin_flush()
            self._sender.wakeup()
            complete = self._accumulator.await_flush_completion(flush, deadline)
        except BaseException as error:
            self._break(IllegalStateError(f"flush was interrupted by {type(error).__name__}"))
            raise
        finally:
            if flush is not None:
                self._accumulator.end_flush(flush)
        self._raise_failure()
        if not complete:
            late = DeliveryError(
                f"{flush.remaining} batches neither acknowledged nor failed within "
                f"delivery.timeout.ms ({self._config.delivery_timeout_ms})",
                hint="this is a bug in spark_kafka_sink: please report it",
            )
            self._break(late)
            raise late

    # ---- failures ----------------------------------------------------------------------------

    def _batch_failed(self, batch: ProducerBatch) -> None:
        """The first batch failed for good (sender's thread, no lock): drop what was never sent."""
        assert batch.error is not None
        self._accumulator.fail(batch.error)

    def _raise_failure(self) -> None:
        """Raise what made this attempt fail, if anything did."""
        batch = self._recorder.failed_batch
        cause = batch.error if batch is not None else self._sender.fatal_error
        if cause is None:
            return
        if batch is None:
            error = DeliveryError(f"the producer failed: {_first_line(cause)}", hint=cause.hint)
        else:
            age = self._clock.now_ms() - batch.created_ms
            error = DeliveryError(
                f"{batch.tp}: {batch.record_count} rows were not acknowledged (attempts: "
                f"{batch.attempts + (batch.drained_ms > 0)}, age: {age} ms): {_first_line(cause)}",
                hint=cause.hint,
            )
        self._break(error)
        raise error from cause

    def _break(self, error: KafkaError) -> None:
        """From now on every call but close raises ``error``; nothing that waits is sent."""
        if self._broken is None:
            self._broken = error
        self._accumulator.fail(error)

    def _check_usable(self) -> None:
        if self._pid != os.getpid():
            raise IllegalStateError(
                f"this producer was made in process {self._pid}, not in {os.getpid()}",
                hint="a fork has neither its network thread nor its own connections: make a new "
                "producer after forking",
            )
        if self._closed:
            raise IllegalStateError("the producer is closed")
        if self._broken is not None:
            raise self._broken
        if self._recorder.failed_batch is not None or self._sender.fatal_error is not None:
            self._raise_failure()

    # ---- the end -----------------------------------------------------------------------------

    def close(self, timeout_ms: int | None = None) -> None:
        """Send what is queued for at most ``timeout_ms``, then drop the rest and end the thread.

        0 drops everything at once; None waits for delivery.timeout.ms. Never raises for what could
        not be delivered: that is :meth:`finish_attempt`'s to say. In a forked child it does
        nothing.
        """
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        if timeout_ms is None:
            timeout_ms = self._config.delivery_timeout_ms
        self._accumulator.close()
        if timeout_ms > 0 and self._broken is None:
            self._sender.initiate_close()
            self._thread.join(timeout_ms / 1000)
        if self._thread.is_alive():
            self._sender.force_close()
            self._thread.join(_FORCED_CLOSE_MS / 1000)


class _WaitingForInput:
    """``with producer.waiting_for_input(): batch = next(iterator)``. Not reentrant."""

    __slots__ = ("_accumulator", "_clock", "_wakeup")

    def __init__(
        self, accumulator: RecordAccumulator, clock: Clock, wakeup: Callable[[], None]
    ) -> None:
        self._accumulator = accumulator
        self._clock = clock
        self._wakeup = wakeup

    def __enter__(self) -> None:
        if self._accumulator.set_writer_waiting_since(self._clock.now_ms()):
            # The sender may sleep for longer than linger.ms: nothing was due when it looked.
            self._wakeup()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._accumulator.set_writer_waiting_since(None)


def _first_line(error: KafkaError) -> str:
    return error.message.splitlines()[0] if error.message else type(error).__name__
