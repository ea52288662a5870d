"""The queued batches of a producer: the state that filling, draining and returning batches share.

Owns: the queues by partition, the incomplete batches and the flushes that wait for them, the one
lock, failure and close. The accumulator is between the writer's encoder and the sender (step 7 of a
record's way). Never: filling and closing batches (``batch_filler.py``), sending them
(``batch_drainer.py``), requeueing and expiring them (``batch_returns.py``), sockets, reading a
clock. (Only a flush waits, by the clock's ``wait``.)
"""

from __future__ import annotations

import threading
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from spark_kafka_sink.base.clock import NEVER, Clock, Waiters
from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.lifecycle import Lifecycle
from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition


class PartitionQueue:
    """The queued batches of one partition.

    ``open`` is the last batch if it accepts appends, otherwise None. ``leader`` is a node id, or -1
    without a leader. :meth:`PartitionQueues.group_by_leader` updates the leader. While the queue is
    ``muted``, its batches are not drained.
    """

    __slots__ = ("batches", "leader", "leader_epoch", "muted", "open", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        self.muted = False
        self.leader = -1
        self.leader_epoch = -1


class _ByPartition(dict[TopicPartition, PartitionQueue]):
    """The queues by partition. Reading a missing key creates the queue. The class is a dict for
    speed, because it is read for each slice.
    """

    __slots__ = ("_new",)

    def __init__(self, new: Callable[[TopicPartition], PartitionQueue]) -> None:
        self._new = new

    def __missing__(self, tp: TopicPartition) -> PartitionQueue:
        queue = self[tp] = self._new(tp)
        return queue


class PartitionQueues:
    """All queues, with indexes by node and by state, under the accumulator's lock.

    The indexes keep a pass of the sender short: it need not visit 1000 partitions if only one has
    data. A queue's batches are changed only by the methods here.
    """

    __slots__ = ("by_node", "by_partition", "closed_heads", "cluster", "leaderless", "open")

    def __init__(self) -> None:
        #: Every queue; ``[tp]`` creates a missing one.
        self.by_partition = _ByPartition(self._new)
        self.cluster: Cluster | None = None
        #: Queues whose head accepts no more appends.
        self.closed_heads: dict[PartitionQueue, None] = {}
        #: Queues with an open batch by its generation, which is the opening order.
        self.open: dict[int, PartitionQueue] = {}
        #: The queues that each node leads, in partition order.
        self.by_node: dict[int, list[PartitionQueue]] = {}
        self.leaderless: list[PartitionQueue] = []

    def _new(self, tp: TopicPartition) -> PartitionQueue:
        queue = PartitionQueue(tp)
        if self.cluster is not None:
            insort(self._queues_of_leader(queue, self.cluster), queue, key=_partition)
        return queue

    def group_by_leader(self, cluster: Cluster) -> None:
        """Groups the queues by leader. Needed once for each new cluster snapshot.

        A partition that never had a batch has no queue, because a broker may report millions of
        partitions.
        """
        self.by_node = {}
        self.leaderless = []
        for tp in sorted(self.by_partition):
            queue = self.by_partition[tp]
            self._queues_of_leader(queue, cluster).append(queue)
        self.cluster = cluster

    def _queues_of_leader(self, queue: PartitionQueue, cluster: Cluster) -> list[PartitionQueue]:
        """Sets the leader of ``queue``. Returns the list with this leader's queues, in the order of
        partitions.
        """
        found = cluster.partition(queue.tp)
        if found is None or found.leader not in cluster.nodes:
            queue.leader = queue.leader_epoch = -1
            return self.leaderless
        queue.leader, queue.leader_epoch = found.leader, found.leader_epoch
        return self.by_node.setdefault(found.leader, [])

    def open_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Appends ``batch`` to ``queue`` as the open batch."""
        queue.batches.append(batch)
        queue.open = batch
        self.open[batch.generation] = queue

    def close_open(self, queue: PartitionQueue) -> ProducerBatch:
        """Stops appends to the open batch of ``queue``, which stays queued."""
        batch = queue.open
        assert batch is not None
        queue.open = None
        del self.open[batch.generation]
        if queue.batches[0] is batch:
            self.closed_heads[queue] = None
        return batch

    def pop_head(self, queue: PartitionQueue) -> None:
        """Removes the first batch of ``queue``. This batch must not be open."""
        batches = queue.batches
        batches.popleft()
        if not batches or batches[0] is queue.open:
            del self.closed_heads[queue]

    def insert(self, queue: PartitionQueue, index: int, batch: ProducerBatch) -> None:
        """Puts ``batch`` back into ``queue`` at the position ``index``."""
        queue.batches.insert(index, batch)
        self._classify(queue)

    def remove(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Removes ``batch`` from any position of ``queue``."""
        queue.batches.remove(batch)
        if queue.open is batch:
            queue.open = None
            del self.open[batch.generation]
        self._classify(queue)

    def clear(self) -> None:
        """Empties all queues."""
        for queue in self.by_partition.values():
            queue.batches.clear()
            queue.open = None
        self.open.clear()
        self.closed_heads.clear()

    def _classify(self, queue: PartitionQueue) -> None:
        if queue.batches and queue.batches[0] is not queue.open:
            self.closed_heads[queue] = None
        else:
            self.closed_heads.pop(queue, None)


def _partition(queue: PartitionQueue) -> TopicPartition:
    return queue.tp


class Flush:
    """One call of flush. It counts how many of the batches that existed at the beginning of the
    call are not complete yet. If such a batch is split, the split batches count.
    """

    __slots__ = ("remaining", "upto")

    def __init__(self, upto: int, remaining: int) -> None:
        self.upto = upto
        self.remaining = remaining


class IncompleteBatches:
    """All incomplete batches, by generation, and the flushes that wait for them (Java's
    IncompleteBatches). A batch is incomplete from its opening to its last response. Every method
    runs under the accumulator's lock.
    """

    __slots__ = ("_batches", "flushed", "flushes", "generation")

    def __init__(self) -> None:
        self._batches: dict[int, ProducerBatch] = {}
        #: The flushes in progress.
        self.flushes: list[Flush] = []
        #: Woken when a flush is complete.
        self.flushed = Waiters()
        #: The generation of the newest batch.
        self.generation = 0

    def __bool__(self) -> bool:
        """True while a batch is incomplete, queued or in flight. Any thread may call it without the
        lock.
        """
        return bool(self._batches)

    def add(self, batch: ProducerBatch) -> None:
        """Adds a batch that was just opened. Flushes that began earlier do not wait for this
        batch.
        """
        self.generation = batch.generation
        self._batches[batch.generation] = batch

    def take_generations(self, count: int) -> int:
        """Reserves the next ``count`` generations, and returns the first."""
        first = self.generation + 1
        self.generation += count
        return first

    def replace(self, batch: ProducerBatch, split_batches: Sequence[ProducerBatch]) -> None:
        """Replaces ``batch`` by the batches that it was split into. Flushes now wait for the split
        batches.
        """
        if batch.generation in self._batches:
            for flush in self.flushes:
                if batch.lineage <= flush.upto:
                    flush.remaining += len(split_batches)
        for split_batch in split_batches:
            self._batches[split_batch.generation] = split_batch
        self.remove((batch,))

    def remove(self, batches: Iterable[ProducerBatch]) -> None:
        """Removes completed batches, and wakes the flushes that waited for them. Idempotent."""
        for batch in batches:
            if self._batches.pop(batch.generation, None) is None:
                continue
            for flush in self.flushes:
                if batch.lineage <= flush.upto:
                    flush.remaining -= 1
                    if flush.remaining == 0:
                        self.flushed.wake_all()

    def all(self) -> list[ProducerBatch]:
        """The incomplete batches as a new list, oldest generation first."""
        return list(self._batches.values())

    def begin_flush(self) -> Flush:
        """Starts a flush of the existing batches. The flush does not wait for later batches, which
        have higher generations.
        """
        flush = Flush(self.generation, len(self._batches))
        self.flushes.append(flush)
        return flush

    def end_flush(self, flush: Flush) -> None:
        self.flushes.remove(flush)


class RecordAccumulator:
    """The shared state of filling, draining and returning batches (Java's RecordAccumulator).

    ``lock`` guards the queues, the incomplete batches, the fields that are declared after ``lock``,
    and all transitions of a batch between OPEN, CLOSING, READY and IN_FLIGHT. The pool has its own
    lock, and no thread holds both. A batch's listener is called without locks.
    ``writer_waiting_since`` (monotonic ms, or None) needs no lock: the writer sets it, and the
    sender reads it in every pass.
    """

    __slots__ = (
        "_clock",
        "_delivery_timeout_ms",
        "has_columns",
        "has_records",
        "incomplete",
        "lifecycle",
        "lock",
        "next_expiry_ms",
        "pool",
        "queues",
        "writer_waiting_since",
    )

    def __init__(
        self, config: ProducerConfig, clock: Clock, lifecycle: Lifecycle, pool: BufferPool
    ) -> None:
        self._clock = clock
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self.lifecycle = lifecycle
        self.pool = pool
        self.lock = threading.Lock()
        self.queues = PartitionQueues()
        self.incomplete = IncompleteBatches()
        #: No queued batch expires before this time (monotonic ms); may be read without the lock.
        self.next_expiry_ms = NEVER
        #: Columns, and records of ``send``, were appended: their batches' limits of age differ.
        self.has_columns = False
        self.has_records = False
        self.writer_waiting_since: int | None = None

    # ---- any thread --------------------------------------------------------------------------

    @property
    def has_undrained(self) -> bool:
        """True while a batch is queued."""
        return bool(self.queues.closed_heads) or bool(self.queues.open)

    def set_writer_waiting_since(self, since_ms: int | None) -> bool:
        """Sets the time since when the writer has been waiting for input. It is None if the writer
        does not wait. Returns True if a batch is open.
        """
        self.writer_waiting_since = since_ms
        return bool(self.queues.open)

    def begin_flush(self) -> Flush:
        """Makes all queued batches sendable until :meth:`end_flush`. The caller wakes the
        sender.
        """
        with self.lock:
            return self.incomplete.begin_flush()

    def await_flush_completion(self, flush: Flush, deadline_ms: int) -> bool:
        """Waits until the batches of ``flush``, and all batches split from them, are complete.

        Returns False at the deadline. Returns True immediately if the producer has failed.
        """
        in_time = True
        while True:
            with self.lock:
                if flush.remaining == 0 or self.lifecycle.error is not None:
                    return True
                if not in_time:
                    return False
                latch = self.incomplete.flushed.enlist()
            in_time = self._clock.wait(latch, deadline_ms)

    def end_flush(self, flush: Flush) -> None:
        with self.lock:
            self.incomplete.end_flush(flush)

    # ---- under the lock ------------------------------------------------------------------------

    def queued(self, created_ms: int) -> None:
        """Updates the next expiry time for a queued batch that was created at ``created_ms``."""
        expiry = created_ms + self._delivery_timeout_ms
        if expiry < self.next_expiry_ms:
            self.next_expiry_ms = expiry

    def reset_next_expiry_time(self, next_expiry_ms: int) -> None:
        """Sets the next expiry time after all queues were checked (Java's resetNextBatchExpiryTime
        and maybeUpdateNextBatchExpiryTime).
        """
        self.next_expiry_ms = next_expiry_ms

    def note_columns(self) -> None:
        """Records that columns are about to be appended to batches."""
        self.has_columns = True

    def note_records(self) -> None:
        """Records that a record of ``send`` is about to be appended to a batch."""
        self.has_records = True

    def failed(self, error: KafkaError) -> None:
        """Marks the producer as failed with ``error``, and wakes waiting flushes."""
        self.lifecycle.fail(error)
        self.incomplete.flushed.wake_all()

    # ---- completion, failure, close ------------------------------------------------------------

    def next_expiry_time_ms(self) -> int:
        """A time (monotonic ms) before which no queued batch expires. NEVER if no batch is
        queued.
        """
        queues = self.queues
        return self.next_expiry_ms if queues.closed_heads or queues.open else NEVER

    def deallocate(self, *batches: ProducerBatch) -> None:
        """Returns the memory of completed batches to the pool. Idempotent.

        If a batch expires in flight, its memory is only returned when its response arrives. Until
        then the socket may still use the batch's bytes.
        """
        size = 0
        with self.lock:
            for batch in batches:
                if batch.views:
                    size += batch.take_memory()
                else:  # what it would do, without the call
                    size += batch.pool_size
                    batch.pool_size = 0
            self.incomplete.remove(batches)
        if size:
            self.pool.deallocate(size)

    def abort_incomplete_batches(self, error: KafkaError) -> None:
        """Fails every batch, in flight or not, because the producer has failed or is closed.

        Threads that wait for memory or for a flush are woken.
        """
        with self.lock:
            batches = self.incomplete.all()
            self.queues.clear()
            self.incomplete.flushed.wake_all()
        self._abort(batches, error)

    def abort_undrained_batches(self, error: KafkaError) -> None:
        """Fails batches that were never sent, and so have no sequence.

        A batch that was sent before is kept, because only a response shows whether its records are
        in the log.
        """
        with self.lock:
            batches = []
            for queue in self.queues.by_partition.values():
                for batch in [b for b in queue.batches if not b.has_sequence and not b.attempts]:
                    self.queues.remove(queue, batch)
                    batches.append(batch)
        self._abort(batches, error)

    def fail(self, error: KafkaError, cause: KafkaError | None = None) -> None:
        """Fails the producer: it accepts no more records, and all waiters are woken. Unsent batches
        fail with ``cause``, or with ``error`` if no cause is given.

        Batches in flight stay until their responses arrive or the sender is closed.
        """
        with self.lock:
            self.failed(error)
        self.abort_undrained_batches(cause or error)

    def _abort(self, batches: Sequence[ProducerBatch], error: KafkaError) -> None:
        with self.lock:
            # DONE is set under the lock: a closer that still compresses one of these batches then
            # finds that its CLOSING batch is gone (``batch_filler.py``). A batch that was proved by
            # a later response while it was in flight again is acknowledged, and is only listed here
            # for its memory.
            aborted = [batch for batch in batches if not batch.is_done and batch.abort(error)]
        self.deallocate(*batches)
        # After the memory is returned, and before the listener, which may be slow.
        if not self.lifecycle.is_open:
            self.pool.close()
        for batch in aborted:
            batch.report_done()

    def close(self, *, forced: bool = False) -> None:
        """Closes the accumulator: it rejects further appends, and all queued batches become
        sendable.

        Because of the lock, an append in progress is finished before the sender finds that the
        producer is closed. So the sender also sends the batch of that append.
        """
        with self.lock:
            self.lifecycle.close(forced=forced)
        self.pool.close()
