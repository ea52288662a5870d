"""Selects the batches to send now: ready nodes, and the batches drained for them.

Owns: when an open batch is sent unfilled (linger, age, flush, waiters, close), the nodes with data
ready and the delay until the next check, fair draining, backoff, the latency of nodes (KIP-794).
It drains the accumulator on the sender thread. Never: how batches are filled
(``record_accumulator.py``), sequences (the :class:`DrainControl` decides), a clock, a socket.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator.batch_closer import BatchCloser
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.accumulator.drain_control import DrainControl
from spark_kafka_sink.producer.accumulator.incomplete_batches import IncompleteBatches
from spark_kafka_sink.producer.accumulator.partition_queues import PartitionQueue, PartitionQueues
from spark_kafka_sink.producer.accumulator.producer_batch import BatchState, ProducerBatch
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

#: An open batch older than this (or than linger.ms, if that is longer) is sent although the
#: writer never waited linger.ms: rows that arrive a little faster than linger.ms would else
#: keep it open until delivery.timeout.ms, which counts from its creation, expires.
MAX_OPEN_MS = 1_000


class ReadyCheckResult(NamedTuple):
    """Java's ReadyCheckResult: ``next_ready_check_delay_ms`` is NEVER when no batch waits."""

    ready_nodes: frozenset[int]
    next_ready_check_delay_ms: int
    unknown_leader_topics: frozenset[str]


#: Create one from its fields in order: the loop needs one in every iteration.
_new_result: Callable[[tuple[frozenset[int], int, frozenset[str]]], ReadyCheckResult] = partial(
    tuple.__new__, ReadyCheckResult
)
_NONE: frozenset[str] = frozenset()


class _NodeLatency:
    """When a node had data ready, and when it could last be sent to (KIP-794)."""

    __slots__ = ("drain_ms", "ready_ms")

    def __init__(self, now: int) -> None:
        self.drain_ms = now
        self.ready_ms = now


class BatchDrainer:
    """Takes batches out of the accumulator's queues, under its lock (``_lock``).

    The lock also guards ``writer_encodes``. ``writer_waiting_since`` (monotonic ms, or None) and
    ``closed`` are plain flags, set by the writer thread and read here in every pass. ``mixed``:
    both ``send`` and columns fill batches, whose limits of age differ.
    """

    __slots__ = (
        "_closer",
        "_drain_index",
        "_incomplete",
        "_linger_ms",
        "_lock",
        "_max_open_ms",
        "_node_latency",
        "_pool",
        "_queues",
        "_transaction_manager",
        "closed",
        "mixed",
        "writer_encodes",
        "writer_waiting_since",
    )

    def __init__(
        self,
        config: ProducerConfig,
        lock: threading.Lock,
        queues: PartitionQueues,
        incomplete: IncompleteBatches,
        pool: BufferPool,
        closer: BatchCloser,
        transaction_manager: DrainControl | None,
    ) -> None:
        self._lock = lock
        self._queues = queues
        self._incomplete = incomplete
        self._pool = pool
        self._closer = closer
        self._transaction_manager = transaction_manager
        self._linger_ms = config.linger_ms
        # Well before it would expire, should delivery.timeout.ms be that short.
        self._max_open_ms = max(config.linger_ms, min(MAX_OPEN_MS, config.delivery_timeout_ms // 4))
        self._drain_index: dict[int, int] = {}
        self._node_latency: dict[int, _NodeLatency] = {}
        self.closed = False
        self.mixed = False
        self.writer_encodes = False
        self.writer_waiting_since: int | None = None

    # ---- unfilled batches --------------------------------------------------------------------
    def _send_all_open(self, now: int) -> bool:
        """True when all open batches must be sent unfilled."""
        return (
            self._incomplete.flushing
            or self.closed
            # A thread may be waiting for memory that only open batches hold: sending them is the
            # only way to free it.
            or self._pool.waiters > 0
            or self._linger_left(now) <= 0
            or (self._transaction_manager is not None and self._transaction_manager.is_completing)
        )

    def _linger_left(self, now: int) -> int:
        """Milliseconds until the writer has waited linger.ms for its input."""
        since = self.writer_waiting_since
        return NEVER if since is None else self._linger_ms - (now - since)

    def _open_left(self, batch: ProducerBatch, now: int) -> int:
        """Milliseconds until ``batch`` has been open for too long.

        With a record of ``send`` that is Java's linger.ms, from the batch's creation. Else, while
        the writer encodes for its position, the limit is doubled: age is not urgent, and refused
        slices are encoded twice. (Not indefinitely: the writer may have failed.)
        """
        if batch.futures is not None:
            return self._linger_ms - (now - batch.created_ms)
        limit = self._max_open_ms * 2 if self.writer_encodes else self._max_open_ms
        return limit - (now - batch.created_ms)

    def oldest_open_left(self, now: int) -> int:
        for queue in self._queues.open.values():
            return self._open_left(queue.batches[-1], now)
        return NEVER

    def _backoff_left(self, queue: PartitionQueue, batch: ProducerBatch, now: int) -> int:
        """Milliseconds of backoff left of a retried batch; 0 when the leader changed since the last
        attempt.
        """
        batch.maybe_update_leader_epoch(queue.leader_epoch)
        if batch.has_leader_changed_for_the_ongoing_retry:
            return 0
        return max(0, batch.retry_at_ms - now)

    # ---- the sender: ready, drain ------------------------------------------------------------

    def ready(self, cluster: Cluster, now: int) -> ReadyCheckResult:
        """Nodes that lead a partition with a batch to send now; and the delay until the next check.

        Unlike Java's, a node is not ready for a partition whose sequences hold it back (the first
        batch of a producer on it is in flight): the response wakes the sender anyway, and a ready
        node without a drainable batch would make it spin until then.
        """
        nodes: set[int] = set()
        delay = NEVER
        manager = self._transaction_manager
        with self._lock:
            if cluster is not self._queues.cluster:
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
                    continue  # the closer, or the response, wakes the sender
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

    def _open_ready(self, nodes: set[int], now: int) -> int:
        """Add the leaders of open batches to send; returns the delay until the next is due."""
        everything = self._send_all_open(now)
        delay = max(self._linger_left(now), 0) if not everything else NEVER
        one_kind, manager = not self.mixed, self._transaction_manager
        for queue in self._queues.open.values():
            batch = queue.batches[-1]
            left = 0 if everything else self._open_left(batch, now)
            if left > 0:
                delay = min(delay, left)
                if one_kind:
                    return delay  # in opening order: all that follow are younger
                continue
            if queue.batches[0] is not batch or queue.muted or queue.leader < 0:
                continue  # not its turn
            if queue.leader not in nodes and (manager is None or manager.may_drain(batch)):
                nodes.add(queue.leader)
                if len(nodes) == len(self._queues.by_node):
                    return delay
        return delay

    def drain(
        self, cluster: Cluster, nodes: Collection[int], max_size: int, now: int
    ) -> dict[int, list[ProducerBatch]]:
        """Batches by node id, IN_FLIGHT, headers written; nodes without batches are omitted.

        At most one batch of a partition, at most ``max_size`` bytes for a node unless a single
        batch is larger. Each call starts at the partition after the one that was drained last, so
        that no partition of a node starves.
        """
        if cluster is not self._queues.cluster:
            with self._lock:
                self._queues.group_by_leader(cluster)
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
        count = len(queues)
        start = self._drain_index.get(node, 0) % count
        send_all = self._send_all_open(now)
        manager = self._transaction_manager
        taken: list[ProducerBatch] = []
        room = NEVER  # a single batch may be larger than max_size
        for index in range(start, start + count):
            queue = queues[index % count]
            # Read without the lock; a concurrent change by the writer wakes us for another pass.
            if not queue.batches or not (send_all or self._may_send(queue, now)):
                continue
            batch = self._poll_head(queue, room, now)
            if batch is None:
                continue
            if batch.state is BatchState.READY:
                self._drain_index[node] = index % count
                break
            # No longer in a queue: only this thread has it, so header and checksum need no lock.
            if manager is not None:
                manager.batch_sent(batch)
            elif not batch.has_header:
                batch.set_producer_state(
                    NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, transactional=False
                )
            self._drain_index[node] = (index + 1) % count
            room = (room if taken else max_size) - batch.size_in_bytes
            taken.append(batch)
        return taken

    def _may_send(self, queue: PartitionQueue, now: int) -> bool:
        """False for a queue with a single open batch that is still to be filled."""
        batch = queue.open
        return batch is None or len(queue.batches) > 1 or self._joins_request(batch, now)

    def _joins_request(self, batch: ProducerBatch, now: int) -> bool:
        """An open batch joins a request to its broker when it is old; one with records of ``send``
        whether it lingered or not, as in Java (drainBatchesForOneNode). A batch of columns is
        filled first: the writer is working on it.
        """
        return batch.futures is not None or self._open_left(batch, now) <= 0

    def _poll_head(self, queue: PartitionQueue, room: int, now: int) -> ProducerBatch | None:
        """Remove the head of ``queue`` and return it IN_FLIGHT; when it has more than ``room``
        bytes it stays queued and is returned READY; None when it may not be sent now. An open head
        is closed first.
        """
        claimed: list[ProducerBatch] = []
        manager = self._transaction_manager
        with self._lock:
            if queue.muted or not queue.batches:
                return None
            batch = queue.batches[0]
            if batch.state is BatchState.CLOSING or (
                manager is not None and not manager.may_drain(batch)
            ):
                return None
            if batch.state is BatchState.READY:
                if batch.attempts and self._backoff_left(queue, batch, now) > 0:
                    return None
                if batch.size_in_bytes <= room:
                    self._queues.pop_head(queue)
                    # Without the epoch of its first attempt, its first retry would mistake any
                    # epoch for a new leader's.
                    batch.drained(now, queue.leader_epoch)
                return batch
            if batch is queue.open:
                if not self._send_all_open(now) and not self._joins_request(batch, now):
                    return None
                self._closer.claim(queue, claimed)
            else:
                batch.claim()  # its closer was interrupted and released the claim
                claimed.append(batch)
        for batch_to_close in claimed:
            self._closer.finish_closing(batch_to_close)
        # Only this thread removes heads, except for an abort by another thread: check again.
        return self._poll_head(queue, room, now)

    def update_node_latency_stats(self, node_id: int, now: int, *, can_drain: bool) -> None:
        """A node has data ready, and (``can_drain``) its connection accepted some (KIP-794)."""
        stats = self._node_latency.get(node_id)
        if stats is None:
            stats = self._node_latency[node_id] = _NodeLatency(now)
        if can_drain:
            stats.drain_ms = now
        stats.ready_ms = now

    def node_delay_ms(self, node_id: int) -> int:
        """How long, in ms, a node with ready data was unavailable (partitioner.availability)."""
        stats = self._node_latency.get(node_id)
        return 0 if stats is None else stats.ready_ms - stats.drain_ms
