"""Queues encoded records until they are sent: a queue of batches for every topic partition.

Owns: the queues, filling (columns by :meth:`~RecordAccumulator.append`, single records by
:meth:`~RecordAccumulator.append_record`), the completion of batches, flush. It is between the
writer's encoder and the sender (step 7 of a record's way). Never: which batches are sent
(``batch_drainer.py``), requeued or expired (``batch_requeuer.py``), sockets; it reads no clock,
only a flush waits on one.

**Who closes an open batch.** Encoding needs the open batch's record count and base timestamp, and
compressing takes long, so neither happens under the lock:

1. The writer calls :meth:`RecordAccumulator.positions` and encodes for generation g, count n.
2. Meanwhile the sender finds that g must be sent (linger, flush, waiters in the pool, age, close):
   it *claims* g under the lock (OPEN -> CLOSING; from here nothing is appended to g), compresses it
   without the lock and marks it READY.
3. The writer's :meth:`~RecordAccumulator.append` no longer finds g open: it refuses the slice, and
   every later slice of that partition with it, so that order is kept. The writer requests new
   positions and encodes those rows again.

The writer claims in the same way when a batch is full. The thread that claims a batch closes it:
the other thread ignores a CLOSING batch, and :meth:`drain` skips a CLOSING head of a queue until
its closer marks it READY and wakes the sender. A closer that is interrupted (KeyboardInterrupt)
releases its claim; such a batch accepts no more appends, it only waits for the sender to close it.

A single record is encoded under the lock (its position is a few bytes before a finished tail), so
any number of threads may call :meth:`~RecordAccumulator.append_record`, concurrently with one that
writes columns: a slice whose batch got a single record meanwhile is refused as above.
"""

from __future__ import annotations

import random as _random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from spark_kafka_sink.clock import NEVER, Clock, Waiters
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.errors import IllegalStateError, KafkaError
from spark_kafka_sink.network.backoff import ExponentialBackoff
from spark_kafka_sink.producer.accumulator.batch_closer import BatchCloser
from spark_kafka_sink.producer.accumulator.batch_drainer import BatchDrainer
from spark_kafka_sink.producer.accumulator.batch_limits import BatchLimits
from spark_kafka_sink.producer.accumulator.batch_requeuer import BatchRequeuer
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.drain_control import DrainControl
from spark_kafka_sink.producer.accumulator.incomplete_batches import Flush, IncompleteBatches
from spark_kafka_sink.producer.accumulator.partition_queues import PartitionQueue, PartitionQueues
from spark_kafka_sink.producer.accumulator.producer_batch import (
    BatchListener,
    ProducerBatch,
    UnplacedRecord,
)
from spark_kafka_sink.producer.record_future import RecordFuture
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.encoded_slice import EncodedSlice, OpenPosition, new_position
from spark_kafka_sink.records.record_batch import HEADER_SIZE
from spark_kafka_sink.records.single_record import record_bytes

#: Returned by :meth:`RecordAccumulator.append_record` when the sticky partition changed.
PARTITION_CHANGED = -1

#: A batch of single records allocates memory in steps of this (Kafka 4.4's incremental strategy): a
#: whole batch.size for each open batch would be 256 MiB for 1000 partitions, and an allocation for
#: each record costs as much as encoding it.
MEMORY_STEP = 16_384

#: Length, attributes, the two deltas and two lengths of a record, as the sticky partitioner counts.
_RECORD_OVERHEAD = 12


class StickyChoice(Protocol):
    """The partition that the built-in partitioner chose for one record (Java's
    StickyPartitionInfo, with RecordAccumulator's checks on it).

    Both are called under the accumulator's lock and must not block.
    """

    def changed(self, *, all_full: bool) -> bool:
        """True when another record switched the topic to another partition, or when the switch is
        due now. ``all_full``: the queue has no batch with room.
        """
        ...

    def appended(self, size: int, *, all_full: bool) -> None:
        """The record added ``size`` bytes."""
        ...


class Memory:
    """``size`` bytes of the pool that a sending thread has held since ``allocated_ms``; 0 once a
    batch owns them.
    """

    __slots__ = ("allocated_ms", "size")

    def __init__(self) -> None:
        self.size = self.allocated_ms = 0


@dataclass(frozen=True, slots=True)
class AppendResult:
    """``refused`` slices must be encoded again; batches now use ``taken`` bytes of the pool."""

    refused: tuple[EncodedSlice, ...]
    taken: int


class RecordAccumulator:
    """Queues of ProducerBatch by topic partition (Java's RecordAccumulator).

    One lock (``_lock``) guards every queue and all the fields below it, the flushes, and all
    transitions of a batch between OPEN, CLOSING, READY and IN_FLIGHT. The pool has its own lock;
    neither is taken under the other. The listener is called without locks, and so is ``wakeup``
    (the sender's), whenever a batch became ready or the only open batch was opened.

    Called by the writer: :meth:`positions`, :meth:`append`, :meth:`set_writer_waiting_since`,
    flush. Called by the sender: everything else.

    ``pool`` memory is allocated by the writer before :meth:`append` and passed on there.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        transaction_manager: DrainControl | None,
        listener: BatchListener,
        wakeup: Callable[[], None],
        *,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self.pool = BufferPool(config.buffer_memory, clock)
        self._clock = clock
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._listener = listener
        self._wakeup = wakeup
        self._codec = Codec.of(config)
        self._limits = BatchLimits(config, self._codec)
        self._memory_step = max(1, min(MEMORY_STEP, config.buffer_memory // 8))

        #: Slices that :meth:`append` refused so far: each was encoded twice.
        self.refused_slices = 0

        self._lock = threading.Lock()
        self._flushed = Waiters()
        self._queues = PartitionQueues()
        self._by_partition = self._queues.by_partition
        self._incomplete = IncompleteBatches(self._flushed)
        self._closer = BatchCloser(
            self._lock, self._queues, self.pool, self._codec, self._limits, wakeup
        )
        self._drainer = BatchDrainer(
            config,
            self._lock,
            self._queues,
            self._incomplete,
            self.pool,
            self._closer,
            transaction_manager,
        )
        # What its parts do, without a method call between.
        self.ready = self._drainer.ready
        self.drain = self._drainer.drain
        self.update_node_latency_stats = self._drainer.update_node_latency_stats
        self.node_delay_ms = self._drainer.node_delay_ms
        self._returns = BatchRequeuer(
            config.delivery_timeout_ms,
            ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random=random),
            self._lock,
            self._queues,
            self._incomplete,
            self.pool,
            self._limits,
            transaction_manager,
        )
        self.reenqueue = self._returns.reenqueue
        self.split_and_reenqueue = self._returns.split_and_reenqueue
        self.expired_batches = self._returns.expired
        self.raw_limit = self._limits.raw_limit
        #: No record is accepted any more. May be read without the lock.
        self.closed = False
        self._has_columns = self._has_records = False
        #: Records appended so far, as columns and one by one.
        self.appended_records = 0
        self._failure: KafkaError | None = None

    # ---- the writer ------------------------------------------------------------------------

    def positions(self, tps: Sequence[TopicPartition]) -> list[OpenPosition]:
        """The position in the open batch of each of ``tps``; :meth:`append` must follow soon."""
        limits = {topic: self.raw_limit(topic) for topic in {tp.topic for tp in tps}}
        closed = {topic: OpenPosition(0, 0, 0, limit) for topic, limit in limits.items()}
        with self._lock:
            self._drainer.writer_encodes = self._has_columns = True
            self._drainer.mixed = self._has_records
            queues = self._queues.by_partition
            return [
                closed[tp.topic]
                if tp not in queues or (batch := queues[tp].open) is None
                else new_position(
                    (
                        batch.generation,
                        batch.record_count,
                        batch.base_timestamp,
                        limits[tp.topic] - batch.raw_size,
                    )
                )
                for tp in tps
            ]

    def open_room(self, tp: TopicPartition) -> int | None:
        """Raw bytes left in the open batch of ``tp``; None when none is open."""
        with self._lock:
            queue = self._queues.by_partition.get(tp)
            if queue is None or queue.open is None:
                return None
            return self.raw_limit(tp.topic) - queue.open.raw_size

    def append(self, slices: Sequence[EncodedSlice], now: int) -> AppendResult:
        """Copy ``slices`` into their batches; see the module docstring for why some are refused.

        The memory of their bytes, and of a header for each slice that opens a batch, has been
        allocated in the pool by the caller; ``taken`` is how much of it batches now use.
        Batches that are full are closed (compressed) here, on the caller's thread.

        Raises IllegalStateError when the accumulator is closed, or the error that failed it.
        """
        # A slice is a view of a whole chunk's buffer: the copy lets the chunk be freed (rule R5).
        chunks = [bytes(encoded.data) for encoded in slices]
        refused: list[EncodedSlice] = []
        refused_tps: set[TopicPartition] = set()
        claimed: list[ProducerBatch] = []
        taken = 0
        with self._lock:
            self._check_open()
            was_idle = not self._queues.open
            ready = False
            queues = self._queues.by_partition
            for encoded, chunk in zip(slices, chunks, strict=True):
                tp, data, count, generation, first_offset, base, latest, last, _, largest = encoded
                queue = queues[tp]
                batch = queue.open
                if refused and tp in refused_tps:
                    refused.append(encoded)
                    continue
                size = memory = data.nbytes
                if generation == 0:
                    if batch is not None:
                        # The encoder knew this batch, and its next record did not fit.
                        ready |= self._closer.claim(queue, claimed)
                    batch = self._open_batch(queue, base, now)
                    memory += HEADER_SIZE
                elif (
                    batch is None
                    or batch.generation != generation
                    or batch.record_count != first_offset
                ):
                    refused.append(encoded)
                    refused_tps.add(tp)
                    continue
                batch.append(chunk, count, latest, size)
                if largest > batch.largest_record:
                    batch.largest_record = largest
                batch.pool_size += memory
                taken += memory
                self.appended_records += count
                if last:
                    ready |= self._closer.claim(queue, claimed)
            self.refused_slices += len(refused)
            self._drainer.writer_encodes = False
            # The sender has not seen a first open batch, nor that one has become old.
            wake = ready or was_idle or self._drainer.oldest_open_left(now) <= 0
        if wake:
            self._wakeup()
        self._closer.close_claimed(claimed)
        return AppendResult(tuple(refused), taken)

    def append_record(
        self,
        tp: TopicPartition,
        record: UnplacedRecord,
        sticky: StickyChoice | None = None,
        memory: Memory | None = None,
    ) -> RecordFuture | int:
        """One record into the open batch of ``tp``, or into a new one (Java's append).

        ``memory`` was allocated in the pool for it; the batch owns it once a future is returned.

        Returns the record's future; or PARTITION_CHANGED: nothing was appended, call the
        partitioner again; or the number of bytes to allocate before calling this again. Raises as
        :meth:`append` does.
        """
        claimed: list[ProducerBatch] = []
        wanted, wake = 0, False
        with self._lock:
            if self.closed:
                self._check_open()
            try:
                queue = self._by_partition[tp]
                batch = queue.open
                if sticky is not None and sticky.changed(all_full=batch is None):
                    return PARTITION_CHANGED
                future = None if batch is None else batch.try_append(record)
                if future is None:
                    batch, wanted, wake = self._make_room(queue, record, memory, claimed)
                    if batch is not None:
                        future = batch.try_append(record)
                if batch is not None:
                    self.appended_records += 1
                    if batch.raw_size >= batch.raw_limit:
                        wake |= self._closer.claim(queue, claimed)
                    if sticky is not None:
                        assert future is not None
                        size = (
                            _RECORD_OVERHEAD + len(record[3]) + future.key_size + future.value_size
                        )
                        sticky.appended(size, all_full=queue.open is None)
            except BaseException as error:
                # A KeyboardInterrupt between two of these lines: the state is unknown.
                self._fail(IllegalStateError(f"sending was interrupted by {type(error).__name__}"))
                raise
        if wake:
            self._wakeup()
        if claimed:
            self._closer.close_claimed(claimed)
        return wanted if future is None else future

    def _make_room(
        self,
        queue: PartitionQueue,
        record: UnplacedRecord,
        memory: Memory | None,
        claimed: list[ProducerBatch],
    ) -> tuple[ProducerBatch | None, int, bool]:
        """Under the lock: the batch for ``record``, with memory for it; or None and the number of
        bytes needed. And whether the sender must be woken.
        """
        timestamp, key, value, headers, _ = record
        given = 0 if memory is None else memory.size
        limit = self.raw_limit(queue.tp.topic)
        wake = False
        batch = queue.open
        if batch is not None:
            # The limit at the batch's first single record: Java, too, reads the estimated
            # compression ratio once for each batch.
            limit = batch.raw_limit or limit
            delta = timestamp - batch.base_timestamp
            size = len(record_bytes(batch.record_count, delta, key, value, headers))
            room = limit - batch.raw_size
            if size > room:
                wake = self._closer.claim(queue, claimed)
                batch = None
                limit = self.raw_limit(queue.tp.topic)
            elif batch.pool_size + given < HEADER_SIZE + batch.raw_size + size:
                return None, max(size, min(room, self._memory_step)), wake
        if batch is None:
            size = len(record_bytes(0, 0, key, value, headers))
            if memory is None or given < HEADER_SIZE + size:
                return None, HEADER_SIZE + max(size, min(limit, self._memory_step)), wake
            batch = self._open_batch(queue, timestamp, memory.allocated_ms)
            limit = max(limit, size)  # a larger record is a batch by itself
            wake = True
        if batch.futures is None:
            batch.take_records(self._clock, limit)
            self._has_records = True
            self._drainer.mixed = self._has_columns
        if memory is not None:
            batch.pool_size += given
            memory.size = 0
        return batch, 0, wake

    @property
    def failure(self) -> KafkaError | None:
        """The error that further appends raise; None while there is none."""
        return self._failure

    def set_writer_waiting_since(self, since_ms: int | None) -> bool:
        """Set since when the writer waits for input; None: it works. True: a batch is open."""
        self._drainer.writer_waiting_since = since_ms
        return self.has_open

    def begin_flush(self) -> Flush:
        """Make all queued batches sendable until :meth:`end_flush`. The caller wakes the sender."""
        with self._lock:
            return self._incomplete.begin_flush()

    def await_flush_completion(self, flush: Flush, deadline_ms: int) -> bool:
        """Wait until the batches of ``flush`` and all batches split from them are complete.

        Returns False at the deadline. Returns True at once when the accumulator has failed.
        """
        in_time = True
        while True:
            with self._lock:
                if flush.remaining == 0 or self._failure is not None:
                    return True
                if not in_time:
                    return False
                latch = self._flushed.enlist()
            in_time = self._clock.wait(latch, deadline_ms)

    def end_flush(self, flush: Flush) -> None:
        with self._lock:
            self._incomplete.end_flush(flush)

    # ---- opening and closing batches ---------------------------------------------------------

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.closed:
            raise IllegalStateError("the producer is closed; nothing can be sent with it")

    def _open_batch(self, queue: PartitionQueue, base_timestamp: int, now: int) -> ProducerBatch:
        generation = self._incomplete.generation + 1
        batch = ProducerBatch(queue.tp, now, generation, base_timestamp, self._listener)
        self._queues.open_batch(queue, batch)
        self._incomplete.add(batch)
        if now + self._delivery_timeout_ms < self._returns.next_expiry_ms:
            self._returns.queued(now)
        return batch

    # ---- the sender: ready, drain ------------------------------------------------------------

    def queue_sizes(self, topic: str) -> dict[int, int]:
        """The number of queued batches of each partition of ``topic`` that has any: the adaptive
        partitioner's weights (KIP-794). Takes no lock: the caller may hold it.
        """
        queues = self._queues
        # Each is copied in one step of the interpreter.
        filled = [*list(queues.closed_heads), *list(queues.open.values())]
        return {q.tp.partition: len(q.batches) for q in filled if q.tp.topic == topic}

    def mute_partition(self, tp: TopicPartition) -> None:
        """Stop draining ``tp`` (max.in.flight.requests.per.connection is 1; one is in flight)."""
        with self._lock:
            self._queues.by_partition[tp].muted = True

    def unmute_partition(self, tp: TopicPartition) -> None:
        with self._lock:
            self._queues.by_partition[tp].muted = False

    def next_expiry_time_ms(self) -> int:
        """No queued batch expires before this time (monotonic ms); NEVER when none is queued."""
        queues = self._queues
        return self._returns.next_expiry_ms if queues.closed_heads or queues.open else NEVER

    # ---- the sender: completion ----------------------------------------------------------------

    def discard(self, batch: ProducerBatch) -> None:
        """Remove ``batch`` from its queue, if it is there: a later response proved that it need not
        be resent.
        """
        with self._lock:
            queue = self._queues.by_partition[batch.tp]
            if batch in queue.batches:
                self._queues.remove(queue, batch)

    def deallocate(self, *batches: ProducerBatch) -> None:
        """The batches are complete: return their memory. Idempotent.

        For a batch that expired in flight this is called when its response arrives: until then the
        socket may still use its bytes.
        """
        size = 0
        with self._lock:
            for batch in batches:
                size += batch.pool_size
                batch.pool_size = 0
            self._incomplete.remove(batches)
        if size:
            self.pool.deallocate(size)

    def abort_incomplete_batches(self, error: KafkaError) -> None:
        """Fail every batch, in flight or not, and reject all further appends with ``error``.

        Threads that wait for memory or for a flush are woken.
        """
        with self._lock:
            self._fail(error)
            batches = self._incomplete.all()
            self._queues.clear()
        self._abort(batches, error)

    def abort_undrained_batches(self, error: KafkaError) -> None:
        """Fail batches that have no sequence yet and are not in flight.

        A batch that was sent once has its sequence (or, without idempotence, a pending response):
        it is kept, because only its response shows whether its records are in the log.
        """
        with self._lock:
            batches = []
            for queue in self._queues.by_partition.values():
                for batch in [b for b in queue.batches if not b.has_sequence and not b.attempts]:
                    self._queues.remove(queue, batch)
                    batches.append(batch)
        self._abort(batches, error)

    def fail(self, error: KafkaError) -> None:
        """The attempt has failed: accept no more records, fail unsent batches, wake all waiters.

        Batches in flight stay until their responses arrive or the sender is closed.
        """
        with self._lock:
            self._fail(error)
        self.abort_undrained_batches(error)

    def _fail(self, error: KafkaError) -> None:
        if self._failure is None:
            self._failure = error
        self.closed = self._drainer.closed = True
        self._flushed.wake_all()

    def _abort(self, batches: Sequence[ProducerBatch], error: KafkaError) -> None:
        with self._lock:
            # DONE is set under the lock: a closer that still compresses one of these finds that
            # its CLOSING batch is gone (``BatchCloser``). One that a later response proved while it
            # was in flight again is acknowledged, and listed here for its memory only.
            aborted = [batch for batch in batches if not batch.is_done and batch.abort(error)]
        self.deallocate(*batches)
        # After the memory is returned, and before the listener, which may be slow.
        if self._failure is not None:
            self.pool.close()
        for batch in aborted:
            batch.report_done()

    def close(self) -> None:
        """Reject further appends; all queued batches become sendable."""
        with self._lock:
            self.closed = self._drainer.closed = True
        self.pool.close()

    @property
    def has_undrained(self) -> bool:
        """True while a batch is queued."""
        return bool(self._queues.closed_heads) or bool(self._queues.open)

    @property
    def has_incomplete(self) -> bool:
        """True while a batch is incomplete: queued or in flight."""
        return bool(self._incomplete)

    @property
    def has_open(self) -> bool:
        """True while a batch accepts appends."""
        return bool(self._queues.open)
