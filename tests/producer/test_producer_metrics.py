"""Metrics: windows as Java's SampledStat keeps them, names, and what a whole producer measures."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import BufferExhaustedError, KafkaTimeoutError
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.network.channel.selectable import NetworkReceive, NetworkSend
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.lifecycle import Lifecycle
from spark_kafka_sink.producer.metrics.produce_recorder import ProduceRecorder
from spark_kafka_sink.producer.metrics.producer_metrics import (
    MAX_TAGS,
    METRICS,
    Gauge,
    Group,
    Measurement,
    MetricName,
    ProducerMetrics,
)
from spark_kafka_sink.producer.metrics.sensors import Sensor, Windows
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records.compression import Codec, CompressionType
from spark_kafka_sink.records.record_columns import RecordColumns
from tests.fakes.clock import FakeClock
from tests.real_kafka import RealKafka

WINDOW = 30_000
TP = TopicPartition("t", 0)


def sensor() -> Sensor:
    return Sensor(Windows(WINDOW, 2))


# ---- windows -------------------------------------------------------------------------------------


def test_a_rate_of_the_first_second_counts_empty_windows() -> None:
    one = sensor()
    one.record(310, now=0)
    assert one.rate(1_000) == 310 / 31
    assert one.event_rate(1_000) == 1 / 31


def test_a_rate_covers_the_oldest_overlapping_sample() -> None:
    one = sensor()
    one.record(10, now=0)
    one.record(20, now=WINDOW)
    assert one.rate(2 * WINDOW - 1) == pytest.approx(30 / 59.999)
    one.record(30, now=2 * WINDOW)  # a third sample: the first still overlaps the span for a while
    assert one.rate(2 * WINDOW) == 50 / 30, "the first sample saw nothing for two windows"


def test_averages_and_maxima_forget_what_is_older_than_the_span() -> None:
    one = sensor()
    one.record(100, now=0)
    one.record(2, now=WINDOW)
    one.record(4, now=WINDOW + 1)
    assert (one.average(WINDOW + 2), one.maximum(WINDOW + 2)) == (106 / 3, 100)
    assert (one.average(2 * WINDOW), one.maximum(2 * WINDOW)) == (3, 4)
    assert math.isnan(one.average(10 * WINDOW))
    assert math.isnan(one.maximum(10 * WINDOW))
    assert one.rate(10 * WINDOW) == 0
    assert (one.total, one.count) == (106, 3), "totals are since ever"


def test_many_measurements_may_come_as_one() -> None:
    many, single = sensor(), sensor()
    for value in (3, 9, 6):
        single.record(value, now=5)
    many.record(18, now=5, count=3, maximum=9)
    for ask in (Sensor.average, Sensor.maximum, Sensor.rate, Sensor.event_rate):
        assert ask(many, 1_000) == ask(single, 1_000)


def test_a_window_of_no_length_divides_by_nothing() -> None:
    one = Sensor(Windows(0, 1))
    one.record(1, now=7)
    assert one.rate(7) == 1000


@given(
    st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 1_000)), min_size=1, max_size=60),
    st.integers(1, 3),
)
def test_a_reported_value_lies_within_what_was_measured(
    steps: list[tuple[int, int]], samples: int
) -> None:
    one = Sensor(Windows(WINDOW, samples))
    now = 0
    seen: list[tuple[int, int]] = []
    for wait, value in steps:
        now += wait
        one.record(value, now)
        seen.append((now, value))
    recent = [value for at, value in seen if now - at < samples * WINDOW]
    kept = [value for at, value in seen if now - at < (samples + 1) * WINDOW]
    assert max(recent) <= one.maximum(now) <= max(kept)
    assert min(kept) <= one.average(now) <= max(kept)
    # One sample has no past to spread its first millisecond over; as in Java, that is a peak.
    assert 0 <= one.rate(now) <= sum(kept) * (1000 if samples == 1 else 1)
    assert one.total == sum(value for _, value in seen)


# ---- the table -----------------------------------------------------------------------------------


def test_no_metric_is_declared_twice() -> None:
    names = [(metric.group, metric.name) for metric in METRICS]
    assert len(set(names)) == len(names)


def test_every_measurement_and_every_gauge_is_reported() -> None:
    assert {metric.source for metric in METRICS} == {*Measurement, *Gauge}


def test_every_metric_is_on_the_page() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text()
    flags = re.DOTALL | re.MULTILINE
    sections = dict(re.findall(r"^### (producer-\S+)\n(.*?)(?=^### |\Z)", page, flags))
    assert set(sections) == {group.value for group in Group}
    for metric in METRICS:
        assert f"`{metric.name}`" in sections[metric.group.value]


# ---- what is recorded ----------------------------------------------------------------------------


class MeteredProducer:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = ProducerMetrics(self.clock, client_id="me")
        self.pool = BufferPool(100, self.clock, self.metrics)
        config = parse_producer_config({"bootstrap.servers": "127.0.0.1:9092"})
        accumulator = RecordAccumulator(config, self.clock, Lifecycle(), self.pool)
        self.recorder = ProduceRecorder(self.clock, self.metrics, accumulator)

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def batch(self, topic: str = "t", records: int = 10, size: int = 939) -> ProducerBatch:
        batch = ProducerBatch(TopicPartition(topic, 0), self.now, 1, 0, self.recorder)
        batch.append(bytes(size), records, 0)
        batch.close(Codec(CompressionType.NONE, -1))
        return batch

    def told(self, group: Group, **tags: str) -> dict[str, float]:
        wanted = {"client-id": "me"} | {key.replace("_", "-"): tags[key] for key in tags}
        return {
            name.name: value
            for name, value in self.metrics.snapshot().items()
            if name.group == group.value and dict(name.tags) == wanted
        }


def test_a_request_counts_by_producer_and_by_topic() -> None:
    world = MeteredProducer()
    old = world.batch(records=10, size=939)
    world.clock.advance(40)
    young = world.batch("u", records=30, size=1939)
    old.largest_record, young.largest_record = 250, 170
    world.clock.advance(10)
    world.recorder.request_sent([old, young], world.now)
    world.clock.advance(1_000)
    told = world.told(Group.PRODUCER)
    assert told["record-send-total"] == told["records-per-request-avg"] == 40
    assert told["record-send-rate"] == 40 / 31
    assert told["byte-total"] == 3_000
    assert (told["batch-size-avg"], told["batch-size-max"]) == (1_500, 2_000)
    assert (told["record-queue-time-avg"], told["record-queue-time-max"]) == (30, 50)
    assert (told["record-size-avg"], told["record-size-max"]) == (2878 / 40, 250)
    assert told["compression-rate-avg"] == 1
    assert math.isnan(told["request-latency-avg"])
    assert told["record-error-total"] == told["record-error-rate"] == 0
    of_u = world.told(Group.TOPIC, topic="u")
    assert (of_u["record-send-total"], of_u["byte-total"]) == (30, 2_000)
    assert of_u["compression-rate"] == 1


def test_the_compression_rate_is_what_is_left() -> None:
    world = MeteredProducer()
    batch = ProducerBatch(TP, world.now, 1, 0, world.recorder)
    batch.append(bytes(100_000), 1, 0)
    batch.close(Codec(CompressionType.GZIP, -1))
    world.recorder.request_sent([batch], world.now)
    rate = world.told(Group.PRODUCER)["compression-rate-avg"]
    assert rate == batch.size_in_bytes / 100_061 < 0.01


def test_answers_count_latency_and_throttling_by_node() -> None:
    world = MeteredProducer()
    for node, latency, throttle in ((1, 10, 0), (1, 30, 8), (2, 5, 0)):
        world.recorder.request_answered(node, latency, throttle, world.now)
    told = world.told(Group.PRODUCER)
    assert (told["request-latency-avg"], told["request-latency-max"]) == (15, 30)
    assert (told["produce-throttle-time-avg"], told["produce-throttle-time-max"]) == (8 / 3, 8)
    assert world.told(Group.NODE, node_id="node-1")["request-latency-avg"] == 20


def test_retries_splits_and_failures_count_records_once() -> None:
    world = MeteredProducer()
    batch = world.batch(records=10)
    world.recorder.batch_retried(batch)
    world.recorder.batch_split(batch)
    batch.complete_exceptionally(KafkaTimeoutError("late"))
    told = world.told(Group.PRODUCER)
    assert (told["record-retry-total"], told["record-error-total"]) == (10, 10)
    assert told["batch-split-total"] == 1
    of_topic = world.told(Group.TOPIC, topic="t")
    assert (of_topic["record-retry-total"], of_topic["record-error-total"]) == (10, 10)


def test_a_wait_for_memory_counts_and_one_in_vain_too() -> None:
    world = MeteredProducer()
    pool = world.pool
    pool.allocate(100, world.now)
    pool.allocate(0, world.now)

    def pass_time() -> None:
        world.clock.advance(250)

    with pytest.raises(BufferExhaustedError):
        pool.allocate(1, world.now, pass_time)
    pool_of = world.told(Group.PRODUCER)
    assert pool_of["bufferpool-wait-time-ns-total"] == 250e6
    assert pool_of["buffer-exhausted-total"] == 1
    # The wait is told at its end: nothing of the window has passed since, and one before it has.
    assert pool_of["bufferpool-wait-ratio"] == 250 / WINDOW


def test_polls_count_bytes_connections_and_how_long_they_waited() -> None:
    world = MeteredProducer()
    send = NetworkSend(1, [], 100)
    receive = NetworkReceive(1, memoryview(bytes(46)))
    world.metrics.polled([send, send], [receive], [1, 2], 3, 15, 5, world.now)
    world.metrics.connection_closed(2, world.now)
    told = world.told(Group.PRODUCER)
    assert (told["request-total"], told["outgoing-byte-total"], told["request-size-max"]) == (
        2, 200, 100,
    )  # fmt: skip
    assert (told["response-total"], told["incoming-byte-total"]) == (1, 50)
    assert (told["connection-creation-total"], told["connection-close-total"]) == (2, 1)
    assert told["connection-count"] == 2
    assert (told["io-wait-time-ns-avg"], told["select-total"]) == (15e6, 1)
    assert told["io-time-ns-avg"] == told["io-time-ns-total"] == 5e6
    assert told["io-ratio"] == 5 / WINDOW
    assert world.told(Group.NODE, node_id="node-1")["outgoing-byte-total"] == 200


def test_a_dynamic_topic_column_has_bounded_sensors() -> None:
    world = MeteredProducer()
    for number in range(MAX_TAGS + 5):
        world.metrics.records_retried(f"topic-{number}", 1)
    topics = {name.tags for name in world.metrics.snapshot() if name.group == Group.TOPIC.value}
    assert len(topics) == MAX_TAGS
    assert world.told(Group.PRODUCER)["record-retry-total"] == MAX_TAGS + 5


def test_topics_and_brokers_beyond_the_bound_are_added_up() -> None:
    world = MeteredProducer()
    for number in range(MAX_TAGS + 5):
        world.metrics.request_sent([world.batch(f"topic-{number}", records=2)], world.now)
        world.metrics.request_answered(number, 5, throttle_ms=0, now=world.now)
    for group in (Group.TOPIC, Group.NODE):
        tagged = {name.tags for name in world.metrics.snapshot() if name.group == group.value}
        assert len(tagged) == MAX_TAGS
    assert world.told(Group.PRODUCER)["record-send-total"] == 2 * (MAX_TAGS + 5)


# ---- a whole producer ----------------------------------------------------------------------------


LARGEST = MetricName("record-size-max", Group.PRODUCER.value, (("client-id", "measured"),))


def test_a_producer_reports_its_work(kafka: RealKafka) -> None:
    topic = kafka.unique_topic("measured", partitions=2)
    config = {"bootstrap.servers": kafka.bootstrap, "client.id": "measured"}
    with KafkaProducer(config) as producer:
        futures = [producer.send(ProducerRecord(topic, b"v" * 100)) for _ in range(50)]
        producer.flush()
        # Key, value and their lengths, with Java's 21 for a record and 61 for a batch.
        largest = producer.metrics()[LARGEST]
        assert largest == 61 + 21 + 1 + 2 + 100 + 1
        columns = RecordColumns(2, topic, value=pa.array([b"v", b"v" * 300], pa.binary()))
        producer.send_columns(columns)
        producer.flush()
        assert all(future.result(60) is not None for future in futures)
        snapshot = producer.metrics()

    def told(name: str, group: Group = Group.PRODUCER, **tags: str) -> float:
        pairs = tuple(sorted({"client-id": "measured", **tags}.items()))
        return snapshot[MetricName(name, group.value, pairs)]

    sent = 52 + told("record-retry-total")  # a topic that is new may have to be asked again
    assert told("record-send-total") == told("record-send-total", Group.TOPIC, topic=topic) == sent
    assert told("record-size-max") == largest + 200
    assert told("record-error-total") == 0
    assert told("byte-total") > 5_000
    assert told("outgoing-byte-total") > told("byte-total")
    assert told("request-total") == told("response-total") >= 3
    assert told("connection-count") >= 1
    assert told("connection-creation-total") >= 1
    assert told("buffer-available-bytes") == told("buffer-total-bytes") == 33_554_432
    assert told("requests-in-flight") == told("waiting-threads") == 0
    assert 0 <= told("metadata-age") < 60
    assert told("metadata-wait-time-ns-total") > 0
    assert 0 < told("io-wait-ratio") <= 1
    assert 0 <= told("io-ratio") <= 1
    assert told("request-latency-max") >= told("request-latency-avg") >= 0


def test_a_metric_is_written_with_its_group_and_tags():
    """As Java's tools name it."""
    name = MetricName(
        "record-send-rate", "producer-metrics", (("client-id", "p-1"), ("topic", "t"))
    )
    assert str(name) == "producer-metrics:record-send-rate [client-id=p-1, topic=t]"
    assert str(MetricName("count", "group")) == "group:count []"
