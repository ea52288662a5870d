"""What all commands of ``kprod`` have in common: flags, names of options, and limits."""

from __future__ import annotations

import re
import socket
import time

import pytest
from typer.testing import CliRunner, Result

from spark_kafka_sink.cli.app import app
from tests.cli.commands import commands_of

COMMANDS = commands_of(app)


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, arguments)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_flag_is_shown_without_a_value(words: tuple[str, ...]) -> None:
    """The help showed ``--yes <bool>``, and ``--dry-run true`` is an error."""
    shown = run(*words, "--help").stdout
    flags = re.findall(r"(--[a-z-]+)\s+(?:-\w\s+)?<bool>", shown)
    assert set(flags) <= {"--help"}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_n_means_the_number_of_the_last_ones(words: tuple[str, ...]) -> None:
    short = [option for option in COMMANDS[words].params if "-n" in option.opts]
    assert all("--last" in option.opts for option in short)


@pytest.mark.parametrize("name", ["--bootstrap-server", "--bootstrap-servers", "-b"])
def test_kafkas_own_spelling_of_the_address_is_taken(name: str) -> None:
    done = run("txn", "list", "orders", name, "not an address")
    assert done.exit_code == 2
    assert "KP0105" in done.stderr


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_help_of_timeout_says_what_it_limits(words: tuple[str, ...]) -> None:
    """It said "each step", and a row of ``check``, the table of steps, makes several requests."""
    found = [one for one in COMMANDS[words].params if "--timeout" in one.opts]
    for help_ in (str(getattr(option, "help", "")) for option in found):
        assert "step" not in help_
        assert "each request" in help_
        assert "--within" in help_


def test_a_command_ends_within_the_limit_of_the_whole() -> None:
    """The broker takes connections and never answers; the limit of a request is far away."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        begun = time.monotonic()
        done = run("txn", "list", "orders", "-b", address, "--timeout", "600", "--within", "0.5")
    assert done.exit_code == 1
    assert "not done within 0.5 s (hint: raise --within)" in done.stderr
    assert time.monotonic() - begun < 60


def test_steps_behind_a_failure_are_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    shown = run("check", "-b", address, "-t", "orders", "--timeout", "5").stdout
    assert shown.count("an earlier step failed") == 1
    assert re.search(r"\d+ more steps +│ skipped", shown)


def test_options_without_a_match_is_an_exit_code() -> None:
    done = run("options", "tiemout")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no option matches 'tiemout'" in done.stderr


def test_the_options_that_a_hint_names_are_listed() -> None:
    done = run("options", "linger.sm")
    assert "(hint: did you mean kafka.linger.ms? 'kprod options' lists all of them)" in done.stderr
    for arguments in (("options", "kafka.linger.ms"), ("options",)):
        listed = run(*arguments)
        assert listed.exit_code == 0
        assert "kafka.linger.ms" in listed.stdout
