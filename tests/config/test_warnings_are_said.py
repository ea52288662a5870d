"""What is worth a warning is said by the process that parses, once in a process."""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.base import errors
from spark_kafka_sink.base.errors import warn_once
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.producer.kafka_producer import KafkaProducer

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}
PLAIN = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch, caplog):
    monkeypatch.setattr(errors, "_said", set())
    caplog.set_level(logging.WARNING, "spark_kafka_sink.producer.wiring")


def said(caplog):
    return [r.message for r in caplog.records if r.name.endswith("producer.wiring")]


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        (PLAIN | {"security.protocol": "SASL_PLAINTEXT"}, "the password is sent in the clear"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}, "is empty"),
        ({"acks": "1"}, "Idempotence will be disabled"),
        ({"enable.jmx": "true"}, "has no effect"),
    ],
)
def test_a_producer_says_the_warnings_of_its_options_once(options, warning, caplog):
    for _ in range(2):
        KafkaProducer(SERVERS | options).close(0)
    (line,) = said(caplog)
    assert warning in line


def test_a_configuration_warns_in_the_process_that_parsed_it(caplog):
    KafkaProducer(parse_producer_config(SERVERS | {"acks": "1"})).close(0)
    assert said(caplog) == []


def test_what_was_said_is_not_remembered_without_end(caplog):
    log = logging.getLogger("spark_kafka_sink.producer.wiring")
    warn_once(log, (f"warning {i}" for i in range(2_500)))
    assert len(said(caplog)) == 2_500
    assert len(errors._said) <= 1_000
