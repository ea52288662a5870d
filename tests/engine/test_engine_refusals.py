"""Single records that a real broker refuses, among others that it must take."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import InvalidRecordError, RecordTooLargeError
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from tests.real_kafka import TIMEOUT_S

pytestmark = pytest.mark.broker


def test_one_record_too_large_takes_no_other_with_it(kafka, consume):
    """Several batches are in flight: the broker finds those after it out of order."""
    topic = kafka.unique_topic("picky", configs={"max.message.bytes": "20000"})
    values = [b"%d" % n for n in range(600)]
    for refused in (200, 201, 400):
        values[refused] = bytes(30_000)
    options = {"bootstrap.servers": kafka.bootstrap, "batch.size": 200, "linger.ms": 0}
    with KafkaProducer(options) as producer:
        futures = [producer.send(ProducerRecord(topic, value, partition=0)) for value in values]
        producer.flush()
        failed = {
            number: type(future.exception(0))
            for number, future in enumerate(futures)
            if future.exception(0) is not None
        }
        assert failed == dict.fromkeys((200, 201, 400), RecordTooLargeError)
        assert producer.send(ProducerRecord(topic, b"next")).exception(60) is None
    taken = [value for value in values if len(value) < 30_000]
    assert consume(topic).values == [*taken, b"next"]


def test_a_deleted_topic_and_a_refused_record_delay_no_other(kafka, consume):
    from confluent_kafka.admin import AdminClient

    sick, healthy = kafka.unique_topic("sick"), kafka.unique_topic("healthy")
    compacted = kafka.unique_topic("compacted", configs={"cleanup.policy": "compact"})
    options = {"bootstrap.servers": kafka.bootstrap, "linger.ms": 0}
    producer = KafkaProducer(options)
    for topic in (sick, healthy, compacted):
        producer.send(ProducerRecord(topic, b"first", b"key", 0)).result(60)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([sick], operation_timeout=TIMEOUT_S)[sick].result(TIMEOUT_S)
    waits = producer.send(ProducerRecord(sick, b"waits", b"key", 0))
    keyless = producer.send(ProducerRecord(compacted, b"keyless", None, 0))
    assert isinstance(keyless.exception(60), InvalidRecordError)
    for topic in (healthy, compacted):
        for n in range(5):
            producer.send(ProducerRecord(topic, b"%d" % n, b"key %d" % n, 0)).result(60)
    assert not waits.done(), "it is retried for delivery.timeout.ms"
    producer.close(0)
    assert waits.exception(0) is not None
    assert consume(healthy).values == [b"first", b"0", b"1", b"2", b"3", b"4"]
    assert consume(compacted).values == [b"first", b"0", b"1", b"2", b"3", b"4"]
