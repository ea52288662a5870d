"""maxLeadersPerTask in whole producers: connections, leaders that move, stop or are slow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.records.record_columns import from_record_batch
from tests.fakes.fake_cluster import FakeConnection
from tests.fakes.producer_world import ProducerWorld, rows

pytestmark = pytest.mark.simulated

PRODUCE = 0
NODES, PARTITIONS = 6, 24
PLAN = ColumnPlan(topic="many", value_column=0)


@pytest.fixture
def world() -> ProducerWorld:
    made = ProducerWorld(nodes=NODES)
    made.cluster.create_topic("many", PARTITIONS)
    return made


def producer_of(
    world: ProducerWorld, most: int | None, task: int, cluster: Cluster | None = None
) -> KafkaProducer:
    """Each batch holds a row or two, so that many partitions are chosen."""
    config = replace(world.config, max_leaders_per_task=most, batch_size=100)
    producer = world.of(config, cluster)
    producer.start_attempt(task)
    return producer


def send(world: ProducerWorld, producer: KafkaProducer, first: int, count: int = 20) -> None:
    values = [str(number) for number in range(first, first + count)]
    for value in values:
        producer.send_columns(from_record_batch(rows(value), PLAN, 1_700_000_000_000))
    world.scheduler.sleep(20)


def written(world: ProducerWorld) -> dict[int, int]:
    """The rows in the partitions of each leader."""
    found = dict.fromkeys(world.cluster.brokers, 0)
    for partition in range(PARTITIONS):
        log = world.cluster.logs[TopicPartition("many", partition)]
        found[log.leader] += len(log.values())
    return found


def values(world: ProducerWorld) -> list[int]:
    logs = (world.cluster.logs[TopicPartition("many", p)] for p in range(PARTITIONS))
    return sorted(int(value) for log in logs for value in log.values())


def move(world: ProducerWorld, leader: int, to: int) -> list[int]:
    """The partitions of ``leader``, which another broker leads now."""
    moved = []
    for partition in range(PARTITIONS):
        tp = TopicPartition("many", partition)
        if world.cluster.logs[tp].leader == leader:
            world.cluster.move_leader(tp, to)
            moved.append(partition)
    return moved


def cluster_of_driver(world: ProducerWorld) -> Cluster:
    """The metadata that Spark's driver gives to each task."""
    producer = world.of(world.config)
    producer.start_attempt()
    send(world, producer, -1, 1)
    producer.finish_attempt()
    return producer._metadata.cluster


@contextmanager
def connections_to(world: ProducerWorld) -> Iterator[list[int]]:
    """The nodes to which connections are opened meanwhile."""
    opened: list[int] = []
    connect = world.cluster.connect

    def counted(node: int) -> FakeConnection | None:
        opened.append(node)
        return connect(node)

    vars(world.cluster)["connect"] = counted
    yield opened
    del vars(world.cluster)["connect"]


@pytest.mark.parametrize("most", [1, 2])
def test_a_task_connects_to_its_leaders_and_no_other(world, most):
    """The producer id comes from a leader as well."""
    cluster = cluster_of_driver(world)
    for task in range(2 * NODES):
        before = written(world)
        with connections_to(world) as opened:
            producer = producer_of(world, most, task, cluster)
            send(world, producer, 20 * task)
            producer.finish_attempt()
        now = written(world)
        assert sorted(opened) == [node for node in now if now[node] > before[node]]
    assert values(world) == list(range(-1, 40 * NODES))


def test_a_task_whose_first_leader_is_down_gets_its_id_elsewhere(world):
    cluster = cluster_of_driver(world)
    producer = producer_of(world, 1, 3, cluster)
    send(world, producer, 0)
    producer.finish_attempt()
    before = written(world)
    (leader,) = (node for node in before if before[node] > 1)
    world.cluster.stop_broker(leader)
    with connections_to(world) as opened:
        producer = producer_of(world, 1, 3, cluster)
        send(world, producer, 20)
        producer.finish_attempt()
    assert leader in opened
    assert values(world) == list(range(-1, 40))


def test_a_task_without_rows_connects_to_no_broker(world):
    cluster = cluster_of_driver(world)
    with connections_to(world) as opened:
        producer = producer_of(world, 1, 3, cluster)
        world.scheduler.sleep(1_000)
        assert producer.finish_attempt().rows == 0
    assert opened == []


def test_a_job_writes_everywhere_and_each_task_to_one_broker(world):
    tasks = 30
    leaders = []

    before = written(world)
    for task in range(tasks):
        producer = producer_of(world, 1, task)
        send(world, producer, 20 * task)
        producer.finish_attempt()
        now = written(world)
        leaders.append([node for node in now if now[node] > before[node]])
        before = now
    assert {len(one) for one in leaders} == {1}
    assert values(world) == list(range(20 * tasks))
    got = written(world).values()
    assert min(got) >= 60
    assert max(got) <= 140


def test_a_task_without_the_option_writes_everywhere(world):
    producer = producer_of(world, None, 0)
    for first in range(0, 500, 20):
        send(world, producer, first)
    producer.finish_attempt()
    assert min(written(world).values()) > 0


def test_a_leader_that_moves_while_a_task_runs_is_replaced(world):
    producer = producer_of(world, 1, 3)
    send(world, producer, 0)
    (leader,) = (node for node, count in written(world).items() if count)
    moved = move(world, leader, leader % NODES + 1)
    assert moved
    # Rows for the old leader are on their way; its refusals lead to new metadata.
    for round_ in range(1, 6):
        send(world, producer, 20 * round_)
    used = {node for node, count in written(world).items() if count}
    assert len(used - {leader}) in (1, 2), "the new leader of old rows, and the task's own"
    for partition in moved:
        world.cluster.move_leader(TopicPartition("many", partition), leader)
    report = producer.finish_attempt()
    assert report.rows == 120
    assert values(world) == list(range(120))


def test_a_leader_that_stops_while_a_task_runs_is_replaced(world):
    producer = producer_of(world, 1, 3)
    send(world, producer, 0)
    (leader,) = (node for node, count in written(world).items() if count)
    world.cluster.stop_broker(leader)
    for round_ in range(1, 6):
        send(world, producer, 20 * round_)
    assert producer.finish_attempt().rows == 120
    assert values(world) == list(range(120))


def test_a_leader_that_answers_nothing_for_seconds_is_left(world):
    producer = producer_of(world, 1, 3)
    send(world, producer, 0)
    (leader,) = (node for node, count in written(world).items() if count)
    world.cluster.control.delay(PRODUCE, 7_000, 3, node=leader)
    for second in range(1, 9):
        send(world, producer, 20 * second)
        world.scheduler.sleep(1_000)
    assert sum(count > 0 for count in written(world).values()) == 2
    assert producer.finish_attempt().rows == 180
    world.cluster.control.check()
    assert values(world) == list(range(180))
