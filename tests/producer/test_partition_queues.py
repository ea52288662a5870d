"""Queues are there for partitions that have batches, each in the list of its leader, in order."""

from __future__ import annotations

import random

from spark_kafka_sink.producer.accumulator.record_accumulator import PartitionQueues
from spark_kafka_sink.protocol.cluster import Cluster, PartitionInfo, PartitionInfos, TopicPartition
from tests.fakes.accumulator_world import NODE1, NODE2, TP0, World, cluster_of


def test_a_partition_has_no_queue_before_its_first_batch() -> None:
    infos = (PartitionInfo(TopicPartition("t", n), 1 + n % 2) for n in range(10_000))
    cluster = Cluster(nodes={1: NODE1, 2: NODE2}, topics={"t": PartitionInfos.of("t", infos)})
    queues = PartitionQueues()
    queues.group_by_leader(cluster)
    assert not queues.by_partition
    queues.by_partition[TopicPartition("t", 7)]
    assert {node: [q.tp.partition for q in of] for node, of in queues.by_node.items()} == {2: [7]}


def test_a_nodes_queues_stand_in_order_whenever_they_were_made() -> None:
    cluster = cluster_of([1, 2, 1, -1, 2, 1, -1, 9])
    order = list(range(8))
    for seed in range(20):
        random.Random(seed).shuffle(order)
        queues = PartitionQueues()
        for number in order[: seed % 8]:
            queues.by_partition[TopicPartition("test", number)]
        queues.group_by_leader(cluster)
        for number in order:
            queues.by_partition[TopicPartition("test", number)]
        found = {node: [q.tp.partition for q in of] for node, of in queues.by_node.items()}
        assert found == {1: [0, 2, 5], 2: [1, 4]}
        assert [q.tp.partition for q in queues.leaderless] == [3, 6, 7]
        queue = queues.by_partition[TopicPartition("test", 4)]
        assert (queue.leader, queue.leader_epoch) == (2, 1)


def test_a_batch_is_undrained_until_it_is_taken_from_its_queue() -> None:
    """A closing sender goes on for it; what is in flight is counted by the client."""
    world = World()
    assert not world.accumulator.has_undrained
    world.append(TP0)
    assert world.accumulator.has_undrained  # open
    world.append(TP0, last=True)
    assert world.accumulator.has_undrained  # full
    (batch,) = world.drain(1)
    assert not world.accumulator.has_undrained
    world.returns.reenqueue(batch, world.now)
    assert world.accumulator.has_undrained
