"""Options at their ends, memory that is short, partitions and topics in every number."""

from __future__ import annotations

import random
import time
import uuid
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.record_columns import ColumnPlan
from tests.engine.rows import attempt, config, pieces, send, to_partitions, values_batch, write
from tests.waiting import PATIENCE

# ---- memory --------------------------------------------------------------------------------------


def test_buffer_memory_of_16_kib_carries_values_of_15000_bytes(kafka, consume):
    """As Spark's own test has it: every row waits until the one before is acknowledged."""
    topic = kafka.unique_topic("tiny")
    rows = [b"%03d" % i + bytes(14_997) for i in range(60)]
    options = {"buffer.memory": 16_384}
    write(kafka.bootstrap, ColumnPlan(topic, value_column=0), [values_batch(rows)], options)
    assert consume(topic).values == rows


@pytest.mark.parametrize(("partitions", "codec"), [(12, "none"), (100, "zstd")])
def test_a_megabyte_of_memory_is_enough_for_many_partitions(kafka, consume, partitions, codec):
    """Open batches alone could hold all of it many times over."""
    topic = kafka.unique_topic("little", partitions)
    rng = random.Random(3)
    rows = [b"%06d" % i + rng.randbytes(200) for i in range(40_000)]
    keys = pa.array([b"%d" % (i % 977) for i in range(len(rows))], pa.binary())
    batch = pa.RecordBatch.from_arrays([pa.array(rows, pa.binary()), keys], names=["value", "key"])
    columns = ColumnPlan(topic, value_column=0, key_column=1)
    options = {"buffer.memory": 1_048_576, "compression.type": codec}
    write(kafka.bootstrap, columns, pieces(batch, 5000), options)
    found = consume(topic)
    assert sorted(found.values) == rows
    for values in found.by_partition().values():
        assert values == sorted(values)


# ---- options -------------------------------------------------------------------------------------

PLAIN = {"enable.idempotence": "false"}


@pytest.mark.parametrize(
    "options",
    [
        {"acks": "1", **PLAIN, "max.in.flight.requests.per.connection": 1},
        {"acks": "0", **PLAIN},
        {**PLAIN, "max.in.flight.requests.per.connection": 1},
        {"max.in.flight.requests.per.connection": 1},
        {"linger.ms": 0},
        {"linger.ms": 1000},
        {"batch.size": 0},
        {"batch.size": 1},
        {"batch.size": 1_048_576},
        {"batch.size": 1_048_576, "compression.type": "lz4"},
        {"retries": 0},
        {"send.buffer.bytes": 4096, "receive.buffer.bytes": 1024},
    ],
    ids=lambda options: " ".join(f"{k}={v}" for k, v in options.items()),
)
def test_every_row_arrives_once_in_order_with(kafka, consume, options):
    topic = kafka.unique_topic("options", 2)
    rows = [b"%06d" % i + bytes(i % 50) for i in range(3000)]
    batch = to_partitions(rows, [i % 2 for i in range(len(rows))])
    columns = ColumnPlan(topic, value_column=0, partition_column=1)
    report = write(kafka.bootstrap, columns, pieces(batch, 500), options)
    assert report.rows == len(rows)
    found = consume(topic)
    assert found.by_partition() == {0: rows[0::2], 1: rows[1::2]}


# ---- partitions ----------------------------------------------------------------------------------


def create_topics(bootstrap: str, names: list[str], partitions: int = 1) -> None:
    """Return when the controller has answered, with leaders that may not know yet."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, partitions) for name in names]).values():
        made.result(60)


def fresh(count: int) -> list[str]:
    return [f"fresh-{uuid.uuid4().hex[:12]}-{i}" for i in range(count)]


@pytest.mark.parametrize("seeded", [False, True], ids=["asks for metadata", "shipped metadata"])
def test_a_topic_written_right_after_its_creation_has_every_row(kafka, consume, seeded):
    """The case in which kafka-clients 3.9 loops on OUT_OF_ORDER_SEQUENCE_NUMBER (1 in 10)."""
    partitions, rows = 13, [b"%d" % i for i in range(2_600)]
    batch = to_partitions(rows, [i % partitions for i in range(len(rows))])
    for topic in fresh(10):
        create_topics(kafka.bootstrap, [topic], partitions)
        cluster = None
        if seeded:
            with KafkaProducer(config(kafka.bootstrap)) as scout:
                cluster = scout._metadata.await_topics([topic], scout._clock.now_ms() + 10_000)
        columns = ColumnPlan(topic, value_column=0, partition_column=1)
        # Small batches: each partition has several in line behind the first.
        small = config(kafka.bootstrap, {"batch.size": 300})
        with KafkaProducer(small, cluster=cluster) as producer:
            report = attempt(producer, columns, pieces(batch, 650))
        assert report.rows == len(rows)
        assert report.batches >= 3 * partitions
        assert consume(topic).by_partition() == {p: rows[p::partitions] for p in range(partitions)}


@pytest.mark.long
def test_hundreds_of_topics_by_column(kafka, consume):
    names = fresh(500)
    create_topics(kafka.bootstrap, names)
    count = 30_000
    rng = np.random.default_rng(1)
    chosen = rng.integers(0, len(names), count)
    values = [b"%d" % i for i in range(count)]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values, pa.binary()), pa.array([names[i] for i in chosen], pa.string())],
        names=["value", "topic"],
    )
    columns = ColumnPlan(value_column=0, topic_column=1)
    report = write(kafka.bootstrap, columns, pieces(batch, 3000))
    wanted: dict[str, list[bytes]] = defaultdict(list)
    for value, topic in zip(values, chosen, strict=True):
        wanted[names[topic]].append(value)
    ends = {tp.topic: last + 1 for tp, (_, last) in report.offsets.items()}
    assert ends == {topic: len(found) for topic, found in wanted.items()}
    for topic in names[::50]:
        assert consume(topic).values == wanted[topic]


@pytest.mark.long
def test_a_thousand_partitions_and_99_of_100_rows_to_one_of_them(kafka, consume):
    topic = kafka.unique_topic("wide", 1000)
    count = 50_000
    partitions = [7 if i % 100 else (i // 100 * 13) % 1000 for i in range(count)]
    batch = to_partitions([b"%06d" % i + bytes(100) for i in range(count)], partitions)
    columns = ColumnPlan(topic, value_column=0, partition_column=1)
    assert write(kafka.bootstrap, columns, pieces(batch, 5000)).rows == count
    found = consume(topic).by_partition()
    assert sum(map(len, found.values())) == count
    wanted: dict[int, list[int]] = defaultdict(list)
    for row, partition in enumerate(partitions):
        wanted[partition].append(row)
    assert {p: [int(value[:6]) for value in values] for p, values in found.items()} == wanted


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_tiny_batches_teach_nothing_about_how_full_ones_compress(kafka, codec):
    """A few bytes grow under compression; the next large micro-batch must not pay for that with
    batches of a third of batch.size."""
    topic = kafka.unique_topic("ratio")
    columns = ColumnPlan(topic, value_column=0)
    size = 65_536
    options = {"compression.type": codec, "batch.size": size}
    producer = KafkaProducer(config(kafka.bootstrap, options))
    for i in range(5):
        attempt(producer, columns, [values_batch([b"%d" % i])])
    rng = random.Random(5)
    rows = [b"%06d " % i + rng.randbytes(60).hex().encode() for i in range(40_000)]
    report = attempt(producer, columns, pieces(values_batch(rows), 5000))
    producer.close(10_000)
    assert report.bytes / report.batches > size / 2


def test_a_partition_that_was_added_a_moment_ago_is_used(kafka, consume):
    """A warm producer's metadata may be minutes old; Java asks again before it refuses a row."""
    from confluent_kafka.admin import AdminClient, NewPartitions

    topic = kafka.unique_topic("grows", 2)
    columns = ColumnPlan(topic, value_column=0, partition_column=1)
    producer = KafkaProducer(config(kafka.bootstrap))
    attempt(producer, columns, [to_partitions([b"x"], [1])])
    producer.park()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    while len(admin.list_topics(topic, 20).topics[topic].partitions) < 4:
        time.sleep(0.02)
    attempt(producer, columns, [to_partitions([b"x"], [3])])
    producer.close(10_000)
    assert consume(topic).partitions == [1, 3]


def test_a_short_delivery_timeout_spares_a_batch_never_sent(kafka, consume):
    """The writer computes longer than that between two rows, and is not seen to wait."""
    topic = kafka.unique_topic("short")
    columns = ColumnPlan(topic, value_column=0)
    delivery_ms = int(5_000 * PATIENCE)
    options = {"delivery.timeout.ms": delivery_ms, "request.timeout.ms": delivery_ms - 1_000}
    producer = KafkaProducer(config(kafka.bootstrap, options))
    attempt(producer, columns, [values_batch([b"1"])])
    producer.start_attempt()
    send(producer, columns, [values_batch([b"2"])])
    time.sleep(delivery_ms / 1000 + 0.1)
    send(producer, columns, [values_batch([b"3"])])
    assert producer.finish_attempt().rows == 2
    producer.close(10_000)
    assert consume(topic).values == [b"1", b"2", b"3"]
