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

#: What Java says of one value, of names and addresses, and of the producer's options together is
#: in tests/config; which configurations are refused at all in wrong_configurations.jsonl.
VALUES: list[Row] = [
    ({"kafka_bootstrap_servers": "h:1"}, ("did you mean kafka.bootstrap.servers?",)),
    ({"compression.type": "lz4"}, ("kafka.compression.type",)),
    ({"kafka.auto.offset.reset": "earliest"}, ("kafka.auto.offset.reset", "consumer")),
    ({"kafka.transactional.id": "x"}, ("kafka.transactional.id", "not supported")),
    ({"deliveryGuarantee": "EOS"}, ("did you mean exactly-once?",)),
    (
        {"deliveryGuarantee": "exactly-once", "txnAppId": "a", "txnVersion": "2026-11-24"},
        ("2026-11-24", "did you mean 20261124?"),
    ),
    (
        {"deliveryGuarantee": "exactly-once", "txnAppId": "a", "txnVersion": str(2**63)},
        ("txnVersion", "Not a number of type LONG"),
    ),
    ({"preflight": "maybe"}, ("preflight", "maybe", "required, warn, off")),
    ({"kafka.partitioner.class": "Mine"}, ("partitioner.class", "Mine", "import path")),
]
CONTRADICTIONS: list[Row] = [
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
        {"deliveryGuarantee": "none", "kafka.enable.idempotence": "true"},
        ("deliveryGuarantee=none", "kafka.enable.idempotence=true"),
    ),
]
TOPICS: list[Row] = [
    ({"topic": ""}, ("configuration topic", "the empty string")),
    ({"topic": "a b/c"}, ("a b/c", "alphanumerics")),
    ({"topic": "x" * 250}, ("max allowed length 249",)),
    ({"topic": ".."}, ("'..' is not allowed",)),
    ({"topic": "a,b"}, ("a,b", "alphanumerics")),
    ({"topic": "__consumer_offsets"}, ("__consumer_offsets", "internal")),
    ({"topic": "__transaction_state"}, ("__transaction_state", "internal")),
]

ROWS = [*VALUES, *CONTRADICTIONS, *TOPICS]


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
