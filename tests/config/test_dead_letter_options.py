"""The options errors.*: what goes together, other clients' names, files."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.config.sink_config import DeadLetterOptions

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
ALL = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dlq"}


def parsed(options):
    return parse_sink_config(SERVERS | options).dead_letters


def test_without_tolerance_there_are_none():
    assert parsed({}) is None
    assert parsed({"errors.tolerance": "none", "errors.deadletterqueue.topic.name": "dlq"}) is None


def test_defaults_are_connects_but_for_its_headers():
    assert parsed(ALL) == DeadLetterOptions(
        topic="dlq",
        replicas=None,
        context_headers=True,
        log=False,
        log_messages=False,
        max_records=None,
        max_fraction=None,
        max_value_bytes=65_536,
    )


def test_each_option_is_the_field_of_its_name():
    """Both stand in one order."""
    given = {
        "errors.deadletterqueue.topic.replication.factor": "3",
        "errors.deadletterqueue.context.headers.enable": "false",
        "errors.log.enable": "true",
        "errors.max.records": "7",
        "errors.max.fraction": "0.5",
        "errors.deadletterqueue.max.value.bytes": "9",
    }
    assert parsed(ALL | given) == DeadLetterOptions(
        topic="dlq", replicas=3, context_headers=False, log=True, log_messages=False,
        max_records=7, max_fraction=0.5, max_value_bytes=9,
    )  # fmt: skip
    assert parsed(ALL | {"errors.log.include.messages": "true"}).log_messages


def test_all_without_a_topic_is_an_error():
    """Connect loses rows there."""
    with pytest.raises(ConfigError, match="rows that can't be sent would be lost"):
        parsed({"errors.tolerance": "all"})


def test_streams_name_of_the_topic_is_understood():
    found = parsed({"errors.tolerance": "ALL", "errors.dead.letter.queue.topic.name": "dlq"})
    assert found == parsed(ALL)


def test_two_names_of_the_topic_must_agree():
    with pytest.raises(ConfigError, match="two names of one option"):
        parsed(ALL | {"errors.dead.letter.queue.topic.name": "other"})


@pytest.mark.parametrize(
    "other",
    [
        {"topic": "dlq"},
        {"reportTopic": "dlq"},
        {"progressTopic": "dlq"},
        {"commitLogTopic": "dlq", "deliveryGuarantee": "exactly-once"},
    ],
)
def test_letters_have_a_topic_of_their_own(other):
    name = next(iter(other))
    with pytest.raises(ConfigError, match=f"topic.name and {name} are the same topic, 'dlq'"):
        parsed(ALL | other)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("errors.max.fraction", "1.1"),
        ("errors.max.fraction", "-0.1"),
        ("errors.max.records", "-1"),
        ("errors.tolerance", "some"),
        ("errors.deadletterqueue.topic.name", "a b"),
        ("errors.deadletterqueue.topic.replication.factor", "0"),
        ("errors.deadletterqueue.max.value.bytes", "-1"),
    ],
)
def test_values_out_of_bounds_are_refused(name, value):
    with pytest.raises(ConfigError, match=f"configuration {name}"):
        parsed(ALL | {name: value})


def test_without_tolerance_the_others_are_one_warning():
    given = {"errors.deadletterqueue.topic.name": "dlq", "errors.max.records": "5"}
    (warning,) = parse_sink_config(SERVERS | given | {"errors.tolerance": "none"}).warnings
    assert "errors.deadletterqueue.topic.name, errors.max.records" in warning
    assert "errors.tolerance is none" in warning
    assert parse_sink_config(SERVERS | ALL | given).warnings == ()
    assert parse_sink_config(SERVERS | {"errors.tolerance": "none"}).warnings == ()


def test_an_option_without_meaning_is_not_blamed_on_the_tolerance():
    given = SERVERS | {"schema.registry.ssl.provider": "SunJSSE"}
    (warning,) = parse_sink_config(given).warnings
    assert "TLS is done by OpenSSL" in warning


def test_a_config_file_has_them_too(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text(
        "errors.tolerance=all\nerrors.deadletterqueue.topic.name=dlq\nerrors.max.records=5\n"
        "errors.retry.timeout=1000\n"
    )
    found = parsed({"configFile": str(path)})
    assert (found.topic, found.max_records) == ("dlq", 5)
