"""What the driver finds out about a topic before the first task: may we write, and will it fit?"""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.base import errors
from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import AuthorizationError, ErrorCode
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.checks import preflight, topic_checks
from tests.secure_kafka import acl

SMALL = {"max.message.bytes": "10000", "compression.type": "gzip"}


@pytest.fixture
def look(secure_kafka, monkeypatch):
    """The driver's look at a topic, as bob."""
    monkeypatch.setattr(errors, "_said", set())
    options = secure_kafka.cluster.client_options("SSL", user="bob")

    def check(topic, **more):
        config = parse_sink_config(
            {f"kafka.{name}": value for name, value in options.items()}
            | {"topic": topic, "preflight": "required"}
            | more
        )
        asked = preflight.PreflightCheck(preflight._describe, SystemClock())
        return asked.check(config, streaming=False)

    return check


def write_and_see(*topics):
    """The rights to write to them, and to see their settings."""
    return [("TOPIC", name, right) for name in topics for right in ("WRITE", "DESCRIBE_CONFIGS")]


def warnings(caplog):
    """Of the checks: a thread of an earlier test may still warn."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and ".checks." in record.name
    ]


def test_a_topic_without_the_right_to_write_fails_before_tasks(secure_kafka, look):
    topic = secure_kafka.kafka.unique_topic("preflight")
    with (
        acl(secure_kafka, "bob", ("TOPIC", topic, "READ")),
        pytest.raises(AuthorizationError, match="not authorised to write to it") as caught,
    ):
        look(topic)
    error = caught.value
    assert error.code is error.kind is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert error.message.startswith(f"topic {topic}: TOPIC_AUTHORIZATION_FAILED (29): ")
    assert "(only to READ, DESCRIBE)" in error.message
    assert "needs the ACL WRITE on the topic" in str(error.hint)


def test_with_warn_the_missing_right_is_one_warning(secure_kafka, look, caplog):
    topic = secure_kafka.kafka.unique_topic("preflight")
    with acl(secure_kafka, "bob", ("TOPIC", topic, "DESCRIBE")):
        assert look(topic, preflight="warn") is None
    assert [w.count("not authorised to write") for w in warnings(caplog)] == [1]


def test_the_right_to_write_alone_is_enough(secure_kafka, look, caplog):
    """The settings don't fit, but only DESCRIBE_CONFIGS would show them."""
    topic = secure_kafka.kafka.unique_topic("preflight", 1, SMALL)
    with acl(secure_kafka, "bob", ("TOPIC", topic, "WRITE")):
        assert topic in look(topic).cluster.topics
    assert warnings(caplog) == []


def test_a_commit_log_without_the_right_to_write_fails_before_tasks(secure_kafka, look):
    topic, log = (secure_kafka.kafka.unique_topic(name) for name in ("preflight", "commits"))
    once = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "p"}
    with acl(secure_kafka, "bob", ("TOPIC", topic, "WRITE"), ("TOPIC", log, "READ")):
        look(topic)
        look(topic, commitLogTopic=f"{log}-missing", **once)  # that the plan creates
        with pytest.raises(AuthorizationError, match=f"topic {log}: .*not authorised to write"):
            look(topic, commitLogTopic=log, **once)


def test_unfitting_settings_are_reported_once_a_process(secure_kafka, look, caplog):
    topic = secure_kafka.kafka.unique_topic("preflight", 1, SMALL)
    with acl(secure_kafka, "bob", *write_and_see(topic)):
        for _ in range(2):
            assert topic in look(topic).cluster.topics
    row, batch, compression = warnings(caplog)
    takes = f"[KP0307] topic {topic} takes batches of at most 10000 bytes (max.message.bytes), and "
    assert batch.startswith(f"{takes}kafka.batch.size is 524288: ")
    assert row.startswith(f"{takes}kafka.max.request.size is 1048576: ")
    assert (
        "compression.type=gzip, and batches are sent with kafka.compression.type=none"
        in compression
    )
    assert all("kprod explain KP0307" in warning for warning in (batch, row, compression))


def test_a_topic_of_reports_is_only_asked_whether_it_takes_them(secure_kafka, look, caplog):
    """Options of the producer have nothing to do with it: a report is a batch by itself."""
    topic, small, large = (
        secure_kafka.kafka.unique_topic("preflight", 1, settings)
        for settings in ({}, SMALL, {"max.message.bytes": "905000"})
    )
    with acl(secure_kafka, "bob", *write_and_see(topic, small, large)):
        look(topic, reportTopic=large)
        assert warnings(caplog) == []
        look(topic, reportTopic=small)
    (warning,) = warnings(caplog)
    assert f"topic {small} takes batches of at most 10000 bytes" in warning
    assert "a report has up to 900000" in warning


def test_settings_that_fit_are_not_spoken_of(secure_kafka, look, caplog):
    topic = secure_kafka.kafka.unique_topic("preflight", 1, SMALL)
    fits = {"kafka.batch.size": "10000", "kafka.compression.type": "gzip"}
    with acl(secure_kafka, "bob", *write_and_see(topic)):
        look(topic, **fits)
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    "operations",
    [None, 0, 1 << 4, (1 << 8) | (1 << 4), 1 << 3],
    ids=["not told", "nothing at all", "only WRITE", "both", "READ without DESCRIBE"],
)
def test_a_broker_that_does_not_know_the_field_is_not_believed(operations):
    topic_checks.check_write("t", operations)


def test_a_compacted_topic_is_known_by_who_may_see_its_settings(secure_kafka, look):
    policy = {"cleanup.policy": "compact,delete"}
    topic = secure_kafka.kafka.unique_topic("preflight", 1, policy)
    with acl(secure_kafka, "bob", ("TOPIC", topic, "WRITE")):
        assert look(topic).compacted == frozenset()
    with acl(secure_kafka, "bob", *write_and_see(topic)):
        assert look(topic).compacted == {topic}
