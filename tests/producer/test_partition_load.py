"""Weights of rows without a key: queues, slow nodes, racks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from spark_kafka_sink.producer.accumulator.partition_load import PartitionLoad, frequencies
from spark_kafka_sink.protocol.cluster import (
    Cluster,
    Node,
    PartitionInfo,
    PartitionInfos,
    TopicPartition,
)
from tests.fakes.accumulator_world import World, config_of

TOPIC = "test"
RACKS = {1: "a", 2: "b", 3: "a"}


def cluster_of(leaders: list[int], racks: dict[int, str] = RACKS) -> Cluster:
    infos = PartitionInfos.of(
        TOPIC,
        (
            PartitionInfo(TopicPartition(TOPIC, number), leader=leader, leader_epoch=1)
            for number, leader in enumerate(leaders)
        ),
    )
    nodes = {n: Node(n, f"h{n}", 9092, racks.get(n)) for n in (1, 2, 3)}
    return replace(Cluster.bootstrap((("h", 1),)), nodes=nodes, topics={TOPIC: infos})


def load_of(
    world: World, cluster: Cluster, most_leaders: int | None = None, **options: object
) -> PartitionLoad:
    config = replace(config_of(**options), max_leaders_per_task=most_leaders)
    return PartitionLoad(
        config, lambda: cluster, world.accumulator, world.clock, rng=random.Random(7)
    )


def weights(load: PartitionLoad, available: Sequence[int]) -> Sequence[float] | None:
    among, found = load.candidates(TOPIC, available)
    assert among is available
    return found


def queue(world: World, sizes: list[int]) -> None:
    """So many batches in the queue of each partition."""
    for partition, size in enumerate(sizes):
        for _ in range(size):
            world.append(TopicPartition(TOPIC, partition), 100, last=True)


@pytest.mark.parametrize(
    ("sizes", "weights"),
    [
        ([5, 0, 3, 0, 1], [1, 6, 3, 6, 5]),
        ([1, 7, 2], [7, 1, 6]),
        ([4, 4, 4], None),
        ([0, None, 0], [1, 0, 1]),
        ([None, None], None),
    ],
)
def test_long_queues_weigh_little(sizes, weights):
    """BuiltInPartitionerTest#adaptivePartitionsTest."""
    assert frequencies(sizes) == weights


def test_the_weights_are_those_of_the_accumulators_queues():
    """BuiltInPartitionerTest#adaptivePartitionsTest."""
    world = World()
    queue(world, [5, 0, 3, 0, 1])
    cluster = cluster_of([1, 2, 3, 1, 2])
    load = load_of(world, cluster, partitioner_adaptive_partitioning_enable=True)
    assert load.matters
    assert weights(load, range(5)) == [1, 6, 3, 6, 5]
    assert weights(load, [0, 2]) == [1, 3]
    assert weights(load, [2]) is None
    counts = Counter(load.next_partition(TOPIC, cluster) for _ in range(21_000))
    for partition, weight in enumerate([1, 6, 3, 6, 5]):
        assert abs(counts[partition] - 1000 * weight) < 300, counts
    assert not load_of(world, cluster).matters


def test_only_the_topics_own_filled_queues_count():
    world = World()
    queue(world, [0, 2, 0, 1])
    world.append(TopicPartition("other", 0), 100, last=True)
    world.append(TopicPartition(TOPIC, 2), 100)  # open
    world.fill(TopicPartition(TOPIC, 0))
    load = load_of(world, cluster_of([1] * 5), partitioner_adaptive_partitioning_enable=True)
    assert load.queue_sizes(TOPIC) == {0: 1, 1: 2, 2: 1, 3: 1}
    for batch in world.drain(1):
        assert batch.tp.topic == TOPIC
    assert load.queue_sizes(TOPIC) == {1: 1, 2: 1, 3: 1}
    assert weights(load, [0, 1, 4]) == [2, 1, 2]


def test_a_node_that_takes_nothing_for_too_long_is_left_out():
    """RecordAccumulatorTest#testAdaptiveBuiltInPartitioner."""
    cluster = cluster_of([1, 2, 3])
    adaptive = {"partitioner_adaptive_partitioning_enable": True}
    at_0, at_499, at_500 = (
        load_of(World(), cluster, partitioner_availability_timeout_ms=ms, **adaptive)
        for ms in (0, 499, 500)
    )
    for load in (at_0, at_499, at_500):
        for node in (1, 2, 3):
            load.update_node_latency_stats(node, 1_000, can_drain=True)
        load.update_node_latency_stats(2, 1_500, can_drain=False)
    assert weights(at_500, range(3)) is None
    assert weights(at_499, range(3)) == [1, 0, 1]
    assert weights(at_0, range(3)) is None
    at_499.update_node_latency_stats(2, 1_600, can_drain=True)
    assert weights(at_499, range(3)) is None
    for node in (1, 2, 3):
        at_499.update_node_latency_stats(node, 9_000, can_drain=False)
    assert weights(at_499, range(3)) is None, "if all are slow, all are as good"


def test_only_leaders_in_the_own_rack_while_there_are_any():
    """BuiltInPartitioner#nextPartition."""
    world = World()
    cluster = cluster_of([1, 2, 3, -1])
    own = {"partitioner_rack_aware": True, "client_rack": "a"}
    load = load_of(world, cluster, **own)
    assert load.matters
    assert weights(load, [0, 1, 2]) == [1, 0, 1]
    assert {load.next_partition(TOPIC, cluster) for _ in range(200)} == {0, 2}
    elsewhere = load_of(world, cluster, partitioner_rack_aware=True, client_rack="z")
    assert weights(elsewhere, [0, 1, 2]) is None
    rackless = cluster_of([1, 2, 3], {})
    assert weights(load_of(world, rackless, **own), [0, 1, 2]) is None
    assert not load_of(world, cluster, partitioner_rack_aware=True).matters, "no rack is given"
    queue(world, [3, 0, 1])
    both = load_of(world, cluster, partitioner_adaptive_partitioning_enable=True, **own)
    assert weights(both, [0, 1, 2]) == [1, 0, 3]


def test_an_unknown_topic_has_one_partition():
    load = load_of(World(), cluster_of([1]))
    assert load.next_partition("unknown", cluster_of([1])) == 0


def test_a_task_has_the_leaders_of_its_number():
    world, cluster = World(), cluster_of([1, 2, 3] * 4)
    load = load_of(world, cluster, most_leaders=1)
    assert load.matters
    assert weights(load, range(12)) is None, "no task has begun"
    load.choose_leaders(7)
    among, equal = load.candidates(TOPIC, range(12))
    assert equal is None
    (leader,) = {number % 3 for number in among}
    assert {load.next_partition(TOPIC, cluster) % 3 for _ in range(100)} == {leader}
    load.choose_leaders(8)
    assert load.candidates(TOPIC, range(12))[0] == among, "a warm producer keeps its connections"


def test_a_leader_whose_batches_wait_for_seconds_is_left():
    world, cluster = World(), cluster_of([1, 2, 3] * 4)
    load = load_of(world, cluster, most_leaders=1)
    load.choose_leaders(0)
    among, _ = load.candidates(TOPIC, range(12))
    world.fill(TopicPartition(TOPIC, among[0]))
    world.accumulator.queues.group_by_leader(cluster)
    world.clock.advance(5_000)
    assert load.candidates(TOPIC, range(12))[0] == among
    world.clock.advance(1)
    others = load.candidates(TOPIC, range(12))[0]
    assert len(others) == 4
    assert others != among
    world.drain(cluster.topics[TOPIC].leader(among[0]), cluster=cluster)
    assert load.candidates(TOPIC, range(12))[0] == among


def test_loads_weigh_among_the_leaders_of_a_task():
    world = World()
    queue(world, [2, 0, 0, 2, 0, 0, 0])
    adaptive = {"partitioner_adaptive_partitioning_enable": True}
    cluster, found = cluster_of([1, 1, 2, 2, 2, 3, 3]), {}
    for task in range(20):
        load = load_of(world, cluster, most_leaders=2, **adaptive)
        load.choose_leaders(task)
        among, given = load.candidates(TOPIC, range(7))
        found[tuple(among)] = given
    assert found[0, 1, 2, 3, 4] == [1 / 2, 3 / 2, 3 / 3, 1 / 3, 3 / 3]
    assert found[0, 1, 5, 6] == [1, 3, 3, 3], "equal shares"
