"""``kprod check``: its tables, of this machine and of executors. What its steps find:
tests/security/test_check.py.
"""

from __future__ import annotations

import json

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from spark_kafka_sink.cli.app import app
from spark_kafka_sink.cli.arguments import Where
from spark_kafka_sink.cli.check import _hosts_table
from spark_kafka_sink.datasource.checks.check_steps import Step, StepState
from spark_kafka_sink.datasource.checks.executor_checks import HostCheck

NOBODY = "127.0.0.1:1"
#: A Spark Connect server that is not there.
AWAY = ("--from-executors", f"sc://{NOBODY}", "--timeout", "0.2")


def check(*arguments: str, **environment: str) -> Result:
    given = {"COLUMNS": "250", **environment}
    return CliRunner(env=given).invoke(app, ["check", "-b", NOBODY, *arguments])


def test_with_spark_connect_the_steps_are_the_executors_only() -> None:
    """This machine may not reach the brokers that they reach."""
    result = check(*AWAY)
    assert result.exit_code == 1
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines()]
    (row,) = (row for row in rows if row)
    assert row[:3] == ["executors", "Spark", "failed"]
    assert "no Spark Connect server was reached within 200 ms" in row[3]
    assert result.stderr == ""
    told = json.loads(check(*AWAY, "--json").stdout)
    assert (told["ok"], told["steps"]) == (False, [])
    assert [host["host"] for host in told["hosts"]] == ["executors"]


def test_a_wait_for_executors_is_drawn_on_a_terminal_only() -> None:
    for json_, drawn in ((), True), (("--json",), False):
        result = check(*AWAY, *json_, FORCE_COLOR="1")
        assert ("asking executors" in result.stderr) == drawn


def test_the_trial_of_exactly_once_is_refused_for_connect() -> None:
    result = check("--exactly-once", *AWAY)
    assert result.exit_code == 2
    assert "it runs on this machine" in result.stderr


def test_a_terminal_shows_the_steps_that_are_to_come() -> None:
    steps = check("--timeout", "0.5", FORCE_COLOR="1", TERM="xterm", NO_COLOR="1")
    assert steps.exit_code == 1
    first, *_, last = steps.stdout.split("what to do")
    assert "TCP" not in first
    assert "..." not in last
    assert any("..." in drawn for drawn in steps.stdout.split("what to do")[1:-1])
    assert "Connection refused" in last


def test_of_each_host_what_fails_is_shown_or_that_all_is_well() -> None:
    well = (Step("name", StepState.OK, "resolved"), Step("TCP", StepState.SKIPPED, "not asked"))
    ill = (
        Step("name", StepState.WARNING, "slow"),
        Step("TCP", StepState.FAILED, "[red]refused[/]"),
    )
    hosts = (HostCheck("a", driver=False, steps=well), HostCheck("b", driver=False, steps=ill))
    console = Console(width=120, color_system=None)
    with console.capture() as shown:
        console.print(_hosts_table(hosts))
    rows = [[cell.strip() for cell in line.split("│")[1:4]] for line in shown.get().splitlines()]
    assert [row for row in rows if row] == [
        ["a", "all", "ok"],
        ["b", "name", "warning"],
        ["b", "TCP", "failed"],
    ]
    assert "1 steps" in shown.get()
    assert "[red]refused[/]" in shown.get()


def test_a_time_that_is_no_number_is_refused() -> None:
    """By Typer as well, in its newer versions."""
    with pytest.raises(Exception, match="--timeout is a number of seconds"):
        Where(NOBODY, None, None, float("nan"))
