"""Which partitions keep up: the weights of rows without a key (KIP-794, KIP-1123).

Owns: queue sizes, nodes that take nothing, and racks, made into weights of partitions. Beside the
step 5 of a record's way. Never: the choice itself (``records/partitioners`` for columns,
``record_partitioner`` for single records), nor a lock: what it reads may be a moment old.

Java keeps the weights beside each topic and makes them anew in every pass of the sender; here they
are asked for once for each sticky piece, when it is chosen.
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
        """False: every partition with a leader is as likely as the others."""
        return self._adaptive or self._rack != ""

    def weights(self, topic: str, available: Sequence[int]) -> Sequence[int] | None:
        """The weight of each of ``available`` (0: left out); None when all weigh the same.

        ``available`` ascends. Asked for at each change of partition, under the accumulator's lock
        for single records: what it costs grows with the queues that hold something.
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
        """``leaders`` are those of ``available``; empty when nobody asks who is slow."""
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
        """Only leaders in our rack, when it has any that weigh something."""
        nodes = self._cluster().nodes
        own = {node for node in set(leaders) if node in nodes and nodes[node].rack == self._rack}
        local = [
            (1 if weights is None else weights[i]) if node in own else 0
            for i, node in enumerate(leaders)
        ]
        return local if any(local) else weights


def frequencies(queue_sizes: Sequence[int | None]) -> list[int] | None:
    """Weights from batches queued: the longest queue weighs 1, an empty one the most.

    None in ``queue_sizes``: that partition is left out (0). None comes back when all weigh the
    same, and when none would be left.
    """
    there = [size for size in queue_sizes if size is not None]
    if not there or (len(there) == len(queue_sizes) and min(there) == max(there)):
        return None
    most = max(there) + 1
    return [0 if size is None else most - size for size in queue_sizes]
