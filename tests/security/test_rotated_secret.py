"""A secret file that is replaced: who has it goes on, who comes next reads the new one."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from tests.engine.rows import config


def test_a_replaced_secret_is_read_by_the_next_producer(secure_kafka, tmp_path, consume):
    topic = secure_kafka.kafka.unique_topic("rotated")
    password = tmp_path / "password"
    password.write_text(secure_kafka.cluster.security.passwords["alice"])
    options = config(
        secure_kafka.bootstrap("SASL_SSL"),
        {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(secure_kafka.cluster.security.ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": f"${{file:{password}}}",
        },
    )
    with KafkaProducer(options) as before:
        before.send(ProducerRecord(topic, b"before")).result(60)
        password.write_text("another")
        before.send(ProducerRecord(topic, b"goes on")).result(60)
        after = KafkaProducer(options)
        with pytest.raises(AuthenticationError) as refused:
            after.send(ProducerRecord(topic, b"refused")).result(60)
        after.close(0)
    assert "another" not in str(refused.value)
    assert consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values == [b"before", b"goes on"]
