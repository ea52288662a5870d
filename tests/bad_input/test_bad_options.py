"""Options: refused by ``parse_sink_config``, which the driver runs before it plans a task."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.parsing import parse_sink_config
from tests.bad_input.conftest import Fails

GOOD = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t"}
Row = tuple[dict[str, str], tuple[str, ...]]

#: What Java says of one value, of names and addresses, and of the producer's options together is
#: in tests/config; which configurations are refused at all in wrong_configurations.jsonl.
ROWS: list[Row] = [
    ({"kafka_bootstrap_servers": "h:1"}, ("did you mean kafka.bootstrap.servers?",)),
    ({"deliveryGuarantee": "EOS"}, ("did you mean exactly-once?",)),
    (
        {"deliveryGuarantee": "exactly-once", "txnAppId": "a", "txnVersion": "2026-11-24"},
        ("2026-11-24", "set txnAppId to the job and its unit, such as a day, and txnVersion to 1"),
    ),
    (
        {"deliveryGuarantee": "exactly-once", "txnAppId": "a", "txnVersion": str(2**63)},
        ("txnVersion", "Not a number of type LONG"),
    ),
    # Contradictions.
    ({"deliveryGuarantee": "exactly-once", "kafka.acks": "1"}, ("exactly-once", "acks", "1")),
    (
        {"deliveryGuarantee": "exactly-once", "kafka.max.in.flight.requests.per.connection": "6"},
        ("at most 5", "6"),
    ),
    ({"txnAppId": "a", "txnVersion": "1"}, ("txnAppId", "deliveryGuarantee=exactly-once")),
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
    # Topics.
    ({"topic": ""}, ("configuration topic", "the empty string")),
    ({"topic": "x" * 250}, ("max allowed length 249",)),
    ({"topic": ".."}, ("'..' is not allowed",)),
    ({"topic": "a,b"}, ("a,b", "alphanumerics")),
    ({"topic": "__consumer_offsets"}, ("__consumer_offsets", "internal")),
    ({"topic": "__transaction_state"}, ("__transaction_state", "internal")),
]


@pytest.mark.parametrize(("options", "words"), ROWS, ids=[str(options)[:70] for options, _ in ROWS])
def test_a_wrong_option_is_named_with_what_to_do(
    options: dict[str, str], words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_sink_config(GOOD | options)
    assert "\n" not in caught.value.message
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in\n{caught.value}"
    assert caught.value.hint, "what to do"


LETTERS = ("errors.deadletterqueue.topic.name", "errors.dead.letter.queue.topic.name")


@pytest.mark.parametrize("option", ["topic", "reportTopic", "progressTopic", *LETTERS])
@pytest.mark.parametrize(
    ("log", "more"),
    [
        ("__kprod_commits", {}),
        ("__kprod_commits", {"deliveryGuarantee": "exactly-once", "commitLogTopic": "log"}),
        ("log", {"deliveryGuarantee": "exactly-once", "commitLogTopic": "log"}),
    ],
    ids=["default", "default beside another", "another"],
)
def test_no_option_names_the_commit_log(option: str, log: str, more: dict[str, str]) -> None:
    tolerance = {"errors.tolerance": "all"} if option in LETTERS else {}
    with pytest.raises(ConfigError, match=f"'{log}'") as caught:
        parse_sink_config(GOOD | more | tolerance | {option: log})
    assert caught.value.message.startswith(LETTERS[0] if option in LETTERS else option)
    assert "use another topic" in str(caught.value.hint)


def test_spark_shows_the_line_and_has_started_no_job(fails: Fails, one_row: DataFrame) -> None:
    failure = fails(one_row, "t", **{"kafka.liner.ms": "5"})
    assert failure.on_the_driver
    failure.says("ConfigError: Unknown option 'kafka.liner.ms'", "did you mean kafka.linger.ms?")
