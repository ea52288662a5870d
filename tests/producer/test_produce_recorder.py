"""ProduceRecorder and ProduceReport: what an attempt did, counted once."""

import pickle
from dataclasses import dataclass, field, fields, replace

import pytest

from spark_kafka_sink.base.counts import LARGEST, merged_counts
from spark_kafka_sink.base.errors import DeliveryError, KafkaError, KafkaTimeoutError
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.metrics.produce_recorder import ProduceRecorder
from spark_kafka_sink.producer.metrics.produce_report import (
    LATENCY_BOUNDS_MS,
    NodeReport,
    ProduceReport,
)
from spark_kafka_sink.producer.metrics.producer_metrics import Measurement, ProducerMetrics
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records.compression import Codec, CompressionType
from spark_kafka_sink.records.record_batch import parse_header
from tests.fakes.accumulator_world import TP0, TP1, World


def recorder_of(world: World, *, transactional: bool = False) -> ProduceRecorder:
    metrics = ProducerMetrics(world.clock)
    return ProduceRecorder(world.clock, metrics, world.accumulator, transactional=transactional)


def batch_of(recorder: ProduceRecorder, tp: TopicPartition, records: int) -> ProducerBatch:
    batch = ProducerBatch(tp, 0, 1, 0, recorder)
    batch.append(bytes(1000), records, 0)
    batch.close(Codec(CompressionType.GZIP, -1))
    return batch


def test_acknowledged_batches_count_rows_bytes_and_offsets():
    recorder = recorder_of(World())
    first = batch_of(recorder, TP0, 5)
    second, duplicate = batch_of(recorder, TP0, 3), batch_of(recorder, TP1, 2)
    first.complete(100, -1)
    second.complete(107, -1)
    duplicate.complete(-1, -1)  # its offset is not known
    recorder.batches_done([first, second, duplicate])
    report = recorder.report()
    assert (report.rows, report.batches) == (10, 3)
    assert report.bytes == 3 * first.size_in_bytes
    assert report.batch_bytes == 3 * 1061
    assert report.offsets == {TP0: (100, 109)}
    size = first.size_in_bytes
    assert report.by_partition == {TP0: (8, 2 * size, 0), TP1: (2, size, 0)}
    assert report.rows_without_offset == 2


def test_offsets_cover_batches_that_come_in_any_order():
    """Two requests of one partition, of which the later one is answered first."""
    recorder = recorder_of(World())
    batches = [batch_of(recorder, TP0, 5) for _ in range(3)]
    for batch, offset in zip(batches, (105, 100, 120), strict=True):
        batch.complete(offset, -1)
        recorder.batches_done([batch])
    assert recorder.report().offsets == {TP0: (100, 124)}
    inner = batch_of(recorder, TP0, 5)
    inner.complete(110, -1)
    recorder.batches_done([inner])
    assert recorder.report().offsets == {TP0: (100, 124)}


def test_checksums_of_acknowledged_batches_add_up():
    """The sum is of what brokers have: a batch that failed is not in it, a retry counts once."""
    recorder = recorder_of(World(), transactional=True)
    batches = [batch_of(recorder, TP0, count) for count in (5, 3, 1)]
    for number, batch in enumerate(batches):
        batch.set_producer_state(7 + number, 2, 0, transactional=True)
    sums = [parse_header(b"".join(batch.buffers)).checksum for batch in batches]
    first, second, failed = batches
    first.drained(0)
    first.reenqueued(0)
    first.complete(0, -1)
    second.complete(5, -1)
    failed.complete_exceptionally(KafkaTimeoutError("late"))
    recorder.batches_done([first, second])
    report = recorder.report()
    assert report.by_partition[TP0][2] == sums[0] + sums[1]
    assert report.producer_ids == {(7, 2), (8, 2)}


def test_the_first_failed_batch_of_columns_fails_the_producer():
    world = World()
    recorder = recorder_of(world)
    one, two = batch_of(recorder, TP0, 1), batch_of(recorder, TP1, 1)
    late = KafkaTimeoutError("late")
    one.complete_exceptionally(late)
    two.complete_exceptionally(KafkaTimeoutError("a consequence"))
    with pytest.raises(DeliveryError, match="test-0: 1 rows were not acknowledged") as caught:
        world.accumulator.lifecycle.check()
    assert caught.value.__cause__ is late


def test_a_failed_batch_of_a_transaction_spares_the_producer():
    world = World()
    recorder = recorder_of(world, transactional=True)
    batch_of(recorder, TP0, 3).complete_exceptionally(KafkaTimeoutError("late"))
    world.accumulator.lifecycle.check()
    assert recorder.failed_alone[0] == 3


def test_requests_are_counted_by_node():
    recorder = recorder_of(World())
    for latency in (5, 9):
        recorder.request_sent([], now=0)
        recorder.request_answered(1, latency, throttle_ms=3, now=9)
    recorder.request_sent([], now=0)
    report = recorder.report()
    assert report.requests == 3
    assert report.throttle_ms == 6
    (node,) = report.nodes.values()
    assert (node.requests, node.total_latency_ms, node.max_latency_ms) == (2, 14, 9)


def test_latencies_are_counted_by_their_bounds():
    """A bound belongs to its bucket, and what is above all of them to the last one."""
    recorder = recorder_of(World())
    for latency in (0, 1, 2, 3, 30_000, 30_001, 10**9):
        recorder.request_answered(1, latency, throttle_ms=0, now=9)
    counts = dict(
        zip((*LATENCY_BOUNDS_MS, "above"), recorder.report().nodes[1].latencies, strict=True)
    )
    assert {bound: n for bound, n in counts.items() if n} == {
        1: 2,
        2: 1,
        5: 1,
        30_000: 1,
        "above": 2,
    }
    twice = ProduceReport.merge([recorder.report(), recorder.report()]).nodes[1]
    assert sum(twice.latencies) == twice.requests == 14


def test_rows_and_bytes_are_counted_by_partition():
    one = ProduceReport(by_partition={TP0: (1, 10, 5), TP1: (2, 20, 6)}, producer_ids={(1, 0)})
    two = ProduceReport(
        by_partition={TP1: (3, 30, 7)}, producer_ids={(1, 1)}, topic_ids={"t": "id"}
    )
    merged = ProduceReport.merge([one, two, ProduceReport()])
    assert merged.by_partition == {TP0: (1, 10, 5), TP1: (5, 50, 13)}
    assert (merged.producer_ids, merged.topic_ids) == ({(1, 0), (1, 1)}, {"t": "id"})


def test_reports_of_many_tasks_add_up_and_travel():
    one = ProduceReport(
        10, 100, 2, 200, 3, 1, 0, 0, 5, {1: NodeReport(2, 8, 6)}, {TP0: (5, 14)}, 4, 30, 20, 7, 0, 2
    )
    two = ProduceReport(
        1, 10, 1, 20, 1, 0, 1, 1, 0, {1: NodeReport(1, 9, 9), 2: NodeReport(1, 1, 1)},
        {TP0: (2, 2)},
        0, 9, 9, 1, 3, 1, "cluster",
    )  # fmt: skip
    merged = ProduceReport.merge(pickle.loads(pickle.dumps([one, two])))
    assert merged == ProduceReport(
        11, 110, 3, 220, 4, 1, 1, 1, 5,
        {1: NodeReport(3, 17, 9), 2: NodeReport(1, 1, 1)},
        {TP0: (2, 14)},
        4, 39, 20, 8, 3, 3, "cluster",
    )  # fmt: skip
    assert ProduceReport.merge([]) == ProduceReport()


def test_a_report_is_a_copy_of_the_counts():
    recorder = recorder_of(World())
    before = recorder.report()
    recorder.request_answered(1, 5, throttle_ms=0, now=9)
    batch = batch_of(recorder, TP0, 5)
    batch.complete(100, -1)
    recorder.batches_done([batch])
    assert recorder.report().rows == 5
    assert before == ProduceReport()


def test_every_counter_is_merged():
    counters = {f.name: 1 for f in fields(ProduceReport) if f.type == "int"}
    both = ProduceReport.merge([ProduceReport(**counters)] * 2)
    assert {name: getattr(both, name) for name in counters} == {
        name: 1 if name.startswith("max_") else 2 for name in counters
    }


@dataclass
class Mixed:
    rows: int = 3
    late: bool = False
    ratio: float = 0.0
    bytes: int = 0
    most: int = field(default=0, metadata=LARGEST)


def test_a_bool_and_a_ratio_are_no_counts():
    """They have no sum, although ``False == 0.0 == 0``."""
    reports = [Mixed(late=True, ratio=0.5, bytes=1, most=1), Mixed(ratio=0.5, bytes=2, most=2)]
    assert merged_counts(Mixed, reports) == {"bytes": 3, "most": 2}
    assert merged_counts(Mixed, []) == {"bytes": 0, "most": 0}


def test_an_attempt_counts_its_own_waits_only():
    recorder = recorder_of(World())
    metrics = recorder._metrics
    metrics.buffer_waited(100, 0, exhausted=False)
    recorder.start_attempt()
    metrics.buffer_waited(20, 0, exhausted=False)
    metrics.record(Measurement.METADATA_WAIT, 3, 0)
    recorder.batch_retried(batch_of(recorder, TP0, 7))
    report = recorder.report("cluster")
    assert (report.buffer_wait_ms, report.metadata_wait_ms, report.retried_rows) == (20, 3, 7)
    assert report.cluster_id == "cluster"


def test_the_last_answer_that_caused_a_retry_is_kept_by_broker():
    recorder = recorder_of(World())
    recorder.request_answered(1, 5, 0, 0)
    for words, node in (("first", 2), ("second", 2), ("other", 1)):
        recorder.batch_retried(batch_of(recorder, TP0, 7), KafkaError(words), node)
    nodes = recorder.report().nodes
    assert nodes == {
        1: replace(NodeReport().after_request(5), last_answer=f"{TP0}: other"),
        2: NodeReport(0, 0, 0, f"{TP0}: second"),
    }
    merged = ProduceReport.merge([recorder.report(), ProduceReport(nodes={2: NodeReport(1, 1, 1)})])
    assert merged.nodes[2] == NodeReport(1, 1, 1, f"{TP0}: second")
