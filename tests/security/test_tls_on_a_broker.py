"""TLS to a real broker: what is written arrives, and what is wrong is named, soon and once."""

from __future__ import annotations

import socket
import struct

import pytest

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.record_columns import ColumnPlan
from tests.engine.rows import attempt, config, values_batch

pytestmark = pytest.mark.broker


def tls(secure, **more):
    options = {"security.protocol": "SSL", "ssl.truststore.location": str(secure.ca)}
    return options | {name.replace("__", "."): str(value) for name, value in more.items()}


def write(secure, listener, options, rows):
    topic = secure.kafka.unique_topic("tls", 3)
    with KafkaProducer(config(secure.bootstrap(listener), options)) as producer:
        attempt(producer, ColumnPlan(topic, value_column=0), [values_batch(rows)])
    return topic


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"ssl__enabled__protocols": "TLSv1.2"},
        {"ssl__enabled__protocols": "TLSv1.3"},
        {
            "ssl__enabled__protocols": "TLSv1.2",
            "ssl__cipher__suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        },
        {"compression__type": "zstd", "max__in__flight__requests__per__connection": 1},
    ],
    ids=["default", "1.2", "1.3", "one cipher", "zstd"],
)
def test_rows_arrive_over_tls(secure_kafka, consume, more):
    rows = [b"%07d" % i + b"x" * (i % 3000) for i in range(5_000)]
    topic = write(secure_kafka, "GOOD", tls(secure_kafka, **more), rows)
    assert sorted(consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values) == sorted(rows)


def test_one_row_of_megabytes_arrives_over_tls(secure_kafka, consume):
    rows = [bytes(range(256)) * 3_500]
    topic = write(secure_kafka, "GOOD", tls(secure_kafka), rows)
    assert consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values == rows


def test_a_broker_that_speaks_only_tls_1_2_is_spoken_to(secure_kafka, consume):
    topic = write(secure_kafka, "OLDTLS", tls(secure_kafka), [b"row"])
    assert consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values == [b"row"]


def test_a_wrong_name_is_accepted_only_without_the_name_check(secure_kafka, consume):
    options = tls(secure_kafka, ssl__endpoint__identification__algorithm="")
    topic = write(secure_kafka, "OTHERHOST", options, [b"row"])
    assert consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values == [b"row"]


def test_a_broker_reports_that_no_version_is_common(secure_kafka):
    options = tls(secure_kafka, ssl__enabled__protocols="TLSv1.3", max__block__ms=20_000)
    producer = KafkaProducer(config(secure_kafka.bootstrap("OLDTLS"), options))
    with pytest.raises(KafkaError, match="no TLS version in common"):
        attempt(producer, ColumnPlan("t", value_column=0), [values_batch([b"row"])])
    producer.close(0)


def test_a_missing_truststore_fails_before_any_connection(secure_kafka):
    with pytest.raises(KafkaError, match=r"ssl\.truststore\.location=/nowhere can't be read"):
        KafkaProducer(
            config(
                secure_kafka.bootstrap("GOOD"),
                tls(secure_kafka, ssl__truststore__location="/nowhere"),
            )
        )


def test_the_broker_really_is_asked_over_tls(secure_kafka):
    """The listener hangs up on a client that speaks Kafka without TLS."""
    host, port = secure_kafka.bootstrap("GOOD").split(":")
    with socket.create_connection((host, int(port)), 10) as plain:
        plain.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        answer = plain.recv(100)
    assert not answer.startswith(b"\x00\x00")
