"""The queues of batches by partition, and the indexes that keep a pass of the sender short.

Owns: one :class:`PartitionQueue` for each topic partition, which of them each node leads, which
have a head that takes no more appends, and the open batches in the order of their opening. A pass
must not cost 1000 partitions when one has data. Never: a lock of its own (the accumulator's guards
it), a decision what is sent.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator

from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition


class PartitionQueue:
    """The batches of one partition. ``open`` is the one that takes appends: the last, or None.

    ``leader`` is a node id, -1 when there is none, as of the last :meth:`PartitionQueues.lay_out`.
    """

    __slots__ = ("batches", "leader", "leader_epoch", "muted", "open", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        self.muted = False
        self.leader = -1
        self.leader_epoch = -1


class PartitionQueues:
    """All queues. Whoever changes a queue's batches goes through the methods here."""

    __slots__ = ("_cluster", "_queues", "by_node", "closed_heads", "leaderless", "open")

    def __init__(self) -> None:
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._cluster: Cluster | None = None
        #: Queues whose head takes no more appends.
        self.closed_heads: dict[PartitionQueue, None] = {}
        #: Queues with an open batch by its generation, which is the order of their opening.
        self.open: dict[int, PartitionQueue] = {}
        #: The queues that each node leads, in the order of their partitions.
        self.by_node: dict[int, list[PartitionQueue]] = {}
        self.leaderless: list[PartitionQueue] = []

    def __iter__(self) -> Iterator[PartitionQueue]:
        return iter(self._queues.values())

    def find(self, tp: TopicPartition) -> PartitionQueue | None:
        return self._queues.get(tp)

    def of(self, tp: TopicPartition) -> PartitionQueue:
        """The queue of ``tp``, made when there is none yet."""
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = PartitionQueue(tp)
            if self._cluster is not None:
                insort(self._queues_of_leader(queue, self._cluster), queue, key=_partition)
        return queue

    def lay_out(self, cluster: Cluster) -> None:
        """Sort the queues by leader, once for each new view of the cluster.

        A partition that had no batch yet has no queue either: a broker may name millions.
        """
        if cluster is self._cluster:
            return
        self.by_node = {}
        self.leaderless = []
        for tp in sorted(self._queues):
            queue = self._queues[tp]
            self._queues_of_leader(queue, cluster).append(queue)
        self._cluster = cluster

    def _queues_of_leader(self, queue: PartitionQueue, cluster: Cluster) -> list[PartitionQueue]:
        """Note the leader of ``queue``; the list that it belongs to, in the order of partitions."""
        found = cluster.partition(queue.tp)
        if found is None or found.leader not in cluster.nodes:
            queue.leader = queue.leader_epoch = -1
            return self.leaderless
        queue.leader, queue.leader_epoch = found.leader, found.leader_epoch
        return self.by_node.setdefault(found.leader, [])

    def open_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """``batch`` is the last of ``queue`` now, and takes appends."""
        queue.batches.append(batch)
        queue.open = batch
        self.open[batch.generation] = queue

    def close_open(self, queue: PartitionQueue) -> ProducerBatch:
        """The open batch of ``queue`` takes no more appends; it stays where it is."""
        batch = queue.open
        assert batch is not None
        queue.open = None
        del self.open[batch.generation]
        self._classify(queue)
        return batch

    def pop_head(self, queue: PartitionQueue) -> None:
        """The head leaves; it is not the open batch."""
        queue.batches.popleft()
        self._classify(queue)

    def insert(self, queue: PartitionQueue, behind: int, batch: ProducerBatch) -> None:
        """``batch`` comes back, behind so many others."""
        queue.batches.insert(behind, batch)
        self._classify(queue)

    def remove(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Take ``batch`` out, wherever it stands."""
        queue.batches.remove(batch)
        if queue.open is batch:
            queue.open = None
            del self.open[batch.generation]
        self._classify(queue)

    def clear(self) -> None:
        """Empty every queue."""
        for queue in self._queues.values():
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
