"""What a drain of the RecordAccumulator takes: of which partitions, in which order, how much."""

from __future__ import annotations

from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.fakes.accumulator_world import HEADER, TP0, TP1, TP2, Sequences, World, cluster_of


def test_drain_takes_one_batch_of_a_partition_for_each_call():
    """RecordAccumulator#drainBatchesForOneNode."""
    world = World()
    for _ in range(3):
        world.fill(TP0)
    world.fill(TP1)
    assert [b.tp for b in world.drain(1)] == [TP0, TP1]
    assert [b.tp for b in world.drain(1)] == [TP0]


def test_drain_stops_at_max_size_and_takes_an_oversize_one_alone():
    """RecordAccumulatorTest#testPartialDrain."""
    world = World()
    world.fill(TP0, 900)
    world.fill(TP1, 900)
    size = 900 + HEADER
    assert [b.tp for b in world.drain(1, max_size=2 * size - 1)] == [TP0]
    assert [b.tp for b in world.drain(1, max_size=10)] == [TP1]
    assert world.drain(1) == []


def test_the_next_drain_starts_after_the_partition_drained_last():
    """RecordAccumulatorTest#testDrainBatches: no partition starves."""
    world = World()
    for _ in range(3):
        for tp in (TP0, TP1):
            world.fill(tp)
    taken = [world.drain(1, max_size=1)[0].tp for _ in range(6)]
    assert taken == [TP0, TP1, TP0, TP1, TP0, TP1]
    world.fill(TP0)
    assert [b.tp for b in world.drain(1)] == [TP0]
    world.fill(TP0)
    world.fill(TP1)
    assert [b.tp for b in world.drain(1, max_size=1)] == [TP1]


def test_what_did_not_fit_goes_first_in_the_next_drain():
    """Before a partition that had nothing then, though that one comes earlier."""
    world, cluster = World(), cluster_of([1, 1, 1])
    for tp in (TP0, TP1, TP2):
        world.fill(tp)
    assert len(world.drain(1, cluster=cluster)) == 3
    world.fill(TP0)
    world.fill(TP2)
    assert [b.tp for b in world.drain(1, cluster=cluster, max_size=1)] == [TP0]
    world.fill(TP1)
    assert [b.tp for b in world.drain(1, cluster=cluster, max_size=1)] == [TP2]


def test_a_muted_partition_does_not_end_its_nodes_drain():
    world, cluster = World(), cluster_of([1, 1, 1])
    for tp in (TP0, TP1, TP2):
        world.fill(tp)
    world.drainer.mute_partition(TP1)
    assert [b.tp for b in world.drain(1, cluster=cluster)] == [TP0, TP2]


def test_a_partition_that_its_sequences_hold_ends_no_drain():
    """Whether its head is new (its first batch is in flight), or waits for an earlier retry."""
    world, cluster = World(Sequences()), cluster_of([1, 1, 1])
    assert world.manager is not None
    for tp in (TP0, TP1, TP2):
        world.fill(tp)
    world.manager.blocked = {TP0, TP1}
    assert [b.tp for b in world.drain(1, cluster=cluster)] == [TP2]
    world.manager.blocked = set()
    first, second = world.drain(1, cluster=cluster)
    assert (first.tp, second.tp) == (TP0, TP1)
    for tp in (TP0, TP1, TP2):
        world.fill(tp)
    sent = world.drain(1, cluster=cluster)
    world.clock.advance(1000)
    world.returns.reenqueue(sent[1], world.now - 1000)  # the one before it has no answer yet
    world.fill(TP2)
    assert [b.tp for b in world.drain(1, cluster=cluster)] == [TP2]


def test_a_muted_partition_is_not_ready_but_expires():
    """RecordAccumulatorTest#testMutedPartitions."""
    world = World()
    world.fill(TP0)
    world.drainer.mute_partition(TP0)
    assert world.ready_nodes() == set()
    assert world.drain(1) == []
    world.drainer.unmute_partition(TP0)
    assert world.ready_nodes() == {1}
    world.drainer.mute_partition(TP0)
    world.clock.advance(world.config.delivery_timeout_ms)
    assert len(world.returns.expired(world.now)) == 1


def test_a_new_partition_during_a_drain_shifts_no_other():
    """The drain compresses without the lock, and a writer then writes to the broker's first
    partition: those behind it move on by one, and one would be drained twice in a request.
    """
    world, cluster = World(compression_type="gzip"), cluster_of([1, 1, 1])
    world.ready(cluster)
    for _ in range(2):
        world.fill(TP1)
    world.append(TP2)
    gzip = world.filler.codec
    appended: list[TopicPartition] = []

    class WriterBesides:
        def __getattr__(self, name: str) -> object:
            return getattr(gzip, name)

        def compress(self, buffers: list[bytes]) -> bytes:
            if not appended:
                world.append(TP0)
                appended.append(TP0)
            return gzip.compress(buffers)

    world.filler.codec = WriterBesides()  # type: ignore[assignment]
    world.accumulator.begin_flush()
    assert [b.tp for b in world.drain(1, cluster=cluster)] == [TP1, TP2]
    assert appended == [TP0]
