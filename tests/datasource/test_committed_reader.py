"""The reader of dead letters in the simulated world: a log that changes while it is read."""

from __future__ import annotations

import pytest

from spark_kafka_sink.admin.committed_reader import CommittedReader
from spark_kafka_sink.base.errors import KafkaTimeoutError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import ProducerIdAndEpoch
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.single_record import batch_of
from tests.fakes.fake_cluster import FOREVER, FakeCluster
from tests.fakes.fake_cluster.batch_checks import read_batch
from tests.transactions.simulated_driver import DriverWorld
from tests.transactions.test_commit_log_faults import session

TP = TopicPartition("commits", 0)
pytestmark = pytest.mark.simulated


@pytest.fixture
def world() -> DriverWorld:
    cluster = FakeCluster(3)
    cluster.create_topic(TP.topic)
    return DriverWorld(cluster)


def reader(world: DriverWorld, transactions: int = 3) -> CommittedReader:
    """Of a log with records of each."""
    for _ in range(transactions):
        session(world)
    return CommittedReader(world.client({"max.block.ms": "3000"}), TP.topic)


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


def test_letters_whose_marker_is_on_its_way_are_counted_apart(world: DriverWorld) -> None:
    """The response to EndTxn comes before it; a leader that is away has it late."""
    found = reader(world, 1)
    world.cluster.marker_ms = 1_000
    session(world)
    [(tp, end)] = found.partitions()
    assert [record.offset for record in found.read(tp, end)] == [0]
    assert found.left_out == 1
    world.scheduler.sleep(2_000)
    [(tp, end)] = found.partitions()
    assert [record.offset for record in found.read(tp, end)] == [0, 2]
    assert found.left_out == 1


def test_letters_whose_marker_was_deleted_are_none(world: DriverWorld) -> None:
    """Retention deletes the marker of what was aborted, after its letters were read; the producer's
    next marker is a commit.
    """
    log = world.cluster.logs[TP]

    def written(sequence: int) -> None:
        batch = batch_of([(b"key", b"value")], 1_000, ProducerIdAndEpoch(77, 0), sequence)
        log.append(read_batch(b"".join(batch)))

    def ended(*, commit: bool) -> None:
        log.end_transaction(77, 0, commit=commit, coordinator_epoch=0, timestamp=1_000)

    def meanwhile() -> None:
        ended(commit=False)
        written(1)
        ended(commit=True)
        log.start, log.batches = 2, log.batches[2:]

    found = CommittedReader(world.client({"max.block.ms": "3000"}), TP.topic)
    written(0)
    world.cluster.at(world.scheduler.now + 200, meanwhile)
    assert [record.offset for record in found.read(TP, 4)] == [2]
    assert log.start == 2
