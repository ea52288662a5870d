"""The queues of batches of a producer, and the state that all users of the queues share.

One lock guards this state:

* the queue of each partition
* the incomplete batches: all batches whose memory is not freed yet
* the flushes that wait for incomplete batches

``batch_filler.py`` fills and closes batches, ``batch_drainer.py`` selects the batches to send, and
``batch_returns.py`` handles retries and expiry. This module fails the batches if the producer fails
or is closed.
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
    """The queued batches of one partition, oldest first.

    * ``open``: the batch to which records can still be appended. It is the last batch of the queue.
      None if there is no such batch.
    * ``leader``: the node id of the partition's leader, or -1 without a leader.
      :meth:`PartitionQueues.group_by_leader` sets it.
    * ``muted``: while True, no batch of the queue is sent.
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
    """A dict of the queues by topic partition. Reading a missing partition creates its queue."""

    # A subclass of dict for speed: the dict is read for each slice of encoded rows.
    __slots__ = ("_new",)

    def __init__(self, new: Callable[[TopicPartition], PartitionQueue]) -> None:
        self._new = new

    def __missing__(self, tp: TopicPartition) -> PartitionQueue:
        queue = self[tp] = self._new(tp)
        return queue


class PartitionQueues:
    """All queues of a producer, with three indexes. The accumulator's lock guards them.

    * ``by_node``: the queues of each leader
    * ``open``: the queues with an open batch
    * ``closed_heads``: the queues whose first batch is closed

    With these indexes, the sender finds the nodes that are ready, and visits only queues that have
    a batch. Only the methods of this class add batches to a queue or remove them.
    """

    __slots__ = ("by_node", "by_partition", "closed_heads", "cluster", "leaderless", "open")

    def __init__(self) -> None:
        #: Every queue. Reading the entry of a partition that has no queue creates the queue.
        self.by_partition = _ByPartition(self._new)
        self.cluster: Cluster | None = None
        #: The queues whose first batch accepts no more appends.
        self.closed_heads: dict[PartitionQueue, None] = {}
        #: The queues with an open batch, by the generation of this batch. So they are in the order
        #: in which the batches were opened.
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
        """Groups the queues by the leaders in ``cluster``. Does nothing if the queues are already
        grouped by the same ``Cluster`` object.
        """
        if cluster is self.cluster:
            return
        # Only partitions that have had a batch have a queue. The metadata may have millions of
        # other partitions.
        self.by_node = {}
        self.leaderless = []
        for tp in sorted(self.by_partition):
            queue = self.by_partition[tp]
            self._queues_of_leader(queue, cluster).append(queue)
        self.cluster = cluster

    def _queues_of_leader(self, queue: PartitionQueue, cluster: Cluster) -> list[PartitionQueue]:
        """Sets the leader of ``queue``, and returns the list of this leader's queues. The caller
        adds ``queue`` to the list.
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
        """Ends the appends to the open batch of ``queue``. The batch stays in the queue, and is
        returned.
        """
        batch = queue.open
        assert batch is not None
        queue.open = None
        del self.open[batch.generation]
        if queue.batches[0] is batch:
            self.closed_heads[queue] = None
        return batch

    def pop_head(self, queue: PartitionQueue) -> None:
        """Removes the first batch of ``queue``. The first batch must not be the open batch."""
        batches = queue.batches
        batches.popleft()
        if not batches or batches[0] is queue.open:
            del self.closed_heads[queue]

    def insert(self, queue: PartitionQueue, index: int, batch: ProducerBatch) -> None:
        """Inserts the closed ``batch`` into ``queue`` at the position ``index``."""
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
    """One call of ``flush``.

    * ``upto``: the ``generation`` of the newest batch when the flush began. The flush waits for
      this batch and for all earlier batches.
    * ``remaining``: the number of batches for which the flush still waits.

    If one of these batches is split, the flush waits for the new batches.
    """

    __slots__ = ("remaining", "upto")

    def __init__(self, upto: int, remaining: int) -> None:
        self.upto = upto
        self.remaining = remaining


class IncompleteBatches:
    """All batches that are not complete, and the flushes that wait for them (Java's
    IncompleteBatches).

    A batch is incomplete from its creation until its memory is freed. Except for ``__bool__``,
    every method is called under the accumulator's lock.
    """

    __slots__ = ("_batches", "flushed", "flushes", "generation")

    def __init__(self) -> None:
        #: The incomplete batches by their ``generation``, which is the unique number of a batch.
        self._batches: dict[int, ProducerBatch] = {}
        #: The flushes in progress.
        self.flushes: list[Flush] = []
        #: Woken when a flush is complete.
        self.flushed = Waiters()
        #: The generation of the newest batch.
        self.generation = 0

    def __bool__(self) -> bool:
        """True if there is an incomplete batch, queued or in flight. Any thread may call this
        method without the lock.
        """
        return bool(self._batches)

    def add(self, batch: ProducerBatch) -> None:
        """Adds a new batch. A flush that has already begun does not wait for the new batch."""
        self.generation = batch.generation
        self._batches[batch.generation] = batch

    def take_generations(self, count: int) -> int:
        """Reserves the numbers of the next ``count`` batches, and returns the first of these
        numbers.

        If the last batch of this producer had the number 7, ``take_generations(2)`` reserves 8 and
        9, and returns 8.
        """
        first = self.generation + 1
        self.generation += count
        return first

    def replace(self, batch: ProducerBatch, split_batches: Sequence[ProducerBatch]) -> None:
        """Replaces ``batch``, which was split, by the batches in ``split_batches``. A flush that
        waited for ``batch`` now waits for the new batches.
        """
        if batch.generation in self._batches:
            for flush in self.flushes:
                if batch.lineage <= flush.upto:
                    flush.remaining += len(split_batches)
        for split_batch in split_batches:
            self._batches[split_batch.generation] = split_batch
        self.remove((batch,))

    def remove(self, batches: Iterable[ProducerBatch]) -> None:
        """Removes completed batches, and wakes each flush that has no batch left to wait for.
        Removing a batch twice does nothing.
        """
        for batch in batches:
            if self._batches.pop(batch.generation, None) is None:
                continue
            for flush in self.flushes:
                if batch.lineage <= flush.upto:
                    flush.remaining -= 1
                    if flush.remaining == 0:
                        self.flushed.wake_all()

    def all(self) -> list[ProducerBatch]:
        """Returns a new list of the incomplete batches, in the order of their numbers."""
        return list(self._batches.values())

    def begin_flush(self) -> Flush:
        """Begins a flush that waits for all batches that exist now. The flush does not wait for
        batches that are created later.
        """
        flush = Flush(self.generation, len(self._batches))
        self.flushes.append(flush)
        return flush

    def end_flush(self, flush: Flush) -> None:
        self.flushes.remove(flush)


class RecordAccumulator:
    """The queues of batches, with the lock and the state that ``BatchFiller``, ``BatchDrainer`` and
    ``BatchReturns`` share (Java's RecordAccumulator).

    ``lock`` guards:

    * the queues, the incomplete batches, and the flushes
    * the fields ``next_expiry_ms``, ``has_columns`` and ``has_records``
    * the states OPEN, CLOSING, READY and IN_FLIGHT of each batch

    No thread holds this lock and the lock of the BufferPool at the same time. A batch's listener is
    called without a lock.
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
        #: The time (monotonic ms) before which no queued batch expires. It can be read without the
        #: lock.
        self.next_expiry_ms = NEVER
        #: ``has_columns`` is True after ``send_columns`` has begun to append rows, and
        #: ``has_records`` after ``send`` has appended a record. The maximum age of a batch is
        #: different for the two.
        self.has_columns = False
        self.has_records = False
        #: The time (monotonic ms) from which linger.ms is counted while the writer waits for its
        #: next rows. None if the writer does not wait. Only the writer sets this field. The sender
        #: reads this field in every pass, without the lock.
        self.writer_waiting_since: int | None = None

    # ---- any thread --------------------------------------------------------------------------

    @property
    def has_undrained(self) -> bool:
        """True if a batch is in a queue, open or closed."""
        return bool(self.queues.closed_heads) or bool(self.queues.open)

    def set_writer_waiting_since(self, since_ms: int | None) -> bool:
        """Begins or ends a wait for further rows, in the thread that writes columns.

        * A time ``since_ms`` (monotonic ms) begins a wait. linger.ms is counted from this time.
          When it is over, all open batches are sent, even if they are not full.
        * None ends the wait. linger.ms is no longer counted.

        Returns True if there is an open batch.
        """
        self.writer_waiting_since = since_ms
        return bool(self.queues.open)

    def begin_flush(self) -> Flush:
        """Begins a flush. Until :meth:`end_flush`, all queued batches may be sent before they are
        full. The caller must wake the sender.
        """
        with self.lock:
            return self.incomplete.begin_flush()

    def await_flush_completion(self, flush: Flush, deadline_ms: int) -> bool:
        """Waits until all batches of ``flush`` are complete. If a batch is split, waits for the new
        batches.

        Returns False if the deadline comes first. Returns True immediately if the producer has
        failed.
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
        """Notes that a batch, which was created at ``created_ms`` (monotonic ms), is queued. If the
        batch expires before the next check for expired batches, that check is moved to the time of
        the expiry.
        """
        expiry = created_ms + self._delivery_timeout_ms
        if expiry < self.next_expiry_ms:
            self.next_expiry_ms = expiry

    def reset_next_expiry_time(self, next_expiry_ms: int) -> None:
        """Sets the time (monotonic ms) of the next check for expired batches. Called after each
        check (Java's resetNextBatchExpiryTime and maybeUpdateNextBatchExpiryTime).
        """
        self.next_expiry_ms = next_expiry_ms

    def note_columns(self) -> None:
        """Sets ``has_columns``. Called when ``send_columns`` begins to append rows."""
        self.has_columns = True

    def note_records(self) -> None:
        """Sets ``has_records``. Called when ``send`` appends a record to a batch."""
        self.has_records = True

    def failed(self, error: KafkaError) -> None:
        """Marks the producer as failed with ``error``, and wakes waiting flushes."""
        self.lifecycle.fail(error)
        self.incomplete.flushed.wake_all()

    # ---- completion, failure, close ------------------------------------------------------------

    def next_expiry_time_ms(self) -> int:
        """The time (monotonic ms) of the next check for expired batches. No queued batch expires
        earlier. NEVER if no batch is queued.
        """
        queues = self.queues
        return self.next_expiry_ms if queues.closed_heads or queues.open else NEVER

    def deallocate(self, *batches: ProducerBatch) -> None:
        """Frees the memory of completed batches in the BufferPool. A second call for a batch does
        nothing.

        If a batch has expired in flight, the caller must call this method only after the response
        to the batch. Until then the socket may still read the batch's bytes.
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
        """Fails all queued batches and all batches in flight with ``error``, because the producer
        has failed or is closed. Wakes all threads that wait for memory or for a flush.
        """
        with self.lock:
            batches = self.incomplete.all()
            self.queues.clear()
            self.incomplete.flushed.wake_all()
        self._abort(batches, error)

    def abort_undrained_batches(self, error: KafkaError) -> None:
        """Fails the queued batches that were never sent, with ``error``.

        A batch that was sent and waits for a retry stays in its queue, because only a response can
        show whether the batch is in the log.
        """
        with self.lock:
            batches = []
            for queue in self.queues.by_partition.values():
                for batch in [b for b in queue.batches if not b.has_sequence and not b.attempts]:
                    self.queues.remove(queue, batch)
                    batches.append(batch)
        self._abort(batches, error)

    def fail(self, error: KafkaError, cause: KafkaError | None = None) -> None:
        """Marks the producer as failed with ``error``, so that it accepts no more records. Wakes
        all waiting threads.

        The batches that were never sent fail with ``cause``, or with ``error`` if ``cause`` is
        None. The other batches stay until their responses arrive, or until the sender is closed.
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
        """Closes the accumulator. From now on, new records are rejected.

        If ``forced`` is False, the sender then sends all queued batches, even if they are not full.
        If ``forced`` is True, the network thread ends without sending the queued batches. If
        another thread is appending to a batch, this method first waits for the end of the append.
        """
        # The sender then finds the batch of an append that has just ended, and sends it too.
        with self.lock:
            self.lifecycle.close(forced=forced)
        self.pool.close()
