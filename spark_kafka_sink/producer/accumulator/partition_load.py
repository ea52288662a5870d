"""Computes the weights of partitions. They are used to choose partitions for rows without a key.

The weight of a partition depends on:

* the number of its queued batches, and the speed of its leader (KIP-794)
* the rack of its leader (KIP-1123)
* the leaders that ``records/partitioning/few_leaders.py`` has chosen for the task
  (``maxLeadersPerTask``)

This module takes no lock.
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

#: A leader is slow if a batch for it has waited in a queue for longer than this time in ms. Used if
#: partitioner.availability.timeout.ms is 0.
_SLOW_MS = 5_000


class _NodeLatency:
    """Two times of a node in monotonic ms (KIP-794).

    * ``ready_ms``: the last time when a batch for the node was ready.
    * ``drain_ms``: the last time when a batch was ready and the node's connection could accept a
      request.
    """

    __slots__ = ("drain_ms", "ready_ms")

    def __init__(self, now: int) -> None:
        self.drain_ms = now
        self.ready_ms = now


class PartitionLoad:
    """The partitions from which the partitioner chooses for records without a key, and the weights
    of these partitions.

    A partition with a higher weight is chosen more often. These options change the weights:

    * ``partitioner.adaptive.partitioning.enable``
    * ``partitioner.availability.timeout.ms``
    * ``partitioner.rack.aware``
    * ``maxLeadersPerTask``, an option of the sink

    The weights are computed when a new sticky partition is chosen. They may be slightly out of
    date, because the queues are read without a lock.
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
        #: The leaders that were chosen for a task, or None. If it is None, partitions with any
        #: leader are candidates.
        self._few: FewLeaders | None = None
        self._cluster = cluster
        self._queues = accumulator.queues
        self._clock = clock
        self._node_latency: dict[int, _NodeLatency] = {}
        self._random = random.Random() if rng is None else rng  # noqa: S311 - spreads load

    @property
    def matters(self) -> bool:
        """True if an option, such as ``partitioner.rack.aware``, can give different weights to
        partitions that have a leader. False if all these partitions always have the same weight.
        """
        return self._adaptive or self._rack != "" or self._most_leaders is not None

    def choose_leaders(self, task: int) -> None:
        """Chooses the brokers to which the task with the number ``task`` sends rows without a key.
        Does nothing if ``maxLeadersPerTask`` is not set.

        If an earlier task has used this producer, the brokers of that task stay chosen, because the
        producer is connected to them.
        """
        if self._most_leaders is not None and self._few is None:
            from spark_kafka_sink.records.partitioning.few_leaders import FewLeaders

            self._few = FewLeaders(self._most_leaders, task)

    def candidates(self, topic: str, available: Sequence[int]) -> Candidates:
        """Returns the partitions of ``topic`` from which to choose, and their weights. The weights
        are None if all are equal.

        ``available`` has the partitions that have a leader, in ascending order. If no partition has
        a leader, it has all partitions.
        """
        # Java's BuiltInPartitioner.updatePartitionLoadStats computes the weights in every pass of
        # the sender. Here no lock is taken, because the caller may hold the accumulator's lock.
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
        """The ids of the brokers for which a closed batch has waited in a queue for too long. The
        limit is partitioner.availability.timeout.ms, or 5 seconds if this option is 0.
        """
        # ``node_delay_ms`` also finds slow brokers, but it measures the time only while a batch for
        # the broker may be sent. If every partition of a slow broker has five batches in flight, no
        # batch may be sent. Then only this method finds the broker.
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
        """The weights of the partitions in ``available``, in the order of that list. A partition
        with the weight 0 is not chosen. Returns None if all weights are equal.
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
        """Chooses a random partition of ``topic`` as the next sticky partition. A partition with a
        higher weight is more likely.
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
        """Computes a weight for each partition in ``available`` from the number of its queued
        batches.

        ``leaders`` has the leader of each of these partitions. It is empty if no option needs the
        leaders. Partitions with a slow leader (partitioner.availability.timeout.ms) get the weight
        0. Returns None if all weights are equal.
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
        """The number of queued batches of each partition of ``topic``, such as ``{3: 2}``.
        Partitions without queued batches are missing.
        """
        queues = self._queues
        # Each is copied in one step of the interpreter.
        filled = [*list(queues.closed_heads), *list(queues.open.values())]
        return {q.tp.partition: len(q.batches) for q in filled if q.tp.topic == topic}

    def update_node_latency_stats(self, node_id: int, now: int, *, can_drain: bool) -> None:
        """Notes that a batch is ready for the node ``node_id`` at ``now``. ``can_drain`` is True
        if the node's connection can accept a request. Called on the network thread.
        """
        stats = self._node_latency.get(node_id)
        if stats is None:
            stats = self._node_latency[node_id] = _NodeLatency(now)
        if can_drain:
            stats.drain_ms = now
        stats.ready_ms = now

    def node_delay_ms(self, node_id: int) -> int:
        """The time in ms for which batches were ready for the node, but the node's connection could
        not accept a request. If this time is longer than partitioner.availability.timeout.ms, the
        node counts as slow.
        """
        stats = self._node_latency.get(node_id)
        return 0 if stats is None else stats.ready_ms - stats.drain_ms

    def _in_rack(self, leaders: Sequence[int], weights: list[int] | None) -> list[int] | None:
        """Returns new weights of partitions. A partition with a leader in this client's rack keeps
        its weight. Any other partition gets the weight 0. If all new weights would be 0, returns
        ``weights`` unchanged.

        * ``leaders``: the leader of each partition.
        * ``weights``: the current weight of each partition. None if all partitions have the weight
          1.
        """
        own = {node for node in set(leaders) if self._is_near(node)}
        local = [
            (1 if weights is None else weights[i]) if node in own else 0
            for i, node in enumerate(leaders)
        ]
        return local if any(local) else weights


def frequencies(queue_sizes: Sequence[int | None]) -> list[int] | None:
    """Computes weights of partitions from the numbers of their queued batches. The longest queue
    gets the weight 1, and an empty queue gets the highest weight.

    A partition whose entry in ``queue_sizes`` is None gets the weight 0. Returns None if all
    weights are equal, or if all entries are None.
    """
    included = [size for size in queue_sizes if size is not None]
    if not included or (len(included) == len(queue_sizes) and min(included) == max(included)):
        return None
    most = max(included) + 1
    return [0 if size is None else most - size for size in queue_sizes]
