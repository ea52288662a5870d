"""The count of one Fetch response: batches that are before the range, and transactions that end
there.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spark_kafka_sink.admin.partition_count import RangeCount
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import FetchedPartition
from spark_kafka_sink.protocol.producer_ids import NO_PRODUCER_ID, ProducerIdAndEpoch
from spark_kafka_sink.records.single_record import batch_of
from tests.fakes.fake_cluster.batch_checks import read_batch
from tests.fakes.fake_cluster.partition_log import PartitionLog

TP = TopicPartition("orders", 0)
ROWS = [(b"key", b"a"), (b"key", b"b")]


@pytest.fixture
def log() -> PartitionLog:
    return PartitionLog(leader=1, replicas=(1,), isr={1})


def write(log: PartitionLog, producer: ProducerIdAndEpoch, sequence: int) -> None:
    log.append(read_batch(b"".join(batch_of(ROWS, 1_000, producer, sequence))))


def end(log: PartitionLog, producer: int, *, commit: bool) -> None:
    log.end_transaction(producer, 0, commit=commit, coordinator_epoch=0, timestamp=1_000)


def whole(log: PartitionLog, aborted: Sequence[tuple[int, int]] = ()) -> FetchedPartition:
    records = memoryview(b"".join(one.data for one in log.batches))
    return FetchedPartition(ErrorCode.NONE, 0, records, aborted=tuple(aborted))


def test_a_marker_before_the_range_ends_its_transaction(log: PartitionLog) -> None:
    """A response may begin with batches before the requested offset. Here they are an aborted
    transaction and its marker. A committed transaction of the same producer follows.
    """
    ours = ProducerIdAndEpoch(7, 0)
    write(log, ours, 0)
    end(log, 7, commit=False)
    begin = log.end
    write(log, ours, 2)
    end(log, 7, commit=True)
    found = RangeCount(TP, begin, log.end - 1, frozenset({(7, 0)}))
    assert found.take(whole(log, [(7, 0)]))
    assert (found.rows, found.aborted_rows, found.first_batch) == (2, 0, begin)
    assert found.is_done


def test_rows_without_a_producer_id_have_no_sequence(log: PartitionLog) -> None:
    """As of a producer without idempotence: each of its batches has the sequence -1."""
    for _ in range(2):
        write(log, NO_PRODUCER_ID, -1)
    found = RangeCount(TP, 0, log.end - 1, None, from_zero=True)
    assert found.take(whole(log))
    assert (found.rows, found.hole_rows, found.repeated_at) == (4, 0, -1)
    assert found.next_sequence == {}
