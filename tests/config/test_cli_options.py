"""``kprod options``: the table, and what a file makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from spark_kafka_sink.cli.app import app
from spark_kafka_sink.cli.options import _effective
from spark_kafka_sink.config.names.given_options import given_options
from spark_kafka_sink.config.names.unknown_options import PREFIX
from spark_kafka_sink.config.option import Status
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, SINK_OPTIONS
from spark_kafka_sink.config.parsing import sink_config_of


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["options", *arguments])
    assert result.exit_code == code, result.output
    return result


def effective(path: Path, *more: str) -> dict[str, tuple[str, str]]:
    told = json.loads(run("--effective", "-c", str(path), "--json", *more).stdout)
    return {one["name"]: (one["value"], one["origin"]) for one in told["effective"]}


def test_every_option_that_counts_is_listed_and_found_by_a_word():
    tables = [(SINK_OPTIONS, ""), (PRODUCER_OPTIONS, "kafka.")]
    wanted = {
        prefix + o.name
        for table, prefix in tables
        for o in table.values()
        if o.status is Status.HONOURED and not o.internal
    }
    everything = json.loads(run("--json").stdout)["options"]
    assert {one["name"] for one in everything} == wanted
    assert "kafka.linger.ms" in run("LINGER").stdout
    assert "kafka.acks" not in run("LINGER").stdout
    none = run("no such word", code=1).stderr
    assert "no option matches 'no such word' (hint: 'kprod options' lists" in none


@pytest.mark.parametrize(
    ("typed", "near"), [("topci", "topic"), ("bacth.size", "kafka.batch.size"), ("LINGR", "linger")]
)
def test_a_misspelt_word_has_the_nearest_options(typed: str, near: str):
    assert near in run(typed, code=1).stderr.partition("did you mean ")[2]


def test_the_effective_value_has_its_origin_and_no_secret(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text(
        "bootstrap.servers=b:9092\nlinger.ms=7\nacks=all\ndeliveryGuarantee=exactly-once\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=c4nary\n"
    )
    found = effective(path)
    assert found["kafka.linger.ms"] == ("7", str(path))
    assert found["kafka.acks"] == ("all", str(path))
    assert found["kafka.batch.size"] == (str(PRODUCER_OPTIONS["batch.size"].default), "default")
    value, origin = found["kafka.transaction.timeout.ms"]
    assert value == "900000"
    assert origin.startswith("computed")
    assert found["kafka.sasl.password"][0].startswith("${file:")
    assert "c4nary" not in run("--effective", "-c", str(path)).output
    assert set(effective(path, "linger")) == {"kafka.linger.ms"}
    assert "did you mean" in run("--effective", "-c", str(path), "topci", code=1).stderr


@pytest.mark.parametrize(
    ("lines", "value", "origin"),
    [
        ("acks=1\n", "none", "computed; default: at-least-once"),
        ("deliveryGuarantee=exactly_once\n", "exactly_once", None),
        ("", "at-least-once", "default"),
    ],
)
def test_the_guarantee_is_the_one_of_the_write(tmp_path, lines: str, value: str, origin):
    """acks=1 was shown as at-least-once, and the runbook reads the guarantee here."""
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers=b:9092\n{lines}")
    assert effective(path)["deliveryGuarantee"] == (value, origin or str(path))


@pytest.mark.parametrize("asked", [None, "true", "false"])
def test_the_nulls_of_json_are_those_of_the_write(tmp_path, asked: str | None):
    """Envelopes of Debezium have their null fields, unless the option is set. It was shown as
    true.
    """
    lines = {
        "bootstrap.servers": "b:9092",
        "topic": "t",
        "valueColumns": "*",
        "changelog": "delta-cdf",
        "changelog.mode": "debezium",
        **({} if asked is None else {"jsonIgnoreNullFields": asked}),
    }
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    shown = effective(path)["jsonIgnoreNullFields"]
    assert shown == ((asked, str(path)) if asked else ("false", "computed; default: true"))
    written = sink_config_of(given_options({"configFile": str(path)}, PREFIX)).named_columns.json
    assert str(written.ignore_null_fields).lower() == shown[0]


def test_the_topic_of_letters_is_shown_under_both_of_its_names(tmp_path):
    path = tmp_path / "client.properties"
    lines = "errors.tolerance=all\nerrors.dead.letter.queue.topic.name=dlq\n"
    path.write_text(f"bootstrap.servers=b:9092\n{lines}")
    found = effective(path)
    assert found["errors.dead.letter.queue.topic.name"] == ("dlq", str(path))
    assert found["errors.deadletterqueue.topic.name"] == ("dlq", "computed; default: ")


def test_a_secret_is_hidden_wherever_it_comes_from():
    """Those of files are references there (above)."""
    options = {
        "kafka.bootstrap.servers": "b:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "u",
        "kafka.sasl.password": "c4nary",
    }
    given = given_options(options, PREFIX)
    shown = {one.name: one.value for one in _effective(given, sink_config_of(given))}
    assert shown["kafka.bootstrap.servers"] == "b:9092"
    assert shown["kafka.sasl.password"] == "[hidden]"
    assert "c4nary" not in str(shown)


def test_an_invalid_file_is_one_line_and_effective_needs_one(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=b:9092\nlingr.ms=7\n")
    refused = run("--effective", "-c", str(path), code=2)
    assert "did you mean linger.ms?" in refused.stderr
    run("--effective", code=2)
    run("-c", str(path), code=2)
