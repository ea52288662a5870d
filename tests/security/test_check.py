"""``kprod check``: every misconfiguration is named by the first red row, on a real broker."""

from __future__ import annotations

import json
import socket

import pytest
from typer.testing import CliRunner

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.cli.app import app
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.checks.check_steps import StepState
from spark_kafka_sink.datasource.checks.cluster_checks import (
    HOST_STEPS,
    check_host,
)
from tests.secure_kafka import acl
from tests.security.check_rows import (
    IDS,
    assert_named,
    exactly_once,
    first_red,
    row,
    steps_of,
    steps_of_bob,
)
from tests.waiting import with_more_time

SSL = {"security.protocol": "SSL"}
TRUST = "ssl.truststore.location"


class ClockThatIsOff(SystemClock):
    """The machine's, and so many milliseconds."""

    def __init__(self, by_ms):
        self._by_ms = by_ms

    def wall_ms(self):
        return super().wall_ms() + self._by_ms


@pytest.mark.parametrize(
    ("address", "step", "text"),
    [
        ("no.such.host.invalid:9092", "name", "bootstrap.servers"),
        ("127.0.0.1:1", "TCP", "Connection refused"),
    ],
)
def test_an_address_without_a_broker_is_named(address, step, text):
    """Listeners that are others than was meant: ``test_certificate_matrix.py``."""
    assert_named(steps_of(address, {}), step, text)


def test_an_advertised_name_that_leads_nowhere_is_named(secure_kafka):
    options = SSL | {TRUST: str(secure_kafka.ca), "ssl.endpoint.identification.algorithm": ""}
    steps = steps_of(secure_kafka.bootstrap("WILDCARD"), options)
    assert_named(steps, "brokers", "advertised.listeners")


def test_tls_without_a_login_is_named(secure_kafka):
    """The listener answers ApiVersions, and closes the connection at the next request."""
    options = SSL | {TRUST: str(secure_kafka.cluster.security.ca)}
    steps = steps_of(secure_kafka.bootstrap("SASL_SSL"), options, 60_000)
    assert_named(steps, "SASL", "set kafka.security.protocol to SASL_SSL")


def test_a_silent_broker_is_reported_after_a_while(secure_kafka):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bootstrap = f"127.0.0.1:{silent.getsockname()[1]}"

        def is_reported(limit_ms):
            assert_named(steps_of(bootstrap, {}, limit_ms), "ApiVersions", "no answer within")
            tls = steps_of(bootstrap, SSL | {TRUST: str(secure_kafka.ca)}, limit_ms)
            assert_named(tls, "TLS", "its process is not stopped")
            assert first_red(tls).code == "KP0311"

        with_more_time(is_reported, 500)


def test_a_topic_that_does_not_take_what_is_sent(secure_kafka):
    topic = secure_kafka.kafka.unique_topic("check", configs={"max.message.bytes": "10000"})
    steps = steps_of(secure_kafka.kafka.bootstrap, {"topic": topic})
    assert_named(steps, "max.message.bytes", "max.request.size")


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("settings", "off_ms", "state", "text"),
    [
        (
            {},
            2 * HOUR_MS,
            StepState.FAILED,
            "message.timestamp.after.max.ms=3600000: rows are rejected",
        ),
        ({"message.timestamp.type": "LogAppendTime"}, 2 * HOUR_MS, StepState.WARNING, "wrong time"),
        (
            {"message.timestamp.before.max.ms": "1000"},
            -HOUR_MS,
            StepState.FAILED,
            "before.max.ms=1000",
        ),
        ({}, -HOUR_MS, StepState.WARNING, "behind broker"),
        ({}, 0, StepState.OK, "ms versus broker"),
    ],
)
def test_a_clock_that_is_off_is_named(secure_kafka, settings, off_ms, state, text):
    topic = secure_kafka.kafka.unique_topic("check", configs=settings)
    clock = ClockThatIsOff(off_ms)
    steps = steps_of(secure_kafka.kafka.bootstrap, {"topic": topic}, clock=clock)
    found = row(steps, "clock")
    assert found.state is state, found
    assert text in found.said
    if state is StepState.FAILED:
        assert first_red(steps) is found
        assert "NTP" in found.change
    options = {"kafka.bootstrap.servers": secure_kafka.kafka.bootstrap, "topic": topic}
    alone = list(check_host(parse_sink_config(options), timeout_ms=60_000, clock=clock))
    assert [step.name for step in alone] == list(HOST_STEPS)
    assert (alone[-1].state, text in alone[-1].said) == (state, True), "an executor finds it, too"


def test_a_principal_without_describe_sees_no_time(secure_kafka):
    found = row(steps_of_bob(secure_kafka, {}), "clock")
    assert (found.state, found.change) == (StepState.SKIPPED, None)
    assert "DESCRIBE on the cluster" in found.said


def test_a_topic_that_is_not_there_is_not_created(secure_kafka):
    for _ in range(2):
        steps = steps_of(secure_kafka.kafka.bootstrap, {"topic": "check.nobody-made-it"})
        assert_named(steps, "topic", "UNKNOWN_TOPIC_OR_PARTITION")


def test_an_executor_leaves_a_missing_topic_to_the_driver(secure_kafka):
    options = {
        "kafka.bootstrap.servers": secure_kafka.kafka.bootstrap,
        "topic": "check.nobody-made-it",
    }
    found = list(check_host(parse_sink_config(options), timeout_ms=60_000))
    assert [step.name for step in found] == list(HOST_STEPS)
    assert StepState.FAILED not in {step.state for step in found}
    assert found[-1].state is StepState.OK


def test_rights_on_the_topic(secure_kafka):
    topic = secure_kafka.kafka.unique_topic("check")
    assert_named(steps_of_bob(secure_kafka, {"topic": topic}), "topic", "DESCRIBE")
    with acl(secure_kafka, "bob", ("TOPIC", topic, "READ")):
        assert_named(steps_of_bob(secure_kafka, {"topic": topic}), "rights", "the ACL WRITE")


def test_what_exactly_once_needs(secure_kafka):
    topic = secure_kafka.kafka.unique_topic("check")
    log = secure_kafka.kafka.unique_topic("check-log")  # it deletes, and is not compacted
    options = exactly_once(topic, log)
    write = ("TOPIC", topic, "WRITE")
    with acl(secure_kafka, "bob", write):
        assert_named(steps_of_bob(secure_kafka, options), "transactional ids", "'check~'")
    with acl(secure_kafka, "bob", write, *IDS):
        long = steps_of_bob(secure_kafka, options | {"transaction.timeout.ms": "900001"})
        assert_named(long, "transaction timeout", "transaction.max.timeout.ms")
        assert_named(steps_of_bob(secure_kafka, options), "commit log", "the principal needs")
    assert_named(steps_of(secure_kafka.kafka.bootstrap, options), "commit log", "compact")


def test_a_healthy_cluster_is_green_and_nothing_is_left_behind(secure_kafka):
    topic = secure_kafka.kafka.unique_topic("check")
    options = secure_kafka.cluster.client_options("SASL_SSL", user="alice")
    bootstrap = options.pop("bootstrap.servers")
    steps = steps_of(bootstrap, options | exactly_once(topic, f"{topic}-log"), 60_000)
    states = {step.name: step.state for step in steps}
    skipped = {name for name, state in states.items() if state is StepState.SKIPPED}
    assert skipped == {
        "classes",
        "dead letter queue",
        "producer id",
        "progressTopic",
        "reportPath",
        "reportTopic",
        "schema registry",
    }
    assert {state for name, state in states.items() if name not in skipped} == {StepState.OK}
    assert secure_kafka.cluster.security.passwords["alice"] not in str(steps)


def test_the_command_has_exit_codes_and_json(secure_kafka, tmp_path):
    topic = secure_kafka.kafka.unique_topic("check", configs={"compression.type": "gzip"})
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={secure_kafka.kafka.bootstrap}\n")
    run = CliRunner().invoke(app, ["check", "-c", str(file), "-t", topic, "--json"])
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    assert told["ok"]
    states = {step["name"]: step["state"] for step in told["steps"]}
    assert states["compression"] == "warning"
    run = CliRunner().invoke(app, ["check", "-c", str(file), "-t", "check.nobody-made-it"])
    assert run.exit_code == 1
    assert "failed" in run.stdout
    wrong = ["check", "-c", str(file), "-o", "kafka.ssl.truststore.location=/nowhere"]
    assert CliRunner().invoke(app, wrong).exit_code == 2
    assert CliRunner().invoke(app, ["check", "-c", str(file), "-o", "topic"]).exit_code == 2
    protocol = "kafka.security.protocol=SSL"
    assert CliRunner().invoke(app, [*wrong, "-o", protocol]).exit_code == 2
