"""Where encoded slices wait until they are sent: a queue of batches for every topic partition.

Owns: the queues, the open batch of each partition, who closes it, which nodes have data that must
go, what is drained for them, backoff, muting, expiry, flush. Stands between the writer's encoder
and the sender (step 3 of a record's way). Never: encoding, sockets, sequences (asked of a
:class:`DrainControl`); no clock is read here, only the wait for a flush goes through one.

**Who closes an open batch.** Encoding needs the open batch's record count and base timestamp, and
compressing takes long, so neither happens under the lock:

1. The writer asks :meth:`RecordAccumulator.positions` and encodes for generation g, count n.
2. Meanwhile the sender finds that g must go (linger, flush, waiters in the pool, age, close): it
   *claims* g under the lock (OPEN -> CLOSING; from here nothing is appended to g), compresses it
   without the lock and marks it READY.
3. The writer's :meth:`~RecordAccumulator.append` finds no open batch g any more: it refuses the
   slice, and every later slice of that partition with it, so that order is kept. The writer asks
   for positions again and encodes those rows anew.

The writer claims in the same way when a batch is full. Whoever claims, closes: the other thread
leaves a CLOSING batch alone, and a CLOSING head of a queue is skipped by :meth:`drain` until its
closer marks it READY and wakes the sender. A closer that is interrupted (KeyboardInterrupt) gives
its claim back; such a batch is not open to appends again, it only waits for the sender to close it.
"""

from __future__ import annotations

import random as _random
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from spark_kafka_sink.backoff import ExponentialBackoff
from spark_kafka_sink.clock import NEVER, Clock, Waiters
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import IllegalStateError, KafkaError
from spark_kafka_sink.producer.batch_limits import BatchLimits
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.drain_control import DrainControl
from spark_kafka_sink.producer.incomplete_batches import Flush, IncompleteBatches
from spark_kafka_sink.producer.partition_queues import PartitionQueue, PartitionQueues
from spark_kafka_sink.producer.producer_batch import (
    BatchListener,
    BatchState,
    ProducerBatch,
    sequence_before,
)
from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.encoded_slice import EncodedSlice, OpenPosition
from spark_kafka_sink.records.record_batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
)

#: An open batch older than this (or than linger.ms, if that is longer) goes out although the
#: writer never waited linger.ms: rows that trickle in a little faster than linger.ms would else
#: keep it open until delivery.timeout.ms, which counts from its creation, is over.
MAX_OPEN_MS = 1_000


@dataclass(frozen=True, slots=True)
class ReadyCheckResult:
    """Java's ReadyCheckResult: ``next_ready_check_delay_ms`` is NEVER when nothing waits."""

    ready_nodes: frozenset[int]
    next_ready_check_delay_ms: int
    unknown_leader_topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class AppendResult:
    """``refused`` slices must be encoded again; ``taken`` bytes of the pool are batches' now."""

    refused: tuple[EncodedSlice, ...]
    taken: int


class _NodeLatency:
    """When a node had data ready, and when it could last be sent to (KIP-794)."""

    __slots__ = ("drain_ms", "ready_ms")

    def __init__(self, now: int) -> None:
        self.drain_ms = now
        self.ready_ms = now


class RecordAccumulator:
    """Queues of ProducerBatch by topic partition (Java's RecordAccumulator).

    One lock (``_lock``) guards every queue and all the fields below it, the flushes, and all
    moves of a batch between OPEN, CLOSING, READY and IN_FLIGHT. The pool has its own lock; neither
    is taken under the other. The listener is called without locks, and so is ``wakeup`` (the
    sender's), whenever a batch became ready or the only open batch was opened.

    Called by the writer: :meth:`positions`, :meth:`append`, :meth:`set_writer_waiting_since`,
    flush. Called by the sender: everything else.

    ``pool`` memory is allocated by the writer before :meth:`append` and handed over there.
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
        self._transaction_manager = transaction_manager
        self._listener = listener
        self._wakeup = wakeup
        self._codec = Codec.of(config)
        self._limits = BatchLimits(config, self._codec)
        self._linger_ms = config.linger_ms
        # Well before it would expire, should delivery.timeout.ms be that short.
        self._max_open_ms = max(config.linger_ms, min(MAX_OPEN_MS, config.delivery_timeout_ms // 4))
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._backoff = ExponentialBackoff(
            config.retry_backoff_ms, config.retry_backoff_max_ms, random=random
        )

        #: Slices that :meth:`append` refused so far: each was encoded twice.
        self.refused_slices = 0

        self._lock = threading.Lock()
        self._flushed = Waiters()
        self._queues = PartitionQueues()
        self._incomplete = IncompleteBatches(self._flushed)
        self._writer_waiting_since: int | None = None
        self._writer_encodes = False
        self._closed = False
        self._failure: KafkaError | None = None
        self._next_expiry_ms = NEVER
        self._drain_index: dict[int, int] = {}
        self._node_latency: dict[int, _NodeLatency] = {}

    # ---- the writer ------------------------------------------------------------------------

    def positions(self, tps: Sequence[TopicPartition]) -> list[OpenPosition]:
        """Where the open batch of each of ``tps`` stands now; :meth:`append` must follow soon."""
        limits = {topic: self.raw_limit(topic) for topic in {tp.topic for tp in tps}}
        closed = {topic: OpenPosition(0, 0, 0, limit) for topic, limit in limits.items()}
        positions = []
        with self._lock:
            self._writer_encodes = True
            for tp in tps:
                queue = self._queues.find(tp)
                batch = None if queue is None else queue.open
                if batch is None:
                    positions.append(closed[tp.topic])
                    continue
                room = limits[tp.topic] - batch.raw_size
                position = OpenPosition(
                    batch.generation, batch.record_count, batch.base_timestamp, room
                )
                positions.append(position)
        return positions

    def open_room(self, tp: TopicPartition) -> int | None:
        """Raw bytes that the open batch of ``tp`` still takes; None when none is open."""
        with self._lock:
            queue = self._queues.find(tp)
            if queue is None or queue.open is None:
                return None
            return self.raw_limit(tp.topic) - queue.open.raw_size

    def raw_limit(self, topic: str) -> int:
        """Raw record bytes after which a batch of ``topic`` counts as full."""
        return self._limits.raw_limit(topic)

    def append(self, slices: Sequence[EncodedSlice], now: int) -> AppendResult:
        """Copy ``slices`` into their batches; see the module docstring for why some are refused.

        The memory of their bytes, and of a header for each slice that opens a batch, has been
        allocated in the pool by the caller; ``taken`` tells how much of it is in batches now.
        Batches that are full are closed (compressed) here, on the caller's thread.

        Raises IllegalStateError when the accumulator is closed, or the error that failed it.
        """
        # A slice is a view of a whole chunk's buffer: the copy lets the chunk go (rule 5.5).
        chunks = [bytes(piece.data) for piece in slices]
        refused: list[EncodedSlice] = []
        refused_tps: set[TopicPartition] = set()
        claimed: list[ProducerBatch] = []
        taken = 0
        with self._lock:
            self._check_open()
            was_idle = not self._queues.open
            ready = False
            for piece, chunk in zip(slices, chunks, strict=True):
                queue = self._queues.of(piece.tp)
                batch = queue.open
                if piece.generation == 0:
                    if refused and piece.tp in refused_tps:
                        refused.append(piece)
                        continue
                    if batch is not None:
                        # The planner saw it and found no room for the next record.
                        ready |= self._claim(queue, claimed)
                    batch = self._open_batch(queue, piece.base_timestamp, now)
                    taken += HEADER_SIZE
                    batch.pool_size += HEADER_SIZE
                elif (
                    batch is None
                    or (refused and piece.tp in refused_tps)
                    or batch.generation != piece.generation
                    or batch.record_count != piece.first_offset_delta
                ):
                    refused.append(piece)
                    refused_tps.add(piece.tp)
                    continue
                batch.append(chunk, piece.record_count, piece.max_timestamp)
                batch.pool_size += len(chunk)
                taken += len(chunk)
                if piece.last:
                    ready |= self._claim(queue, claimed)
            self.refused_slices += len(refused)
            self._writer_encodes = False
            # The sender does not know of a first open batch, nor that one is old by now.
            wake = ready or was_idle or self._oldest_open_left(now) <= 0
        if wake:
            self._wakeup()
        self._close_claimed(claimed)
        return AppendResult(tuple(refused), taken)

    def set_writer_waiting_since(self, since_ms: int | None) -> bool:
        """The writer waits for its input since then, or (None) works. True: a batch is open."""
        self._writer_waiting_since = since_ms
        return self.has_open

    def begin_flush(self) -> Flush:
        """From now on everything queued must go, until :meth:`end_flush`. Wake the sender after."""
        with self._lock:
            return self._incomplete.begin_flush()

    def await_flush_completion(self, flush: Flush, deadline_ms: int) -> bool:
        """Wait until the batches of ``flush`` and all pieces split from them are done with.

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
        if self._closed:
            raise IllegalStateError("the producer is closed; nothing can be sent with it")

    def _open_batch(self, queue: PartitionQueue, base_timestamp: int, now: int) -> ProducerBatch:
        generation = self._incomplete.new_generations(1)
        batch = ProducerBatch(queue.tp, now, generation, base_timestamp, self._listener)
        self._queues.open_batch(queue, batch)
        self._incomplete.add(batch)
        self._next_expiry_ms = min(self._next_expiry_ms, now + self._delivery_timeout_ms)
        return batch

    def _claim(self, queue: PartitionQueue, claimed: list[ProducerBatch]) -> bool:
        """The open batch takes nothing more. True: it is READY; False: it is in ``claimed`` now,
        and whoever called must close it without the lock.
        """
        batch = self._queues.close_open(queue)
        batch.claim()
        if self._codec.is_none:
            batch.finish_close(None, self._codec)  # nothing to compress: no reason to let go
            return True
        claimed.append(batch)
        return False

    def _close_claimed(self, claimed: list[ProducerBatch]) -> None:
        """Compress without the lock what this thread has claimed; each is ready at once."""
        done = 0
        try:
            for batch in claimed:
                self._finish_closing(batch)
                done += 1
                self._wakeup()
        finally:
            if done < len(claimed):
                # Interrupted in the middle: the sender closes the rest, see ``_must_go``.
                with self._lock:
                    for batch in claimed[done:]:
                        batch.give_up_claim()
                self._wakeup()

    def _finish_closing(self, batch: ProducerBatch) -> None:
        compressed = batch.compress(self._codec)
        with self._lock:
            if batch.state is not BatchState.CLOSING:
                return  # aborted meanwhile: its memory is given back already
            before = batch.pool_size
            batch.finish_close(compressed, self._codec)
            after = batch.pool_size = batch.size_in_bytes
        self._limits.closed(batch)
        self.pool.adjust(before, after)

    # ---- what must go ------------------------------------------------------------------------

    def _everything_must_go(self, now: int) -> bool:
        """Why open batches are sent unfilled, all of them."""
        return (
            self._incomplete.flushing
            or self._closed
            # The pool's waiter may be waiting for memory that sits in open batches alone: only
            # sending these can end its wait.
            or self.pool.waiters > 0
            or self._linger_left(now) <= 0
            or (self._transaction_manager is not None and self._transaction_manager.is_completing)
        )

    def _linger_left(self, now: int) -> int:
        """Milliseconds until the writer has waited linger.ms for its input (design.md section 8).

        ``send()``, which counts linger from a batch's creation as Java does, will ask here per
        batch.
        """
        since = self._writer_waiting_since
        return NEVER if since is None else self._linger_ms - (now - since)

    def _open_left(self, batch: ProducerBatch, now: int) -> int:
        """Milliseconds until ``batch`` has been open for too long.

        While the writer encodes for its position it may stay open as long again: age is no hurry,
        and slices that are refused are encoded twice. (Not for ever: the writer may have failed.)
        """
        limit = self._max_open_ms * 2 if self._writer_encodes else self._max_open_ms
        return limit - (now - batch.created_ms)

    def _oldest_open_left(self, now: int) -> int:
        for queue in self._queues.open.values():
            return self._open_left(queue.batches[-1], now)
        return NEVER

    def _backoff_left(self, queue: PartitionQueue, batch: ProducerBatch, now: int) -> int:
        """Milliseconds of backoff left; none when the leader changed since the last attempt."""
        batch.maybe_update_leader_epoch(queue.leader_epoch)
        if batch.attempts == 0 or batch.has_leader_changed_for_the_ongoing_retry:
            return 0
        return max(0, batch.retry_at_ms - now)

    def _stopped_by_sequences(self, batch: ProducerBatch) -> bool:
        """Java's shouldStopDrainBatchesForPartition: sequences must reach the broker in order."""
        manager = self._transaction_manager
        if manager is None:
            return False
        if not manager.has_producer_id:
            return True
        if not batch.has_sequence:
            return not manager.can_drain(batch.tp)
        # A batch that has its sequence is a retry. Retries go one by one: the next goes when the
        # one before it is settled, so that they can't overtake each other.
        first = manager.first_in_flight_sequence(batch.tp)
        return first not in (NO_SEQUENCE, batch.base_sequence)

    # ---- the sender: ready, drain ------------------------------------------------------------

    def ready(self, cluster: Cluster, now: int) -> ReadyCheckResult:
        """Nodes that lead a partition with a batch that must go now; and when to look again.

        Unlike Java's, a node is not ready for a partition whose sequences hold it back (the first
        batch of a producer on it is in flight): the answer wakes the sender anyway, and a ready
        node that nothing can be drained for would make it spin until then.
        """
        nodes: set[int] = set()
        delay = NEVER
        with self._lock:
            self._queues.lay_out(cluster)
            unknown = {queue.tp.topic for queue in self._queues.leaderless if queue.batches}
            for queue in self._queues.closed_heads:
                if queue.leader < 0 or queue.muted or queue.leader in nodes:
                    continue
                head = queue.batches[0]
                if head.state is BatchState.CLOSING or self._stopped_by_sequences(head):
                    continue  # the closer, or the answer, wakes the sender
                left = self._backoff_left(queue, head, now)
                if left > 0:
                    delay = min(delay, left)
                    continue
                nodes.add(queue.leader)
                if len(nodes) == len(self._queues.by_node):
                    # All are: nothing can be added, and the delay does not matter any more.
                    return ReadyCheckResult(frozenset(nodes), delay, frozenset(unknown))
            if self._queues.open:
                delay = min(delay, self._open_ready(nodes, now))
        return ReadyCheckResult(frozenset(nodes), delay, frozenset(unknown))

    def _open_ready(self, nodes: set[int], now: int) -> int:
        """Add the leaders of open batches that must go; the delay until the next may have to."""
        everything = self._everything_must_go(now)
        delay = max(self._linger_left(now), 0) if not everything else NEVER
        for queue in self._queues.open.values():
            batch = queue.batches[-1]
            left = 0 if everything else self._open_left(batch, now)
            if left > 0:
                # In the order of their opening: all that follow are younger.
                return min(delay, left)
            if queue.batches[0] is not batch or queue.muted or queue.leader < 0:
                continue  # it is not its turn
            if queue.leader not in nodes and not self._stopped_by_sequences(batch):
                nodes.add(queue.leader)
                if len(nodes) == len(self._queues.by_node):
                    return delay
        return delay

    def drain(
        self, cluster: Cluster, nodes: Collection[int], max_size: int, now: int
    ) -> dict[int, list[ProducerBatch]]:
        """Batches by node id, IN_FLIGHT, headers written; nodes with nothing are left out.

        At most one batch of a partition, at most ``max_size`` bytes for a node unless one batch
        alone is larger. Each call starts at the partition after the one that was drained last, so
        that a node with many partitions starves none.
        """
        with self._lock:
            self._queues.lay_out(cluster)
        drained: dict[int, list[ProducerBatch]] = {}
        for node in nodes:
            batches = self._drain_node(node, max_size, now)
            if batches:
                drained[node] = batches
        return drained

    def _drain_node(self, node: int, max_size: int, now: int) -> list[ProducerBatch]:
        queues = self._queues.by_node.get(node)
        if not queues:
            return []
        start = self._drain_index.get(node, 0) % len(queues)
        must_go = self._everything_must_go(now)
        taken: list[ProducerBatch] = []
        size = 0
        for index in range(start, start + len(queues)):
            queue = queues[index % len(queues)]
            # Read without the lock; what the writer changes meanwhile wakes us, for another pass.
            if not queue.batches or not (must_go or self._may_go(queue, now)):
                continue
            batch = self._closed_head(queue, now)
            if batch is None:
                continue
            if taken and size + batch.size_in_bytes > max_size:
                self._drain_index[node] = index % len(queues)
                break
            if not self._take(queue, batch, now):
                continue
            self._drain_index[node] = (index + 1) % len(queues)
            size += batch.size_in_bytes
            taken.append(batch)
        return taken

    def _may_go(self, queue: PartitionQueue, now: int) -> bool:
        """False for a queue that holds nothing but an open batch that is not old."""
        batch = queue.open
        return batch is None or len(queue.batches) > 1 or self._open_left(batch, now) <= 0

    def _closed_head(self, queue: PartitionQueue, now: int) -> ProducerBatch | None:
        """The head of ``queue`` when it may be sent now; an open one is closed for that."""
        claimed: list[ProducerBatch] = []
        with self._lock:
            if queue.muted or not queue.batches:
                return None
            batch = queue.batches[0]
            if batch.state is BatchState.CLOSING or self._stopped_by_sequences(batch):
                return None
            if batch.state is BatchState.READY:
                return batch if self._backoff_left(queue, batch, now) == 0 else None
            if batch is queue.open:
                if not self._everything_must_go(now) and self._open_left(batch, now) > 0:
                    return None
                self._claim(queue, claimed)
            else:
                batch.claim()  # its closer was interrupted and gave it back
                claimed.append(batch)
        for batch_to_close in claimed:
            self._finish_closing(batch_to_close)
        # Only this thread takes heads away; an abort by another one leaves it DONE.
        return None if batch.is_done else batch

    def _take(self, queue: PartitionQueue, batch: ProducerBatch, now: int) -> bool:
        """READY -> IN_FLIGHT, with its sequence and header. False: aborted a moment ago."""
        manager = self._transaction_manager
        with self._lock:
            if not queue.batches or queue.batches[0] is not batch:
                return False
            self._queues.pop_head(queue)
            batch.drained(now)
        # Not in a queue any more: only this thread knows it, so header and checksum need no lock.
        if manager is None:
            if not batch.has_header:
                batch.set_producer_state(
                    NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, transactional=False
                )
        elif not batch.has_sequence:
            producer_id, epoch = manager.producer_id_and_epoch
            sequence = manager.take_sequence(batch.tp, batch.record_count)
            batch.set_producer_state(
                producer_id, epoch, sequence, transactional=manager.is_transactional
            )
            manager.add_in_flight_batch(batch)
        return True

    def update_node_latency_stats(self, node_id: int, now: int, *, can_drain: bool) -> None:
        """A node has data ready, and (``can_drain``) its connection took some (KIP-794)."""
        stats = self._node_latency.get(node_id)
        if stats is None:
            stats = self._node_latency[node_id] = _NodeLatency(now)
        if can_drain:
            stats.drain_ms = now
        stats.ready_ms = now

    def node_delay_ms(self, node_id: int) -> int:
        """How long a node with ready data could not be sent to (partitioner.availability)."""
        stats = self._node_latency.get(node_id)
        return 0 if stats is None else stats.ready_ms - stats.drain_ms

    def queue_size(self, tp: TopicPartition) -> int:
        """Batches queued for ``tp``: the adaptive partitioner's weight (KIP-794)."""
        queue = self._queues.find(tp)
        return 0 if queue is None else len(queue.batches)

    def mute_partition(self, tp: TopicPartition) -> None:
        """Hold ``tp`` back (max.in.flight.requests.per.connection is 1 and one is in flight)."""
        with self._lock:
            self._queues.of(tp).muted = True

    def unmute_partition(self, tp: TopicPartition) -> None:
        with self._lock:
            self._queues.of(tp).muted = False

    # ---- the sender: back into the queue -------------------------------------------------------

    def reenqueue(self, batch: ProducerBatch, now: int) -> None:
        """Back to the head of its queue; with sequences, behind earlier retries.

        Raises IllegalStateError under idempotence for a batch that has no sequence, or that the
        transaction manager does not track as in flight.
        """
        with self._lock:
            self._check_tracked(batch)
            batch.reenqueued(now, now + self._backoff.backoff(batch.attempts))
            self._insert(batch)

    def _check_tracked(self, batch: ProducerBatch) -> None:
        manager = self._transaction_manager
        if manager is None:
            return
        if not batch.has_sequence:
            raise IllegalStateError(
                f"{batch.tp}: a batch without sequence was put back although the producer is "
                "idempotent"
            )
        if manager.first_in_flight_sequence(batch.tp) == NO_SEQUENCE:
            raise IllegalStateError(
                f"{batch.tp}: the batch with sequence {batch.base_sequence} was put back, but it "
                "is not tracked as in flight"
            )

    def _insert(self, batch: ProducerBatch) -> None:
        queue = self._queues.of(batch.tp)
        behind = 0
        if batch.has_sequence:
            # Two batches in flight on one connection may come back in any order: the earlier
            # sequence must leave first again.
            for other in queue.batches:
                if not other.has_sequence or not sequence_before(
                    other.base_sequence, batch.base_sequence
                ):
                    break
                behind += 1
        self._queues.insert(queue, behind, batch)
        expiry = batch.created_ms + self._delivery_timeout_ms
        self._next_expiry_ms = min(self._next_expiry_ms, expiry)

    def split_and_reenqueue(self, batch: ProducerBatch, now: int) -> int:  # noqa: ARG002 - as Java
        """Split a batch that a broker refused as too large; returns how many pieces.

        The pieces go to the head, in order, without backoff; with sequences they are tracked in
        flight in the place of ``batch``, whose memory is theirs now. Batches of this topic are
        limited to half of the refused size from here on (design.md rule 5.7).
        """
        with self._lock:
            self._check_tracked(batch)
            first = self._incomplete.new_generations(2)
        pieces = batch.split(first)
        self._limits.refused(batch)
        with self._lock:
            for piece in pieces:
                piece.pool_size = piece.size_in_bytes
            before, batch.pool_size = batch.pool_size, 0
            after = sum(piece.pool_size for piece in pieces)
            self._incomplete.replace(batch, pieces)
            manager = self._transaction_manager
            if manager is not None:
                manager.remove_in_flight_batch(batch)
                for piece in pieces:
                    manager.add_in_flight_batch(piece)
            for piece in reversed(pieces):
                self._insert(piece)
        self.pool.adjust(before, after)
        return len(pieces)

    # ---- the sender: the end of batches --------------------------------------------------------

    def expired_batches(self, now: int) -> list[ProducerBatch]:
        """Take queued batches past delivery.timeout.ms out of their queues, oldest first.

        The caller fails them (``complete_exceptionally``) and calls :meth:`deallocate`.
        """
        if now < self._next_expiry_ms:
            return []  # nothing queued is older than what the last look found
        expired: list[ProducerBatch] = []
        with self._lock:
            self._next_expiry_ms = NEVER
            for queue in self._queues:
                while queue.batches:
                    batch = queue.batches[0]
                    if (
                        not batch.has_reached_delivery_timeout(self._delivery_timeout_ms, now)
                        # Its closer is at work on it; it expires when it is READY, a moment later.
                        or batch.state is BatchState.CLOSING
                    ):
                        expiry = max(batch.created_ms + self._delivery_timeout_ms, now + 1)
                        self._next_expiry_ms = min(self._next_expiry_ms, expiry)
                        break
                    self._queues.remove(queue, batch)
                    expired.append(batch)
        expired.sort(key=lambda batch: (batch.created_ms, batch.generation))
        return expired

    def discard(self, batch: ProducerBatch) -> None:
        """Take ``batch`` out of its queue, if it is there: a later answer proved that a resend of
        it is not needed.
        """
        with self._lock:
            queue = self._queues.of(batch.tp)
            if batch in queue.batches:
                self._queues.remove(queue, batch)

    def next_expiry_time_ms(self) -> int:
        """Nothing queued expires before this time (monotonic ms); NEVER when nothing is queued."""
        return self._next_expiry_ms

    def deallocate(self, batch: ProducerBatch) -> None:
        """The batch is done with: no longer incomplete, its memory back. Harmless when repeated.

        For a batch that expired in flight this is called when its answer came: until then its
        bytes may still be in the socket's hands.
        """
        with self._lock:
            size, batch.pool_size = batch.pool_size, 0
            self._incomplete.remove(batch)
        if size:
            self.pool.deallocate(size)

    def abort_incomplete_batches(self, error: KafkaError) -> None:
        """Fail every batch, in flight or not, and refuse all further ones with ``error``.

        Whoever waits (for memory, for a flush) is woken.
        """
        with self._lock:
            self._fail(error)
            batches = self._incomplete.all()
            self._queues.clear()
        self._abort(batches, error)

    def abort_undrained_batches(self, error: KafkaError) -> None:
        """Fail batches that have no sequence yet and are not in flight.

        A batch that was sent once has its sequence (or, without idempotence, its answer to come):
        it is spared, because only its answer tells whether its records are in the log.
        """
        with self._lock:
            batches = []
            for queue in self._queues:
                for batch in [b for b in queue.batches if not b.has_sequence and not b.attempts]:
                    self._queues.remove(queue, batch)
                    batches.append(batch)
        self._abort(batches, error)

    def fail(self, error: KafkaError) -> None:
        """The attempt is lost: take nothing more, drop what was never sent, wake who waits.

        Batches in flight stay until their answers come or the sender is closed.
        """
        with self._lock:
            self._fail(error)
        self.abort_undrained_batches(error)

    def _fail(self, error: KafkaError) -> None:
        if self._failure is None:
            self._failure = error
        self._closed = True
        self._flushed.wake_all()

    def _abort(self, batches: Sequence[ProducerBatch], error: KafkaError) -> None:
        with self._lock:
            # DONE is set under the lock: a closer that still compresses one of these finds that
            # its CLOSING batch is gone (``_finish_closing``).
            aborted = [batch for batch in batches if batch.abort(error)]
        for batch in batches:
            self.deallocate(batch)
        # After the memory is back, and before the listener, which may take long.
        if self._failure is not None:
            self.pool.close()
        for batch in aborted:
            batch.report_done()

    def close(self) -> None:
        """No more appends; everything that is queued must go."""
        with self._lock:
            self._closed = True
        self.pool.close()

    @property
    def has_undrained(self) -> bool:
        """Some batch waits in a queue."""
        return bool(self._queues.closed_heads) or bool(self._queues.open)

    @property
    def has_incomplete(self) -> bool:
        """Some batch is not done with: queued or in flight."""
        return bool(self._incomplete)

    @property
    def has_open(self) -> bool:
        """Some batch takes appends."""
        return bool(self._queues.open)
