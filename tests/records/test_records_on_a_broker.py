"""What we encode, compressed in every way, is what a real broker stores and others read."""

import numpy as np
import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2 as murmur2_of_one_key

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.record_columns import ColumnPlan, from_record_batch

BASE = 1_700_000_000_000
ROWS = 20_000
PARTITIONS = 3


def batch() -> pa.RecordBatch:
    """Rows with and without key, value and headers, of sizes around every varint's border."""
    rng = np.random.default_rng(5)
    sizes = rng.choice([0, 1, 50, 63, 64, 127, 300], ROWS)
    sizes[7] = 70_000
    value = [None if i % 97 == 0 else (b"%d:" % i) + b"v" * int(n) for i, n in enumerate(sizes)]
    key = [b"" if i % 89 == 0 else b"key %d" % (i % 500) for i in range(ROWS)]
    headers = [
        None if i % 3 else [("n", b"%d" % i), ("n", None), ("empty", b"")] for i in range(ROWS)
    ]
    times = rng.integers(BASE, BASE + 10**7, ROWS)
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array(value, pa.binary()),
            "key": pa.array(key, pa.binary()),
            "headers": pa.array(headers, pa.map_(pa.string(), pa.binary())),
            "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
        }
    )


# An uncompressed topic makes the broker (Java) unpack every batch and write it anew.
@pytest.mark.parametrize("stored", ["producer", "uncompressed"])
@pytest.mark.parametrize(
    "options",
    [
        {"compression.type": "none"},
        {"compression.type": "gzip"},
        {"compression.type": "gzip", "compression.gzip.level": "9"},
        {"compression.type": "snappy"},
        {"compression.type": "lz4"},
        {"compression.type": "lz4", "compression.lz4.level": "12"},
        {"compression.type": "zstd"},
        {"compression.type": "zstd", "compression.zstd.level": "-5"},
    ],
    ids=lambda o: "-".join(o.values()),
)
def test_every_codec_is_read_by_the_broker_and_by_librdkafka(kafka, consume, options, stored):
    topic = kafka.unique_topic("codec", PARTITIONS, {"compression.type": stored})
    rows = batch()
    plan = ColumnPlan(topic, value_column=0, key_column=1, headers_column=2, timestamp_column=3)
    config = ProducerConfig.parse({"bootstrap.servers": kafka.bootstrap, **options})
    with KafkaProducer(config) as producer:
        producer.start_attempt()
        for first in range(0, ROWS, 7000):
            producer.send_columns(from_record_batch(rows.slice(first, 7000), plan, BASE))
        assert producer.finish_attempt().rows == ROWS

    found = consume(topic)
    got = list(
        zip(
            found.partitions, found.keys, found.values, found.headers, found.timestamps, strict=True
        )
    )
    wanted: list[list[object]] = [[] for _ in range(PARTITIONS)]
    columns = [rows.column(name) for name in ("key", "value", "headers")]
    times = rows.column("timestamp").view(pa.int64()).to_pylist()
    for *cells, time in zip(*(c.to_pylist() for c in columns), times, strict=True):
        key, value, headers = cells
        partition = (murmur2_of_one_key(key) & 0x7FFFFFFF) % PARTITIONS
        wanted[partition].append((partition, key, value, headers or [], time))
    assert got == [row for of_partition in wanted for row in of_partition]
