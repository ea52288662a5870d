"""The reader of dead letters in the simulated world: a log that changes while it is read."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import KafkaTimeoutError
from spark_kafka_sink.datasource.dead_letters.letter_reader import LetterReader
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from tests.fakes.fake_cluster import FOREVER, FakeCluster
from tests.transactions.simulated_driver import DriverWorld
from tests.transactions.test_commit_log_faults import session

TP = TopicPartition("commits", 0)
pytestmark = pytest.mark.simulated


@pytest.fixture
def world() -> DriverWorld:
    cluster = FakeCluster(3)
    cluster.create_topic(TP.topic)
    return DriverWorld(cluster)


def reader(world: DriverWorld) -> LetterReader:
    """Of a log with three transactions' records."""
    for _ in range(3):
        session(world)
    return LetterReader(world.client({"max.block.ms": "3000"}), TP.topic)


def test_what_comes_later_is_not_read(world: DriverWorld) -> None:
    found = reader(world)
    [(tp, end)] = found.partitions()
    session(world)
    assert [record.offset for record in found.read(tp, end)] == [0, 2, 4]


def test_a_log_that_starts_later_is_read_from_there(world: DriverWorld) -> None:
    found = reader(world)
    [(tp, end)] = found.partitions()
    world.cluster.logs[TP].start = 2
    assert [record.offset for record in found.read(tp, end)] == [2, 4]


def test_a_slow_caller_is_no_time_out(world: DriverWorld) -> None:
    found = reader(world)
    [(tp, end)] = found.partitions()
    for _ in found.read(tp, end):
        world.scheduler.sleep(5_000)


@pytest.mark.parametrize("behind", [0, 1, 1_000_000])
def test_a_log_that_was_cut_is_one_error(world: DriverWorld, behind: int) -> None:
    """By an unclean election: nothing comes before the end, and nothing ever will."""
    found = reader(world)
    fetches = world.cluster.control.delay(ApiKey.FETCH, 0, FOREVER)
    end = world.cluster.logs[TP].end
    world.cluster.logs[TP].batches.pop()
    start = world.scheduler.now
    with pytest.raises(KafkaTimeoutError, match="commits-0"):
        list(found.read(TP, end + behind))
    assert world.scheduler.now - start < 4_000
    assert fetches.fired < 100
