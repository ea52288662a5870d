"""SASL to a real broker: every mechanism over both protocols; what is wrong is named at once."""

from __future__ import annotations

import time

import pytest

from spark_kafka_sink.errors import AuthenticationError, KafkaError
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.record_columns import ColumnPlan
from tests.engine.rows import attempt, config, values_batch

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
PROTOCOLS = ["SASL_PLAINTEXT", "SASL_SSL"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_rows_arrive_by_every_mechanism(secure_kafka, consume, mechanism, protocol):
    rows = [b"%05d" % i for i in range(2_000)]
    topic = secure_kafka.kafka.unique_topic("sasl", 3)
    options = secure_kafka.cluster.client_options(protocol, mechanism)
    with KafkaProducer(config(secure_kafka.bootstrap(protocol), options)) as producer:
        attempt(producer, ColumnPlan(topic, value_column=0), [values_batch(rows)])
    assert sorted(consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values) == rows


def refused(bootstrap, options):
    """What the first use of the producer raises, and how many seconds that took."""
    began = time.monotonic()
    producer = KafkaProducer(config(bootstrap, options | {"max.block.ms": 20_000}))
    try:
        with pytest.raises(KafkaError) as raised:
            attempt(producer, ColumnPlan("t", value_column=0), [values_batch([b"row"])])
        return raised.value, time.monotonic() - began
    finally:
        producer.close(0)


def short_form(secure_kafka, protocol, mechanism, **more):
    options = secure_kafka.cluster.client_options(protocol, mechanism)
    del options["sasl.jaas.config"]
    return options | {"sasl.username": "alice", "sasl.password": "tr0mb0ne"} | more


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_at_once(secure_kafka, mechanism, protocol):
    options = short_form(secure_kafka, protocol, mechanism)
    error, seconds = refused(secure_kafka.bootstrap(protocol), options)
    assert isinstance(error, AuthenticationError)
    for word in (mechanism, secure_kafka.bootstrap(protocol), "refuses us", "password"):
        assert word in str(error)
    assert "tr0mb0ne" not in str(error)
    assert seconds < 5
