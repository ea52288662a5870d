"""KafkaProducer and a real broker: every codec, a broker's own limit, its offsets."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from tests.producer.answered_producers import Heard, numbered, rows_of
from tests.real_kafka import Consumed, RealKafka


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_real_broker_takes_every_row_with_every_codec(
    kafka: RealKafka, consume: Callable[..., Consumed], codec: str
):
    topic = kafka.unique_topic(f"codec-{codec}", partitions=3)
    config = ProducerConfig.parse(
        {"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "batch.size": 20_000}
    )
    keys: list[bytes | None] = [b"k%d" % (n % 17) if n % 5 else None for n in range(5000)]
    values = numbered(0, 5000, 60)
    producer = KafkaProducer(config)
    producer.start_attempt()
    for first in range(0, 5000, 1000):
        part = slice(first, first + 1000)
        producer.send_columns(rows_of(values[part], topic=topic, keys=keys[part]))
    report = producer.finish_attempt()
    producer.close(10_000)
    found = consume(topic)
    assert report.rows == len(found) == 5000
    assert sorted(zip(found.keys, found.values, strict=True), key=lambda r: r[1] or b"") == list(
        zip(keys, values, strict=True)
    )
    for in_order in found.by_partition().values():
        keyed = [v for v in in_order if v is not None and int(v) % 5]
        assert keyed == sorted(keyed)
    assert sum(last - first + 1 for first, last in report.offsets.values()) == 5000
    if codec != "none":
        assert report.bytes < report.batch_bytes


def test_batches_beyond_the_brokers_limit_are_split_in_order(
    kafka: RealKafka, consume: Callable[..., Consumed]
):
    """Rule R7 on a real broker: sequences keep their ranges, batches behind wait and go again."""
    topic = kafka.unique_topic("split", partitions=2, configs={"max.message.bytes": "3000"})
    config = ProducerConfig.parse({"bootstrap.servers": kafka.bootstrap, "batch.size": 20_000})
    producer = KafkaProducer(config)
    producer.start_attempt()
    values = numbered(0, 4000, 50)
    for first in range(0, 4000, 500):
        producer.send_columns(
            rows_of(values[first : first + 500], [n % 2 for n in range(500)], topic=topic)
        )
    report = producer.finish_attempt()
    assert producer.reusable
    producer.close(10_000)
    assert report.splits > 0
    assert report.rows == 4000
    found = consume(topic).by_partition()
    assert found == {0: values[0::2], 1: values[1::2]}


def test_small_batches_for_many_partitions_arrive_in_order(
    kafka: RealKafka, consume: Callable[..., Consumed]
):
    topic = kafka.unique_topic("many", partitions=60)
    batches = [
        pa.record_batch({"key": [f"k{n % 500}" for n in rows], "value": [f"{n:06}" for n in rows]})
        for rows in (range(first, first + 100) for first in range(0, 20_000, 100))
    ]
    with KafkaProducer({"bootstrap.servers": kafka.bootstrap}) as producer:
        producer.send_batches(batches, topic)
        size = producer.chunk_size
    assert size.wanted_rows > 10 * 100, "not joined, this shows nothing"
    found = consume(topic)
    assert sorted(zip(found.values, found.keys, strict=True)) == [
        (b"%06d" % n, b"k%d" % (n % 500)) for n in range(20_000)
    ]
    for in_order in found.by_partition().values():
        assert in_order == sorted(in_order, key=bytes)


def test_a_real_broker_takes_records_and_returns_offsets(
    kafka: RealKafka, consume: Callable[..., Consumed]
):
    topic = kafka.unique_topic("send", partitions=3)
    heard = Heard()
    options = {"bootstrap.servers": kafka.bootstrap, "value.serializer": "long"}
    with KafkaProducer(options) as producer:
        futures = [producer.send(ProducerRecord(topic, n, b"k%d" % n), heard) for n in range(3000)]
        producer.flush()
        found = [future.result(0) for future in futures]
    assert len(heard.calls) == 3000
    rows = consume(topic)
    written = {
        (partition, offset): (key, value)
        for partition, offset, key, value in zip(
            rows.partitions, rows.offsets, rows.keys, rows.values, strict=True
        )
    }
    assert written == {
        (metadata.partition, metadata.offset): (b"k%d" % n, n.to_bytes(8, "big"))
        for n, metadata in enumerate(found)
    }
