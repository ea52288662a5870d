"""KafkaProducer and a real broker: batches for many partitions, a record's offset."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from tests.producer.answered_producers import Heard
from tests.real_kafka import Consumed, RealKafka


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
