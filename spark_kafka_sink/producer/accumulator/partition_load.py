"""Partition weights for rows without a key (KIP-794, KIP-1123).

Owns: the weights of partitions, from queue sizes, unavailable nodes and racks (for step 5 of a
record's way). Never: the choice itself (``records/partitioning`` for columns,
``record_partitioner`` for single records), nor a lock: its inputs may be slightly stale.

Java recomputes the weights of each topic in every pass of the sender; here they are computed when a
sticky partition is chosen.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Sequence

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.protocol.cluster import Cluster


class PartitionLoad:
    """Weights by ``partitioner.adaptive.partitioning.enable``, ``.availability.timeout.ms`` and
    ``.rack.aware`` (Java's ``BuiltInPartitioner.updatePartitionLoadStats``).
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Callable[[], Cluster],
        accumulator: RecordAccumulator,
        *,
        rng: random.Random | None = None,
    ) -> None:
        self._adaptive = config.partitioner_adaptive_partitioning_enable
        self._timeout_ms = config.partitioner_availability_timeout_ms
        self._rack = config.client_rack if config.partitioner_rack_aware else ""
        self._cluster = cluster
        self._accumulator = accumulator
        self._random = random.Random() if rng is None else rng  # noqa: S311 - spreads load

    @property
    def matters(self) -> bool:
        """False: all partitions with a leader are equally likely."""
        return self._adaptive or self._rack != ""

    def weights(self, topic: str, available: Sequence[int]) -> Sequence[int] | None:
        """The weight of each of ``available`` (0: excluded); None when all are equal.

        ``available`` is ascending. Called at each change of partition, under the accumulator's lock
        for single records: the cost grows with the number of non-empty queues.
        """
        infos = self._cluster().topics.get(topic)
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
        """A partition for the next sticky records of ``topic``."""
        infos = cluster.topics.get(topic)
        led = () if infos is None else infos.available
        available = led or range(1 if infos is None else max(1, len(infos)))
        weights = self.weights(topic, available)
        if weights is None:
            return self._random.choice(available)
        return self._random.choices(available, weights)[0]

    def _by_load(
        self, topic: str, available: Sequence[int], leaders: Sequence[int]
    ) -> list[int] | None:
        """``leaders`` of ``available``; empty when leader latency is not used."""
        accumulator, timeout = self._accumulator, self._timeout_ms
        sizes: list[int | None] = [0] * len(available)
        for partition, size in accumulator.queue_sizes(topic).items():
            at = bisect_left(available, partition)
            if at < len(available) and available[at] == partition:
                sizes[at] = size
        if timeout > 0:
            slow = {node for node in set(leaders) if accumulator.node_delay_ms(node) > timeout}
            if slow:
                pairs = zip(sizes, leaders, strict=True)
                sizes = [None if node in slow else size for size, node in pairs]
        return frequencies(sizes)

    def _in_rack(self, leaders: Sequence[int], weights: list[int] | None) -> list[int] | None:
        """Only leaders in our rack, if any of them has a weight above 0."""
        nodes = self._cluster().nodes
        own = {node for node in set(leaders) if node in nodes and nodes[node].rack == self._rack}
        local = [
            (1 if weights is None else weights[i]) if node in own else 0
            for i, node in enumerate(leaders)
        ]
        return local if any(local) else weights


def frequencies(queue_sizes: Sequence[int | None]) -> list[int] | None:
    """Weights from batches queued: the longest queue has weight 1, an empty one the highest.

    None in ``queue_sizes`` excludes that partition (weight 0). Returns None when all weights are
    equal, and when every partition is excluded.
    """
    included = [size for size in queue_sizes if size is not None]
    if not included or (len(included) == len(queue_sizes) and min(included) == max(included)):
        return None
    most = max(included) + 1
    return [0 if size is None else most - size for size in queue_sizes]
