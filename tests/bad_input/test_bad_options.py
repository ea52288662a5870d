"""Options: refused by ``SinkConfig.parse``, which the driver runs before it plans a task."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_config import SinkConfig
from tests.bad_input.conftest import Fails

GOOD = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t"}


def refused(options: dict[str, str | None]) -> ConfigError:
    """The error of GOOD with ``options``; None takes one of GOOD away."""
    with pytest.raises(ConfigError) as caught:
        SinkConfig.parse({k: v for k, v in (GOOD | options).items() if v is not None})
    assert "\n" not in caught.value.message
    return caught.value


Row = tuple[dict[str, str | None], tuple[str, ...]]

NAMES: list[Row] = [
    ({"kafka.liner.ms": "5"}, ("kafka.liner.ms", "did you mean kafka.linger.ms?")),
    ({"kafka.bootstrap.server": "h:1"}, ("did you mean kafka.bootstrap.servers?",)),
    ({"bootstrap.servers": "h:1"}, ("take the prefix: kafka.bootstrap.servers",)),
    ({"kafka_bootstrap_servers": "h:1"}, ("did you mean kafka.bootstrap.servers?",)),
    ({"topics": "t"}, ("'topics'", "did you mean topic?")),
    ({"deliveryGuarante": "none"}, ("did you mean deliveryGuarantee?",)),
    ({"kafka.topic": "t"}, ("kafka.topic",)),
    ({"compression.type": "lz4"}, ("kafka.compression.type",)),
    ({"Topic": "u"}, ("'topic'", "'Topic'", "same option")),
    (
        {"KAFKA.linger.ms": "1", "kafka.Linger.MS": "2"},
        ("KAFKA.linger.ms", "kafka.Linger.MS", "same option"),
    ),
    ({"subscribe": "t"}, ("'subscribe'", "Kafka source", "remove it")),
    ({"startingOffsets": "earliest"}, ("'startingOffsets'", "Kafka source")),
    ({"kafka.group.id": "g"}, ("kafka.group.id", "consumer")),
    ({"kafka.auto.offset.reset": "earliest"}, ("kafka.auto.offset.reset", "consumer")),
    ({"kafka.queue.buffering.max.ms": "5"}, ("librdkafka", "kafka.linger.ms")),
    ({"kafka.key.serializer": "x"}, ("'key.serializer' is not supported", "cast the column")),
    ({"kafka.value.serializer": "x"}, ("'value.serializer' is not supported",)),
    ({"kafka.transactional.id": "x"}, ("kafka.transactional.id", "not supported")),
]

ADDRESSES: list[Row] = [
    ({"kafka.bootstrap.servers": None}, ("bootstrap.servers is not set",)),
    ({"kafka.bootstrap.servers": ""}, ("must not be empty", "host:port")),
    ({"kafka.bootstrap.servers": "broker"}, ("broker", "the port is missing: broker:9092?")),
    ({"kafka.bootstrap.servers": "a:1,,b:2"}, ("item 2 of 3", "remove the extra comma")),
    ({"kafka.bootstrap.servers": "a:0"}, ("a:0", "1 to 65535")),
    ({"kafka.bootstrap.servers": "a:70000"}, ("a:70000", "1 to 65535")),
    ({"kafka.bootstrap.servers": "a:1 b:2"}, ("a:1 b:2", "separated by commas")),
    ({"kafka.bootstrap.servers": "::1:9092"}, ("::1:9092", "[::1]:9092")),
    ({"kafka.bootstrap.servers": "SSL://a:1"}, ("SSL://a:1", "security.protocol is PLAINTEXT")),
]

VALUES: list[Row] = [
    ({"kafka.batch.size": "-1"}, ("kafka.batch.size", "-1", "at least 0")),
    ({"kafka.linger.ms": "abc"}, ("linger.ms", "abc", "Not a number")),
    ({"kafka.linger.ms": "5ms"}, ("5ms", "Not a number")),
    ({"kafka.request.timeout.ms": "2147483648"}, ("2147483648", "request.timeout.ms")),
    ({"kafka.acks": "2"}, ("acks", "2")),
    ({"kafka.enable.idempotence": "yes"}, ("enable.idempotence", "yes", "true or false")),
    ({"kafka.compression.type": "brotli"}, ("compression.type", "brotli", "zstd")),
    ({"kafka.compression.gzip.level": "10"}, ("gzip.level", "10")),
    ({"deliveryGuarantee": "at-least-one"}, ("did you mean at-least-once?",)),
    ({"deliveryGuarantee": "exactly_once_v2"}, ("did you mean exactly-once?",)),
    ({"deliveryGuarantee": "EOS"}, ("did you mean exactly-once?",)),
    (
        {"deliveryGuarantee": "exactly-once", "txnAppId": "a", "txnVersion": "2026-11-24"},
        ("2026-11-24", "did you mean 20261124?"),
    ),
    (
        {"kafka.transaction.timeout.ms": "0", "deliveryGuarantee": "exactly-once"},
        ("kafka.transaction.timeout.ms", "at least 1"),
    ),
    (
        {"deliveryGuarantee": "exactly-once", "txnAppId": "a", "txnVersion": "-1"},
        ("txnVersion", "-1", "at least 0"),
    ),
    (
        {"deliveryGuarantee": "exactly-once", "txnAppId": "a", "txnVersion": str(2**63)},
        ("txnVersion", "Not a number of type LONG"),
    ),
    ({"deliveryGuarantee": "exactly-once", "commitLogTopic": "a b"}, ("commitLogTopic", "a b")),
    ({"preflight": "maybe"}, ("preflight", "maybe", "required, warn, off")),
    ({"kafka.partitioner.class": "Mine"}, ("partitioner.class", "Mine", "import path")),
    ({"kafka.security.protocol": "SASL_SSL"}, ("sasl.mechanism is not set", "PLAIN")),
    ({"kafka.security.protocol": "TLS"}, ("security.protocol", "TLS", "SASL_SSL")),
]

CONTRADICTIONS: list[Row] = [
    (
        {"kafka.delivery.timeout.ms": "1000", "kafka.request.timeout.ms": "900",
         "kafka.linger.ms": "200"},
        ("delivery.timeout.ms", "1000", "900", "200", "equal to or larger than"),
    ),
    ({"kafka.max.in.flight.requests.per.connection": "6"}, ("at most 5", "6", "idempoten")),
    ({"deliveryGuarantee": "at-least-once", "kafka.acks": "1"}, ("at-least-once", "acks", "1")),
    ({"deliveryGuarantee": "exactly-once", "kafka.acks": "1"}, ("exactly-once", "acks", "1")),
    (
        {"deliveryGuarantee": "exactly-once", "kafka.enable.idempotence": "false"},
        ("exactly-once", "kafka.enable.idempotence"),
    ),
    (
        {"deliveryGuarantee": "exactly-once", "kafka.max.in.flight.requests.per.connection": "6"},
        ("at most 5", "6"),
    ),
    ({"txnAppId": "a", "txnVersion": "1"}, ("txnAppId", "deliveryGuarantee=exactly-once")),
    ({"commitLogTopic": "log"}, ("commitLogTopic", "deliveryGuarantee=exactly-once")),
    ({"deliveryGuarantee": "exactly-once", "txnVersion": "1"}, ("txnVersion", "txnAppId is not")),
    ({"deliveryGuarantee": "exactly-once", "txnAppId": "a"}, ("txnAppId", "txnVersion is not")),
    (
        {"deliveryGuarantee": "exactly-once", "topic": "t", "commitLogTopic": "t"},
        ("topic", "commitLogTopic", "the same topic"),
    ),
    (
        {"kafka.enable.idempotence": "true", "kafka.acks": "0"},
        ("idempotent", "kafka.acks is 0"),
    ),
    ({"kafka.enable.idempotence": "true", "kafka.retries": "0"}, ("retries", "idempotent")),
    (
        {"kafka.sasl.mechanism": "PLAIN"},
        ("kafka.sasl.mechanism would have no effect", "is PLAINTEXT, the default", "SASL_SSL"),
    ),
    (
        {"deliveryGuarantee": "none", "kafka.enable.idempotence": "true"},
        ("deliveryGuarantee=none", "kafka.enable.idempotence=true"),
    ),
]  # fmt: skip

TOPICS: list[Row] = [
    ({"topic": ""}, ("configuration topic", "the empty string")),
    ({"topic": "a b/c"}, ("a b/c", "alphanumerics")),
    ({"topic": "x" * 250}, ("max allowed length 249",)),
    ({"topic": ".."}, ("'..' is not allowed",)),
    ({"topic": "a,b"}, ("a,b", "alphanumerics")),
    ({"topic": "__consumer_offsets"}, ("__consumer_offsets", "internal")),
    ({"topic": "__transaction_state"}, ("__transaction_state", "internal")),
]

ROWS = [*NAMES, *ADDRESSES, *VALUES, *CONTRADICTIONS, *TOPICS]


@pytest.mark.parametrize(("options", "words"), ROWS, ids=[str(options)[:70] for options, _ in ROWS])
def test_a_wrong_option_is_named_with_what_to_do(
    options: dict[str, str | None], words: tuple[str, ...]
) -> None:
    error = refused(options)
    for word in words:
        assert word in str(error), f"{word!r} is not in\n{error}"
    assert error.hint, "what to do"


def test_no_secret_is_in_a_message() -> None:
    secret = "hunter2"
    for name in ("kafka.sasl.jaas.config", "kafka.ssl.key.password", "kafka.pasword"):
        options: dict[str, str | None] = {name: secret, "kafka.security.protocol": "SASL_SSL"}
        assert secret not in str(refused(options))


def test_spark_shows_the_line_and_has_started_no_job(fails: Fails, spark: SparkSession) -> None:
    failure = fails(spark.range(1).selectExpr("'v' AS value"), "t", **{"kafka.liner.ms": "5"})
    assert failure.on_the_driver
    failure.says("ConfigError: Unknown option 'kafka.liner.ms'", "did you mean kafka.linger.ms?")
