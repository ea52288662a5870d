"""Options at their ends, memory that is short, partitions and topics in every number."""

from __future__ import annotations

import random
import time
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.record_columns import ColumnPlan
from tests.engine.rows import attempt, config, send, values_batch, write

# ---- memory --------------------------------------------------------------------------------------


def test_buffer_memory_of_16_kib_carries_values_of_15000_bytes(kafka, consume):
    """As Spark's own test has it: every row waits until the one before is acknowledged."""
    topic = kafka.unique_topic("tiny")
    rows = [b"%03d" % i + bytes(14_997) for i in range(60)]
    options = {"buffer.memory": 16_384, "max.block.ms": 20_000}
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
    write(kafka.bootstrap, columns, [batch.slice(i, 5000) for i in range(0, 40_000, 5000)], options)
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
    partition = pa.array([i % 2 for i in range(len(rows))], pa.int32())
    batch = pa.RecordBatch.from_arrays([pa.array(rows, pa.binary()), partition], names=["v", "p"])
    columns = ColumnPlan(topic, value_column=0, partition_column=1)
    pieces = [batch.slice(i, 500) for i in range(0, len(rows), 500)]
    report = write(kafka.bootstrap, columns, pieces, options)
    assert report.rows == len(rows)
    found = consume(topic)
    assert found.by_partition() == {0: rows[0::2], 1: rows[1::2]}


# ---- partitions ----------------------------------------------------------------------------------


def create_topics(bootstrap: str, names: list[str]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        made.result(60)


def read_all(bootstrap: str, topics: list[str], rows: int) -> dict[str, list[bytes]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "all", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
        found: dict[str, list[bytes]] = defaultdict(list)
        got = 0
        deadline = time.monotonic() + 60
        while got < rows:
            assert time.monotonic() < deadline, f"only {got} of {rows} rows are there"
            messages = consumer.consume(20_000, timeout=5)
            for message in messages:
                assert message.error() is None, message.error()
                found[message.topic()].append(message.value())
            got += len(messages)
        return found
    finally:
        consumer.close()


@pytest.mark.long
def test_hundreds_of_topics_by_column(kafka):
    names = [f"by-column-{random.randrange(2**40):x}-{i}" for i in range(500)]
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
    pieces = [batch.slice(i, 3000) for i in range(0, count, 3000)]
    assert write(kafka.bootstrap, columns, pieces).rows == count
    wanted: dict[str, list[bytes]] = defaultdict(list)
    for value, topic in zip(values, chosen, strict=True):
        wanted[names[topic]].append(value)
    assert read_all(kafka.bootstrap, names, count) == wanted


@pytest.mark.long
def test_a_thousand_partitions_and_99_of_100_rows_to_one_of_them(kafka, consume):
    topic = kafka.unique_topic("wide", 1000)
    count = 50_000
    partitions = [7 if i % 100 else (i // 100 * 13) % 1000 for i in range(count)]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([b"%06d" % i + bytes(100) for i in range(count)], pa.binary()),
            pa.array(partitions, pa.int32()),
        ],
        names=["value", "partition"],
    )
    columns = ColumnPlan(topic, value_column=0, partition_column=1)
    pieces = [batch.slice(i, 5000) for i in range(0, count, 5000)]
    assert write(kafka.bootstrap, columns, pieces).rows == count
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
    report = attempt(
        producer, columns, [values_batch(rows[i : i + 5000]) for i in range(0, 40_000, 5000)]
    )
    producer.close(10_000)
    assert report.bytes / report.batches > size / 2


def to_partition(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([b"x"], pa.binary()), pa.array([number], pa.int32())],
        names=["value", "partition"],
    )


def test_a_partition_that_was_added_a_moment_ago_is_used(kafka, consume):
    """A warm producer's metadata may be minutes old; Java asks again before it refuses a row."""
    from confluent_kafka.admin import AdminClient, NewPartitions

    topic = kafka.unique_topic("grows", 2)
    columns = ColumnPlan(topic, value_column=0, partition_column=1)
    producer = KafkaProducer(config(kafka.bootstrap))
    attempt(producer, columns, [to_partition(1)])
    producer.park()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    while len(admin.list_topics(topic, 20).topics[topic].partitions) < 4:
        time.sleep(0.02)
    attempt(producer, columns, [to_partition(3)])
    producer.close(10_000)
    assert consume(topic).partitions == [1, 3]


def test_a_short_delivery_timeout_spares_a_batch_never_sent(kafka, consume):
    """The writer computes longer than that between two rows, and is not seen to wait."""
    topic = kafka.unique_topic("short")
    columns = ColumnPlan(topic, value_column=0)
    options = {"delivery.timeout.ms": 5_000, "request.timeout.ms": 4_000}
    producer = KafkaProducer(config(kafka.bootstrap, options))
    attempt(producer, columns, [values_batch([b"1"])])
    producer.start_attempt()
    send(producer, columns, [values_batch([b"2"])])
    time.sleep(5.1)
    send(producer, columns, [values_batch([b"3"])])
    assert producer.finish_attempt().rows == 2
    producer.close(10_000)
    assert consume(topic).values == [b"1", b"2", b"3"]
