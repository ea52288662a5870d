"""The queues of batches by partition, and the indexes that keep a pass of the sender short.

Owns: one :class:`PartitionQueue` for each topic partition, the queues of each leader, those with a
closed head, and the open batches in opening order. A pass must not visit 1000 partitions when one
has data. Never: a lock (the accumulator's guards it), which batch is sent.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable

from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition


class PartitionQueue:
    """The batches of one partition. ``open`` is the one that accepts appends: the last, or None.

    ``leader`` is a node id, -1 when there is none, as of the last
    :meth:`PartitionQueues.group_by_leader`.
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
    """A dict, because it is read for each slice."""

    __slots__ = ("_new",)

    def __init__(self, new: Callable[[TopicPartition], PartitionQueue]) -> None:
        self._new = new

    def __missing__(self, tp: TopicPartition) -> PartitionQueue:
        queue = self[tp] = self._new(tp)
        return queue


class PartitionQueues:
    """All queues. A queue's batches are changed only by the methods here."""

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
        """Group the queues by leader; needed once for each new cluster snapshot.

        A partition without a batch so far has no queue: a broker may report millions.
        """
        self.by_node = {}
        self.leaderless = []
        for tp in sorted(self.by_partition):
            queue = self.by_partition[tp]
            self._queues_of_leader(queue, cluster).append(queue)
        self.cluster = cluster

    def _queues_of_leader(self, queue: PartitionQueue, cluster: Cluster) -> list[PartitionQueue]:
        """Set the leader of ``queue``; returns the list that it belongs to, in partition order."""
        found = cluster.partition(queue.tp)
        if found is None or found.leader not in cluster.nodes:
            queue.leader = queue.leader_epoch = -1
            return self.leaderless
        queue.leader, queue.leader_epoch = found.leader, found.leader_epoch
        return self.by_node.setdefault(found.leader, [])

    def open_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Append ``batch`` to ``queue`` as its open batch."""
        queue.batches.append(batch)
        queue.open = batch
        self.open[batch.generation] = queue

    def close_open(self, queue: PartitionQueue) -> ProducerBatch:
        """Stop appends to the open batch of ``queue``; it stays queued."""
        batch = queue.open
        assert batch is not None
        queue.open = None
        del self.open[batch.generation]
        if queue.batches[0] is batch:
            self.closed_heads[queue] = None
        return batch

    def pop_head(self, queue: PartitionQueue) -> None:
        """Remove the head, which is not the open batch."""
        batches = queue.batches
        batches.popleft()
        if not batches or batches[0] is queue.open:
            del self.closed_heads[queue]

    def insert(self, queue: PartitionQueue, index: int, batch: ProducerBatch) -> None:
        """Requeue ``batch`` at index ``index``."""
        queue.batches.insert(index, batch)
        self._classify(queue)

    def remove(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Remove ``batch`` from any position."""
        queue.batches.remove(batch)
        if queue.open is batch:
            queue.open = None
            del self.open[batch.generation]
        self._classify(queue)

    def clear(self) -> None:
        """Empty every queue."""
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
