"""Selects the batches that can be sent now, and takes them out of the accumulator's queues.

:meth:`BatchDrainer.ready` finds the nodes to which a Produce request can be sent.
:meth:`BatchDrainer.drain` returns the batches for these requests. Both run on the network thread.
The transaction manager assigns the sequence numbers (:class:`DrainControl`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator.batch_filler import BatchFiller
from spark_kafka_sink.producer.accumulator.producer_batch import BatchState, ProducerBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import (
    PartitionQueue,
    RecordAccumulator,
)
from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition
from spark_kafka_sink.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE


class DrainControl(Protocol):
    """The methods of the transaction manager that :class:`BatchDrainer` and ``BatchReturns`` call.
    ``transaction_manager.py`` describes them.
    """

    @property
    def is_completing(self) -> bool: ...

    def may_drain(self, batch: ProducerBatch) -> bool: ...

    def first_in_flight_sequence(self, tp: TopicPartition) -> int: ...

    def batches_sent(self, batches: Sequence[ProducerBatch]) -> None: ...

    def add_in_flight_batch(self, batch: ProducerBatch) -> None: ...

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None: ...


class ReadyCheckResult(NamedTuple):
    """The result of :meth:`BatchDrainer.ready` (Java's ReadyCheckResult).

    * ``ready_nodes``: the ids of the nodes to which a request can be sent now.
    * ``next_ready_check_delay_ms``: the time in ms after which :meth:`BatchDrainer.ready` must be
      called again. NEVER if no batch waits for linger.ms or for a backoff.
    * ``unknown_leader_topics``: the topics that have queued batches for a partition without a known
      leader.
    """

    ready_nodes: frozenset[int]
    next_ready_check_delay_ms: int
    unknown_leader_topics: frozenset[str]


#: Creates a ReadyCheckResult from a tuple of its fields. This is faster than the constructor, and
#: the sender's loop creates a result in every iteration.
_new_result: Callable[[tuple[frozenset[int], int, frozenset[str]]], ReadyCheckResult] = partial(
    tuple.__new__, ReadyCheckResult
)
_NONE: frozenset[str] = frozenset()


class BatchDrainer:
    """Selects the batches that can be sent now, and takes these batches out of the accumulator's
    queues. The public methods take the accumulator's lock.
    """

    __slots__ = (
        "_accumulator",
        "_drain_index",
        "_filler",
        "_linger_ms",
        "_queues",
        "_transaction_manager",
    )

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        filler: BatchFiller,
        transaction_manager: DrainControl | None,
    ) -> None:
        self._accumulator = accumulator
        self._queues = accumulator.queues
        self._filler = filler
        self._transaction_manager = transaction_manager
        self._linger_ms = config.linger_ms
        self._drain_index: dict[int, int] = {}

    # ---- unfilled batches --------------------------------------------------------------------
    def _send_all_open(self, now: int) -> bool:
        """Returns True if all open batches must be sent now, even if they are not full. There are
        four reasons:

        * A flush, a commit or an abort waits for the batches.
        * A thread waits for memory of the BufferPool.
        * The thread that writes columns waits for its next rows, and linger.ms is over.
        * The producer has failed or is closed.
        """
        accumulator = self._accumulator
        if accumulator.incomplete.flushes:
            return True
        return (
            not accumulator.lifecycle.is_open
            # A thread may be waiting for memory that only open batches hold: sending them is the
            # only way to free it.
            or accumulator.pool.waiters > 0
            or self._linger_left(now) <= 0
            or (self._transaction_manager is not None and self._transaction_manager.is_completing)
        )

    def _linger_left(self, now: int) -> int:
        """Returns the time in ms until linger.ms is over, at most 0 if it is over.

        linger.ms runs only while the thread that writes columns waits for its next rows. If that
        thread does not wait, the result is NEVER.
        """
        since = self._accumulator.writer_waiting_since
        return NEVER if since is None else self._linger_ms - (now - since)

    def _backoff_left(self, queue: PartitionQueue, batch: ProducerBatch, now: int) -> int:
        """The remaining backoff of a retried batch, in ms. It is 0 if the partition has a new
        leader since the last attempt.
        """
        batch.maybe_update_leader_epoch(queue.leader_epoch)
        if batch.has_leader_changed_for_the_ongoing_retry:
            return 0
        return max(0, batch.retry_at_ms - now)

    # ---- the sender: ready, drain ------------------------------------------------------------

    def ready(self, cluster: Cluster, now: int) -> ReadyCheckResult:
        """Finds the nodes to which a Produce request can be sent now, and the time in ms after
        which this method must be called again.

        A node is ready if it leads a partition whose first queued batch may be sent now (see
        ``TransactionManager.may_drain``).
        """
        nodes: set[int] = set()
        delay = NEVER
        manager = self._transaction_manager
        with self._accumulator.lock:
            self._queues.group_by_leader(cluster)
            unknown = _NONE
            if self._queues.leaderless:
                unknown = frozenset(q.tp.topic for q in self._queues.leaderless if q.batches)
            for queue in self._queues.closed_heads:
                if queue.leader < 0 or queue.muted or queue.leader in nodes:
                    continue
                head = queue.batches[0]
                if head.state is BatchState.CLOSING or (
                    manager is not None and not manager.may_drain(head)
                ):
                    # The closer, or a response, wakes the sender. In Java, the node is ready, and
                    # the sender's loop repeats without a batch to send.
                    continue
                left = self._backoff_left(queue, head, now) if head.attempts else 0
                if left > 0:
                    delay = min(delay, left)
                    continue
                nodes.add(queue.leader)
                if len(nodes) == len(self._queues.by_node):
                    # All nodes are ready: none can be added, and the delay no longer matters.
                    return _new_result((frozenset(nodes), delay, unknown))
            if self._queues.open:
                delay = min(delay, self._open_ready(nodes, now))
        return _new_result((frozenset(nodes), delay, unknown))

    def first_leader(self, cluster: Cluster) -> int | None:
        """The id of a node that leads a partition with a queued batch, open or closed. None if no
        queued batch has a known leader.
        """
        queues = self._queues
        with self._accumulator.lock:
            queues.group_by_leader(cluster)
            waiting = (*queues.closed_heads, *queues.open.values())
            return next((queue.leader for queue in waiting if queue.leader >= 0), None)

    def _open_ready(self, nodes: set[int], now: int) -> int:
        """Adds to ``nodes`` the leaders of the open batches that must be sent now. Returns the
        delay in ms until the next open batch must be sent, or NEVER.
        """
        accumulator, manager = self._accumulator, self._transaction_manager
        everything = self._send_all_open(now)
        delay = max(self._linger_left(now), 0) if not everything else NEVER
        one_kind = not (accumulator.has_columns and accumulator.has_records)
        for queue in self._queues.open.values():
            batch = queue.batches[-1]
            left = 0 if everything else self._filler.open_left(batch, now)
            if left > 0:
                delay = min(delay, left)
                if one_kind:
                    return delay  # in opening order: all that follow are younger
                continue
            if queue.batches[0] is not batch or queue.muted or queue.leader < 0:
                continue  # an earlier batch goes first, or no node can take the batch
            if queue.leader not in nodes and (manager is None or manager.may_drain(batch)):
                nodes.add(queue.leader)
                if len(nodes) == len(self._queues.by_node):
                    return delay
        return delay

    def drain(
        self, cluster: Cluster, sizes: Mapping[int, int], now: int
    ) -> dict[int, list[ProducerBatch]]:
        """Takes the batches that can be sent now out of the queues, and returns them by node id. A
        node without a batch to send is missing in the result.

        ``sizes`` has the maximum number of bytes of a request, for each node id. A batch that is
        larger than the maximum is returned alone. A node gets at most one batch of each partition.
        The returned batches have the state IN_FLIGHT, and their headers are written.
        """
        if cluster is not self._queues.cluster:
            with self._accumulator.lock:
                self._queues.group_by_leader(cluster)
        drained: dict[int, list[ProducerBatch]] = {}
        for node, max_size in sizes.items():
            batches = self._drain_node(node, max_size, now)
            if batches:
                drained[node] = batches
        return drained

    def _drain_node(self, node: int, max_size: int, now: int) -> list[ProducerBatch]:
        # A copy: while a batch is compressed without the lock, a writer may add a new partition's
        # queue before those that were looked at. They would all move on by one, and the last one be
        # drained again: two batches of a partition in one request.
        queues = tuple(self._queues.by_node.get(node, ()))
        if not queues:
            return []
        # Begins after the last partition of the previous call, so every partition gets its turn.
        count = len(queues)
        start = self._drain_index.get(node, 0) % count
        at, stop = start, start + count
        taken: list[ProducerBatch] = []
        room = NEVER  # a single batch may be larger than max_size
        while at < stop:
            claimed: list[ProducerBatch] = []
            # One turn for all of them: of a thousand, that is a millisecond of the writer's.
            with self._accumulator.lock:
                send_all = self._send_all_open(now)
                while at < stop and not claimed:
                    queue = queues[at % count]
                    batch = self._head(queue, claimed, now, send_all=send_all)
                    if batch is not None:
                        if batch.size_in_bytes > room:
                            self._drain_index[node] = at % count
                            stop = at
                            break
                        self._queues.pop_head(queue)
                        # Without the epoch of its first attempt, its first retry would mistake any
                        # epoch for a new leader's.
                        batch.drained(now, queue.leader_epoch)
                        self._drain_index[node] = (at + 1) % count
                        room = (room if taken else max_size) - batch.size_in_bytes
                        taken.append(batch)
                    at += not claimed
            # Their queues are looked at again: only this thread removes heads, except for an abort
            # by another thread.
            for batch_to_close in claimed:
                self._filler.finish_closing(batch_to_close)
        # No longer in a queue: only this thread has them, so headers and checksums need no lock.
        if self._transaction_manager is not None:
            self._transaction_manager.batches_sent(taken)
            return taken
        for batch in taken:
            if not batch.has_header:
                batch.set_producer_state(
                    NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, transactional=False
                )
        return taken

    def _joins_request(self, batch: ProducerBatch, now: int) -> bool:
        """Returns True if the open ``batch`` should be sent with a Produce request that is now
        built for the leader of its partition.

        * A batch with a record of ``send`` joins every such request, as in Java
          (drainBatchesForOneNode).
        * A batch that has only rows of ``send_columns`` joins if it has reached its maximum age
          (``BatchFiller.open_left``).
        """
        # The writer is still filling a batch that has only rows of ``send_columns``.
        return batch.records is not None or self._filler.open_left(batch, now) <= 0

    def _head(
        self, queue: PartitionQueue, claimed: list[ProducerBatch], now: int, *, send_all: bool
    ) -> ProducerBatch | None:
        """Returns the first batch of ``queue``, or None if this batch can't be sent now. Called
        under the lock.

        An open batch is closed first. If the batch must be compressed, the method only appends the
        batch to ``claimed`` and returns None. The caller then releases the lock, compresses the
        batch and calls this method again.
        """
        if not queue.batches or queue.muted:
            return None
        batch = queue.batches[0]
        is_open = batch is queue.open
        if batch.state is BatchState.CLOSING or (
            is_open and not send_all and not self._joins_request(batch, now)
        ):
            return None
        manager = self._transaction_manager
        if manager is not None and not manager.may_drain(batch):
            return None
        if batch.state is BatchState.READY:
            left = self._backoff_left(queue, batch, now) if batch.attempts else 0
            return None if left > 0 else batch
        if is_open:
            return batch if self._filler.claim(queue, claimed) else None
        batch.move(BatchState.CLOSING)  # its closer was interrupted and released the claim
        claimed.append(batch)
        return None

    def mute_partition(self, tp: TopicPartition) -> None:
        """Stops draining the partition ``tp`` until :meth:`unmute_partition`. Used if
        max.in.flight.requests.per.connection is 1 and a batch of the partition is in flight.
        """
        with self._accumulator.lock:
            self._queues.by_partition[tp].muted = True

    def unmute_partition(self, tp: TopicPartition) -> None:
        with self._accumulator.lock:
            self._queues.by_partition[tp].muted = False
