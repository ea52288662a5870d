"""Rows and batches at and beyond every limit of size, on this side and on the broker's."""

from __future__ import annotations

import random
import re
import time

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import DeliveryError
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.record_columns import CHUNK_BYTES, ColumnPlan
from tests.engine.rows import (
    attempt,
    check_sequences,
    config,
    dump_log,
    pieces,
    values_batch,
    write,
)
from tests.real_kafka import AT_ONCE_S, consume_topic

MB = 1_000_000
LIMIT = 20_000


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("noise", [True, False], ids=["noise", "zeros"])
def test_a_value_of_100_mb_arrives_among_small_ones(own_kafka, codec, noise):
    topic = own_kafka.unique_topic("huge")
    huge = random.Random(4).randbytes(100 * MB) if noise else bytes(100 * MB)
    values = [b"before", huge, b"after"]
    options = {
        "compression.type": codec,
        "max.request.size": 110 * MB,
        "buffer.memory": 128 * MB,
        "compression.zstd.level": 1,
    }
    columns = ColumnPlan(topic, value_column=0)
    assert write(own_kafka.bootstrap, columns, [values_batch(values)], options).rows == 3
    limits = {
        "receive.message.max.bytes": 250 * MB,
        "fetch.max.bytes": 200 * MB,
        "max.partition.fetch.bytes": 200 * MB,
    }
    # Compared, not shown: a failure would print 100 MB.
    assert _same(consume_topic(own_kafka.bootstrap, topic, options=limits).values, values)


def _same(one: list[bytes | None], other: list[bytes]) -> bool:
    return len(one) == len(other) and all(a == b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    "codec",
    [
        "none",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("gzip", "snappy", "lz4")),
        "zstd",
    ],
)
def test_batches_too_large_for_the_topic_are_split_in_sequence(kafka, consume, codec):
    """262144-byte batches for a topic that takes 20000: all rows once, in order, no hole in the
    sequences, several in flight (the warm-up has proven the producer, so five may be)."""
    topic = kafka.unique_topic("split", configs={"max.message.bytes": str(LIMIT)})
    rng = random.Random(11)
    warm = [b"warm up"]
    rows = [b"%08d" % i + rng.randbytes(190) for i in range(20_000)]
    columns = ColumnPlan(topic, value_column=0)
    producer = KafkaProducer(
        config(kafka.bootstrap, {"batch.size": 262_144, "compression.type": codec})
    )
    attempt(producer, columns, [values_batch(warm)])
    report = attempt(producer, columns, pieces(values_batch(rows), 5000))
    producer.close(10_000)
    assert report.rows == len(rows)
    assert report.splits > 0
    assert consume(topic).values == warm + rows
    if kafka.cluster is not None:
        batches = dump_log(kafka.cluster, topic)[0]
        check_sequences(batches)
        assert max(batch.size for batch in batches) <= LIMIT


def test_batches_of_several_partitions_are_split_together(kafka, consume):
    """Mixed: small batches of one partition are behind refused ones of another."""
    topic = kafka.unique_topic("split", 4, {"max.message.bytes": "5000"})
    rng = random.Random(12)
    columns = ColumnPlan(topic, value_column=0)
    rows = [b"%06d" % i + rng.randbytes(rng.choice([1, 100, 2000])) for i in range(6000)]
    batches = pieces(values_batch(rows), 300)
    report = write(kafka.bootstrap, columns, batches, {"batch.size": 60_000})
    assert report.splits > 0
    found = consume(topic)
    assert sorted(found.values) == sorted(rows)
    for values in found.by_partition().values():
        assert values == sorted(values, key=lambda value: int(value[:6]))


@pytest.mark.parametrize("idempotent", ["true", "false"])
def test_a_record_too_large_for_the_topic_is_a_clear_error(kafka, idempotent):
    topic = kafka.unique_topic("too-large", configs={"max.message.bytes": str(LIMIT)})
    producer = KafkaProducer(config(kafka.bootstrap, {"enable.idempotence": idempotent}))
    rows = [b"small", bytes(25_000), b"small"]
    began = time.monotonic()
    with pytest.raises(DeliveryError) as caught:
        attempt(producer, ColumnPlan(topic, value_column=0), [values_batch(rows)])
    producer.close(60_000)
    assert time.monotonic() - began < AT_ONCE_S
    text = str(caught.value)
    assert f"{topic}-0" in text
    assert "MESSAGE_TOO_LARGE" in text
    assert "max.message.bytes" in text
    assert re.search(r"25\d\d\d bytes", text)


@pytest.mark.parametrize(
    ("most", "size", "options"),
    [
        (1000, 800, {}),
        (
            LIMIT,
            190,
            {"enable.idempotence": "false", "max.in.flight.requests.per.connection": 1},
        ),
    ],
    ids=["down to single records", "without idempotence"],
)
def test_splits_lose_and_double_nothing(kafka, consume, most, size, options):
    topic = kafka.unique_topic("split", configs={"max.message.bytes": str(most)})
    rows = [b"%08d" % i + bytes(size) for i in range(1000)]
    columns = ColumnPlan(topic, value_column=0)
    report = write(kafka.bootstrap, columns, [values_batch(rows)], options)
    assert report.splits > 0
    assert consume(topic).values == rows


# ---- chunks --------------------------------------------------------------------------------------


def test_rows_around_the_chunk_limit_and_a_batch_of_many_chunks(kafka, consume):
    """4 MiB of input is a chunk: rows just below, at and above it, and a 64 MB Arrow batch."""
    sizes = [CHUNK_BYTES + near for near in (-2, -1, 0, 1, 2)] + [1, CHUNK_BYTES, 1, 1]
    big = {"max.request.size": 5_000_000}
    topic = kafka.unique_topic("chunks", configs={"max.message.bytes": "6000000"})
    rows = [random.Random(size).randbytes(size) for size in sizes]
    columns = ColumnPlan(topic, value_column=0)
    write(kafka.bootstrap, columns, [values_batch(rows)], {**big, "buffer.memory": 16_000_000})
    assert consume(topic).values == rows

    topic = kafka.unique_topic("batch-of-64-mb")
    rows = [b"%010d" % i + bytes(6390) for i in range(10_000)]
    columns = ColumnPlan(topic, value_column=0)
    report = write(kafka.bootstrap, columns, [values_batch(rows)])
    assert report.rows == 10_000
    assert consume(topic).values == rows


@pytest.mark.long
def test_columns_whose_bytes_lie_beyond_two_gibibytes_are_sent(kafka, consume):
    """A slice at the end of a large_binary column: offsets no 32-bit number holds."""
    import numpy as np

    zeros = np.zeros(2**31 + 2**20, np.uint8)  # pages that nobody touches cost nothing
    tail = b"the last bytes of the column"
    zeros[-len(tail) :] = np.frombuffer(tail, np.uint8)
    end = len(zeros)
    offsets = np.array([0, end - len(tail), end - len(tail), end - 10, end], np.int64)
    column = pa.Array.from_buffers(
        pa.large_binary(), 4, [None, pa.py_buffer(offsets), pa.py_buffer(zeros)]
    ).slice(1)
    topic = kafka.unique_topic("far")
    write(kafka.bootstrap, ColumnPlan(topic, value_column=0), [values_batch(column)])
    assert consume(topic).values == [b"", tail[:-10], tail[-10:]]
