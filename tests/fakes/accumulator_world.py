"""What the accumulator's tests share: a small cluster, slices of given sizes, a manager's stand-in.

:class:`Sequences` is the transaction manager as drain sees it, driven by the test.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator.batch_drainer import BatchDrainer, ReadyCheckResult
from spark_kafka_sink.producer.accumulator.batch_filler import AppendResult, BatchFiller
from spark_kafka_sink.producer.accumulator.batch_returns import BatchReturns
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.lifecycle import Lifecycle
from spark_kafka_sink.protocol.cluster import (
    Cluster,
    Node,
    PartitionInfo,
    PartitionInfos,
    TopicPartition,
)
from spark_kafka_sink.records.encoded_slice import EncodedSlice, EncodedSlices, OpenPosition
from tests.fakes.clock import FakeClock

NODE1, NODE2 = Node(1, "localhost", 1111), Node(2, "localhost", 1112)
TP0, TP1, TP2 = (TopicPartition("test", p) for p in range(3))
HEADER = 61


def cluster_of(leaders: list[int], epoch: int = 1, topic: str = "test") -> Cluster:
    """A cluster of two nodes; ``leaders[p]`` leads partition p, -1 is none."""
    partitions = PartitionInfos.of(
        topic,
        [PartitionInfo(TopicPartition(topic, p), node, epoch) for p, node in enumerate(leaders)],
    )
    return Cluster(nodes={1: NODE1, 2: NODE2}, topics={topic: partitions})


#: Partitions 0 and 1 on node 1, partition 2 on node 2.
CLUSTER = cluster_of([1, 1, 2])


def config_of(**options: object) -> ProducerConfig:
    """A config of Java names with ``_`` for ``.``; batches of 1000 bytes."""
    given = {
        "bootstrap.servers": "127.0.0.1:9092",
        "batch.size": "1000",
        "linger.ms": "10",
        "compression.type": "none",
    }
    given |= {name.replace("_", "."): str(value) for name, value in options.items()}
    return parse_producer_config(given)


class Listener:
    """Records how batches end, in order."""

    def __init__(self) -> None:
        self.done: list[ProducerBatch] = []

    def batches_done(self, batches: Sequence[ProducerBatch]) -> None:
        self.done += batches


class Sequences:
    """DrainControl as a test wants it: everything may go, sequences counted, in flight tracked."""

    is_transactional = False
    is_completing = False

    def __init__(self) -> None:
        self.producer_id_and_epoch = (7, 0)
        self.has_producer_id = True
        self.next: dict[TopicPartition, int] = defaultdict(int)
        self.in_flight: dict[TopicPartition, list[ProducerBatch]] = defaultdict(list)
        self.blocked: set[TopicPartition] = set()

    def may_drain(self, batch: ProducerBatch) -> bool:
        if batch.has_sequence:
            return self.first_in_flight_sequence(batch.tp) in (-1, batch.base_sequence)
        return self.has_producer_id and batch.tp not in self.blocked

    def first_in_flight_sequence(self, tp: TopicPartition) -> int:
        return min((b.base_sequence for b in self.in_flight[tp]), default=-1)

    def batches_sent(self, batches: Sequence[ProducerBatch]) -> None:
        for batch in batches:
            if batch.has_sequence:
                continue
            sequence = self.next[batch.tp]
            self.next[batch.tp] += batch.record_count
            batch.set_producer_state(*self.producer_id_and_epoch, sequence, transactional=False)
            self.in_flight[batch.tp].append(batch)

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        self.in_flight[batch.tp].append(batch)

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        self.in_flight[batch.tp].remove(batch)


class World:
    """An accumulator with all that it needs, and short words for what tests do with it."""

    def __init__(
        self, manager: Sequences | None = None, clock: FakeClock | None = None, **options: object
    ) -> None:
        self.clock = FakeClock() if clock is None else clock
        self.manager = manager
        self.listener = Listener()
        self.wakeups = 0
        self.config = config_of(**options)
        config = self.config
        self.pool = BufferPool(config.buffer_memory, self.clock)
        self.accumulator = RecordAccumulator(config, self.clock, Lifecycle(), self.pool)
        self.filler = BatchFiller(config, self.accumulator, self.listener, self.wake)
        self.drainer = BatchDrainer(config, self.accumulator, self.filler, manager)
        self.returns = BatchReturns(
            config, self.accumulator, self.filler.limits, manager, random=lambda: 0.5
        )

    def wake(self) -> None:
        self.wakeups += 1

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def slice(self, tp: TopicPartition, size: int, records: int = 1, **k: object) -> EncodedSlice:
        """A slice that continues where ``tp`` stands now."""
        position = self.position(tp)
        fields = {
            "tp": tp,
            "data": memoryview(bytes(size)),
            "record_count": records,
            "generation": position.generation,
            "first_offset_delta": position.record_count,
            "base_timestamp": position.base_timestamp if position.generation else 1000,
            "max_timestamp": 1000,
            "last": False,
        }
        return EncodedSlice(**(fields | k))  # type: ignore[arg-type]

    def position(self, tp: TopicPartition) -> OpenPosition:
        """Where the open batch of ``tp`` stands."""
        return OpenPosition(*self.filler.positions([tp])[0].tolist())

    def append_slices(self, *slices: EncodedSlice) -> AppendResult:
        """Their memory must have been allocated, if they are taken."""
        return self.filler.append(EncodedSlices.of(slices), self.now)

    def append(self, tp: TopicPartition, size: int = 100, records: int = 1, **k: object) -> None:
        """Allocate and append one slice; it must be taken."""
        piece = self.slice(tp, size, records, **k)
        need = size + (HEADER if piece.generation == 0 else 0)
        self.pool.allocate(need, self.now + 1000)
        result = self.append_slices(piece)
        assert result.refused == ()
        assert result.taken == need

    def fill(self, tp: TopicPartition, size: int = 900, records: int = 1) -> None:
        """Append a batch that is full."""
        self.append(tp, size, records, generation=0, first_offset_delta=0, last=True)

    def ready(self, cluster: Cluster = CLUSTER) -> ReadyCheckResult:
        return self.drainer.ready(cluster, self.now)

    def ready_nodes(self, cluster: Cluster = CLUSTER) -> set[int]:
        return set(self.ready(cluster).ready_nodes)

    def drain(
        self, *nodes: int, cluster: Cluster = CLUSTER, max_size: int = 2**20
    ) -> list[ProducerBatch]:
        sizes = dict.fromkeys(nodes or (1, 2), max_size)
        drained = self.drainer.drain(cluster, sizes, self.now)
        return [batch for batches in drained.values() for batch in batches]

    def raw_limit(self, topic: str = "test") -> int:
        return self.filler.limits.raw_limit(topic)

    def complete(self, *batches: ProducerBatch) -> None:
        for batch in batches:
            batch.complete(0, -1)
            self.listener.batches_done((batch,))
            if self.manager is not None:
                self.manager.remove_in_flight_batch(batch)
            self.accumulator.deallocate(batch)

    @property
    def memory_in_use(self) -> int:
        return self.config.buffer_memory - self.pool.available
