"""The load of partitions and brokers, for the choice of a partition for rows without a key.

Owns: :class:`PartitionLoad`, the partitions to choose from and their weights: by queues, slow
brokers and racks (KIP-794, KIP-1123), and by the leaders of a task. Never: the partition of a row,
the choice of a task's leaders (both ``records/partitioning``), the queues themselves
(``record_accumulator.py``), a lock.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.protocol.cluster import Cluster, PartitionInfos
from spark_kafka_sink.records.partitioning.topic_view import Candidates

if TYPE_CHECKING:
    from spark_kafka_sink.records.partitioning.few_leaders import FewLeaders

#: A leader is slow if a batch waits for it longer, and partitioner.availability.timeout.ms is 0.
_SLOW_MS = 5_000


class _NodeLatency:
    """Two times of a node: when data was last ready for it, and when its connection last accepted
    data (KIP-794).
    """

    __slots__ = ("drain_ms", "ready_ms")

    def __init__(self, now: int) -> None:
        self.drain_ms = now
        self.ready_ms = now


class PartitionLoad:
    """The candidate partitions for rows and records without a key, and their weights.

    The weights follow from queue sizes, unavailable nodes, racks and leaders, by the options
    ``partitioner.adaptive.partitioning.enable``, ``.availability.timeout.ms``, ``.rack.aware`` and
    the sink's ``maxLeadersPerTask``. The weights are used in step 5 of a record's way.

    Java's ``BuiltInPartitioner.updatePartitionLoadStats`` recomputes the weights of each topic in
    every pass of the sender. Here they are computed when a sticky partition is chosen. No lock is
    taken, because the caller may hold the accumulator's lock, so the inputs may be slightly stale.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Callable[[], Cluster],
        accumulator: RecordAccumulator,
        clock: Clock,
        *,
        rng: random.Random | None = None,
    ) -> None:
        self._adaptive = config.partitioner_adaptive_partitioning_enable
        self._timeout_ms = config.partitioner_availability_timeout_ms
        self._rack = config.client_rack if config.partitioner_rack_aware else ""
        self._most_leaders = config.max_leaders_per_task
        #: None until the leaders of a task are chosen: then a partition may have any leader.
        self._few: FewLeaders | None = None
        self._cluster = cluster
        self._queues = accumulator.queues
        self._clock = clock
        self._node_latency: dict[int, _NodeLatency] = {}
        self._random = random.Random() if rng is None else rng  # noqa: S311 - spreads load

    @property
    def matters(self) -> bool:
        """True if partitions with a leader may have different weights."""
        return self._adaptive or self._rack != "" or self._most_leaders is not None

    def choose_leaders(self, task: int) -> None:
        """Chooses the leaders of the task number ``task``, if ``maxLeadersPerTask`` is set. A warm
        producer keeps its leaders, because it is connected to them.
        """
        if self._most_leaders is not None and self._few is None:
            from spark_kafka_sink.records.partitioning.few_leaders import FewLeaders

            self._few = FewLeaders(self._most_leaders, task)

    def candidates(self, topic: str, available: Sequence[int]) -> Candidates:
        """The candidate partitions, among ``available`` (ascending), and their weights. If all
        weights are equal, None is returned for the weights.

        Called at each change of the sticky partition. The cost grows with the number of non-empty
        queues.
        """
        infos = self._cluster().topics.get(topic)
        if self._few is None or infos is None:
            return available, self._weights(topic, available, infos)
        among, shares = self._few.candidates(
            infos, available, self._slow_leaders(), self._is_near if self._rack else None
        )
        weights = self._weights(topic, among, infos)
        if weights is None or shares is None:
            return among, weights or shares
        both = [weight * share for weight, share in zip(weights, shares, strict=True)]
        return among, both if any(both) else shares

    def _slow_leaders(self) -> set[int]:
        """The leaders of partitions with a batch that has waited in its queue for too long.

        This complements :meth:`node_delay_ms`, which measures only nodes that are ready. A slow
        node whose partitions all have five batches in flight is not ready, so :meth:`node_delay_ms`
        does not detect it.
        """
        since = self._clock.now_ms() - (self._timeout_ms or _SLOW_MS)
        slow = set()
        for queue in list(self._queues.closed_heads):  # copied in one step of the interpreter
            if queue.leader not in slow and any(
                batch.created_ms < since for batch in list(queue.batches)[:1]
            ):
                slow.add(queue.leader)
        return slow

    def _is_near(self, node: int) -> bool:
        found = self._cluster().nodes.get(node)
        return found is not None and found.rack == self._rack

    def _weights(
        self, topic: str, available: Sequence[int], infos: PartitionInfos | None
    ) -> list[int] | None:
        """The weight of each of the ``available`` partitions. The weight 0 excludes a partition.
        Returns None if all weights are equal.
        """
        leaders: Sequence[int] = ()
        if infos is not None and (self._rack or self._timeout_ms > 0):
            count = len(infos)
            leaders = [infos.leader(p) if p < count else -1 for p in available]
        weights: list[int] | None = None
        if self._adaptive and len(available) > 1:
            weights = self._by_load(topic, available, leaders)
        if self._rack:
            weights = self._in_rack(leaders, weights)
        return weights

    def next_partition(self, topic: str, cluster: Cluster) -> int:
        """Chooses a random partition, according to the weights, for the next sticky records of
        ``topic``.
        """
        infos = cluster.topics.get(topic)
        led = () if infos is None else infos.available
        among, weights = self.candidates(
            topic, led or range(1 if infos is None else max(1, len(infos)))
        )
        if weights is None:
            return self._random.choice(among)
        return self._random.choices(among, weights)[0]

    def _by_load(
        self, topic: str, available: Sequence[int], leaders: Sequence[int]
    ) -> list[int] | None:
        """The weights of the partitions ``available``, from the lengths of their queues. Partitions
        of slow ``leaders`` are left out. ``leaders`` is empty if latency is not used.
        """
        timeout = self._timeout_ms
        sizes: list[int | None] = [0] * len(available)
        for partition, size in self.queue_sizes(topic).items():
            at = bisect_left(available, partition)
            if at < len(available) and available[at] == partition:
                sizes[at] = size
        if timeout > 0:
            slow = {node for node in set(leaders) if self.node_delay_ms(node) > timeout}
            if slow:
                pairs = zip(sizes, leaders, strict=True)
                sizes = [None if node in slow else size for size, node in pairs]
        return frequencies(sizes)

    def queue_sizes(self, topic: str) -> dict[int, int]:
        """The number of queued batches by partition, for ``topic``. Partitions without batches are
        left out.
        """
        queues = self._queues
        # Each is copied in one step of the interpreter.
        filled = [*list(queues.closed_heads), *list(queues.open.values())]
        return {q.tp.partition: len(q.batches) for q in filled if q.tp.topic == topic}

    def update_node_latency_stats(self, node_id: int, now: int, *, can_drain: bool) -> None:
        """Records that data is ready for a node, and whether the node's connection accepts data
        (``can_drain``). Called on the sender thread.
        """
        stats = self._node_latency.get(node_id)
        if stats is None:
            stats = self._node_latency[node_id] = _NodeLatency(now)
        if can_drain:
            stats.drain_ms = now
        stats.ready_ms = now

    def node_delay_ms(self, node_id: int) -> int:
        """The time in ms for which a node has had ready data without being available (see
        partitioner.availability.timeout.ms).
        """
        stats = self._node_latency.get(node_id)
        return 0 if stats is None else stats.ready_ms - stats.drain_ms

    def _in_rack(self, leaders: Sequence[int], weights: list[int] | None) -> list[int] | None:
        """Sets the weights of partitions whose leader is in another rack to 0. Leaves all weights
        unchanged if no partition with a leader in our rack has a weight.
        """
        own = {node for node in set(leaders) if self._is_near(node)}
        local = [
            (1 if weights is None else weights[i]) if node in own else 0
            for i, node in enumerate(leaders)
        ]
        return local if any(local) else weights


def frequencies(queue_sizes: Sequence[int | None]) -> list[int] | None:
    """Computes weights of partitions from their numbers of queued batches. The longest queue gets
    weight 1, and an empty queue gets the highest weight.

    None in ``queue_sizes`` excludes a partition (weight 0). Returns None if all weights are equal,
    or if every partition is excluded.
    """
    included = [size for size in queue_sizes if size is not None]
    if not included or (len(included) == len(queue_sizes) and min(included) == max(included)):
        return None
    most = max(included) + 1
    return [0 if size is None else most - size for size in queue_sizes]
