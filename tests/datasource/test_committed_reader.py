"""The reader of dead letters in the simulated world: a log that changes while it is read."""

from __future__ import annotations

import pytest

from spark_kafka_sink.admin.committed_reader import CommittedReader
from spark_kafka_sink.base.errors import CorruptRecordError, KafkaTimeoutError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import NO_PRODUCER_ID, ProducerIdAndEpoch
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.record_batch import write_header
from spark_kafka_sink.records.single_record import batch_of, record_bytes
from tests.fakes.fake_cluster import FOREVER
from tests.fakes.fake_cluster.batch_checks import read_batch
from tests.simulation.scene import Scene, scene_of
from tests.simulation.spark_world import LOG_TOPIC
from tests.transactions.test_commit_log_faults import session

TP = TopicPartition(LOG_TOPIC, 0)


@pytest.fixture
def scene() -> Scene:
    return scene_of()


def reader(scene: Scene, transactions: int = 3) -> CommittedReader:
    """Of a log with records of each."""
    for _ in range(transactions):
        session(scene)
    return CommittedReader(scene.client(max_block_ms=3_000), TP.topic)


def test_what_comes_later_is_not_read(scene: Scene) -> None:
    found = reader(scene)
    [(tp, end)] = found.partitions()
    session(scene)
    assert [record.offset for record in found.read(tp, end)] == [0, 2, 4]


def test_a_log_that_starts_later_is_read_from_there(scene: Scene) -> None:
    found = reader(scene)
    [(tp, end)] = found.partitions()
    scene.cluster.logs[TP].start = 2
    assert [record.offset for record in found.read(tp, end)] == [2, 4]


def test_a_slow_caller_is_no_time_out(scene: Scene) -> None:
    found = reader(scene)
    [(tp, end)] = found.partitions()
    for _ in found.read(tp, end):
        scene.scheduler.sleep(5_000)


@pytest.mark.parametrize("behind", [0, 1, 1_000_000])
def test_a_log_that_was_cut_is_one_error(scene: Scene, behind: int) -> None:
    """By an unclean election: nothing comes before the end, and nothing ever will."""
    found = reader(scene)
    fetches = scene.control.delay(ApiKey.FETCH, 0, FOREVER)
    end = scene.cluster.logs[TP].end
    scene.cluster.logs[TP].batches.pop()
    start = scene.scheduler.now
    with pytest.raises(KafkaTimeoutError, match="commits-0"):
        list(found.read(TP, end + behind))
    assert scene.scheduler.now - start < 4_000
    assert fetches.fired < 100


def test_letters_whose_marker_is_on_its_way_are_counted_apart(scene: Scene) -> None:
    """The response to EndTxn comes before it; a leader that is away has it late."""
    found = reader(scene, 1)
    scene.cluster.marker_ms = 1_000
    session(scene)
    [(tp, end)] = found.partitions()
    assert [record.offset for record in found.read(tp, end)] == [0]
    assert found.left_out == 1
    scene.scheduler.sleep(2_000)
    [(tp, end)] = found.partitions()
    assert [record.offset for record in found.read(tp, end)] == [0, 2]
    assert found.left_out == 1


def test_letters_whose_marker_was_deleted_are_none(scene: Scene) -> None:
    """Retention deletes the marker of what was aborted, after its letters were read; the producer's
    next marker is a commit.
    """
    log = scene.cluster.logs[TP]

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

    found = CommittedReader(scene.client(max_block_ms=3_000), TP.topic)
    written(0)
    scene.cluster.at(scene.scheduler.now + 200, meanwhile)
    assert [record.offset for record in found.read(TP, 4)] == [2]
    assert log.start == 2


GOOD = record_bytes(0, 0, b"key", b"value")


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (GOOD[:-1], "record 0 .* runs past the end"),
        (bytes([GOOD[0] - 2, *GOOD[1:-1]]), "record 0 .* runs past the end"),
        (GOOD[:-7] + b"\x14" + GOOD[-6:] + GOOD, "record 0 .* runs past the end"),
        (bytes([GOOD[0] + 2]) + GOOD[1:] + b"\0", "1 bytes follow the headers"),
        (b"\x01", "record 0 .* runs past the end"),
        (GOOD * 2, "bytes follow the 1 records"),
    ],
    ids=["cut", "no headers", "a value into the next", "more", "negative", "uncounted"],
)
def test_a_damaged_record_is_an_error(scene: Scene, records: bytes, words: str) -> None:
    """No field goes beyond its record, although the batch has more bytes."""
    header, _ = write_header(
        [records],
        codec=Codec(),
        record_count=1,
        base_timestamp=1_000,
        max_timestamp=1_000,
        producer_id=NO_PRODUCER_ID.producer_id,
        producer_epoch=-1,
        base_sequence=-1,
        transactional=False,
    )
    scene.cluster.logs[TP].append(read_batch(header + records))
    found = CommittedReader(scene.client(max_block_ms=3_000), TP.topic)
    with pytest.raises(CorruptRecordError, match=words):
        list(found.read(TP, 1))
