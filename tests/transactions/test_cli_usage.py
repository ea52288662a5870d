"""``kprod`` without a broker: wrong usage, a cluster that isn't there, what is shown of strange
names, and an installation without the extra.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import spark_kafka_sink
from spark_kafka_sink.admin.transaction_description import TransactionDescription, TransactionState
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.cli import connection
from spark_kafka_sink.cli.app import app
from spark_kafka_sink.cli.arguments import Where
from spark_kafka_sink.cli.connection import settings_of
from spark_kafka_sink.cli.show import (
    age,
    phase_of,
    report_json,
    show_open,
    show_overview,
    show_report,
)
from spark_kafka_sink.cli.txn import txn_commands
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_state import CommitState, Decision, Standing
from spark_kafka_sink.transactions.operations.inspection import KeyReport, OpenTransaction, Overview
from spark_kafka_sink.transactions.transactional_ids import TransactionalId
from tests.programs import run_python

ROOT = Path(__file__).parents[2]
COMMANDS = txn_commands.app.registered_commands
NOBODY = ("-b", "127.0.0.1:1", "--timeout", "0.3")


def test_without_the_extra_one_line_names_it() -> None:
    """-S leaves everything out that is installed."""
    run = run_python("-S", "-m", "spark_kafka_sink.cli", "txn", "list", "p", fails=True)
    assert run.returncode == 1
    assert run.stdout == ""
    assert run.stderr == (
        "kprod: typer and rich not installed: pip install 'spark-kafka-sink[cli]'\n"
    )


def test_an_unreachable_cluster_is_one_line() -> None:
    run = run_python("-m", "spark_kafka_sink.cli", "txn", "list", "p", *NOBODY, fails=True)
    assert run.returncode == 1
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith(
        "kprod: [KP0301] no broker answered within 300 ms; tried 127.0.0.1:1: Connection refused"
    )
    assert run.stderr.endswith("see kprod explain KP0301)\n")


def test_an_unreachable_cluster_fails_long_before_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """--timeout is for brokers that are slow; a wait says for what."""
    assert connection._MOST_TO_CONNECT <= 15
    monkeypatch.setattr(connection, "_MOST_TO_CONNECT", 0.5)
    monkeypatch.setattr(connection, "_NOTICE_AFTER_S", 0.01)
    for command in (["list", "p"], ["abort", "p~r~g2.w~1", "--yes"], ["reset", "p", "--yes"]):
        result = CliRunner().invoke(app, ["txn", *command, "-b", "127.0.0.1:1", "--timeout", "600"])
        assert result.exit_code == 1
        waits, said = result.stderr.splitlines()
        assert waits == "kprod: waiting for an answer of 127.0.0.1:1 (0.5 s at most) ..."
        assert said.startswith(
            "kprod: [KP0301] no broker answered within 500 ms; tried 127.0.0.1:1"
        )


def test_a_configuration_warning_is_a_line_before_the_error(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("acks=1\nsecurity.protocol=SSL\nssl.endpoint.identification.algorithm=\n")
    run = CliRunner().invoke(app, ["txn", "list", "p", *NOBODY, "-c", str(file)])
    first, second, last = run.stderr.splitlines()
    assert first.startswith("kprod: warning: [KP0153] ssl.endpoint.identification.algorithm (in ")
    assert "is empty: brokers' names are not compared" in first
    assert second.startswith("kprod: warning: [KP0152] deliveryGuarantee is none because acks (in ")
    assert not last.startswith("kprod: warning")


def test_the_commit_log_is_the_configs_unless_one_is_given(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=127.0.0.1:1\ndeliveryGuarantee=exactly_once\ncommitLogTopic=theirs\n"
    )
    for arguments, topic in (((), "theirs"), (("--log-topic", "other"), "other")):
        where = Where(None, file, arguments[1] if arguments else None, 0.3)
        assert settings_of(where)[1] == topic


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["list", "p"], "which cluster? Give --bootstrap-servers HOST:PORT, or --config FILE"),
        (["list", "p", "-b", "host"], "the port is missing"),
        (["list", "p", "-c", "/no/such.properties"], "can't be read"),
        (["list", "p~q", *NOBODY], "PREFIX is 'p~q'"),
        (["describe", "p~q~r", *NOBODY], "it is a prefix, or prefix~name"),
        (["commit", "p q", "--yes", *NOBODY], "KEY is 'p q'"),
        (["reset", "~", "--yes", *NOBODY], "KEY is ''"),
        (["abort", "p~~log", "--yes", *NOBODY], "'p~~log' is not the transactional id of a task"),
        (["abort", "--yes", *NOBODY], "give transactional ids, or --run RUN with --prefix"),
        (["abort", "--run", "r", *NOBODY], "give transactional ids, or --run RUN with --prefix"),
        (["abort", "p~r~1", "--prefix", "p", *NOBODY], "give transactional ids, or --run RUN"),
        (["sweep", "p", "--older-than", "15", *NOBODY], "'15' is no time"),
        (["sweep", "p", "--json", *NOBODY], "--json does not prompt: give --yes, or --dry-run"),
        (["resolve", "p", "--batch", "1", *NOBODY], "--as"),
        (["resolve", "p", "--batch", "1", "--as", "lost", *NOBODY], "--as"),
        (["resolve", "p", "--as", "done", *NOBODY], "--batch"),
        (["resolve", "p", "--batch", "-1", "--as", "done", *NOBODY], "--batch"),
        *((["list", "p", "--timeout", t, *NOBODY[:2]], "--timeout") for t in ("0", "inf", "nan")),
        (["abort", "--run", "", "--prefix", "p", *NOBODY], "RUN is ''"),
        (["sweep"], "PREFIX"),
        (["explode"], "explode"),
    ],
)
def test_wrong_usage_ends_with_2_before_any_broker_is_asked(
    arguments: list[str], told: str
) -> None:
    result = CliRunner(env={"COLUMNS": "400", "TERM": "dumb"}).invoke(app, ["txn", *arguments])
    assert result.exit_code == 2, result.output
    assert told in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_a_config_has_the_servers_and_ignored_options_are_named(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\ngroup.id=mine\nacks=1\n")
    runner = CliRunner()
    result = runner.invoke(app, ["txn", "list", "p", "-c", str(file), "--timeout", "0.3"])
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.stderr
    assert "kprod: warning: " in result.stderr
    assert "group.id" in result.stderr
    # The command line wins.
    result = runner.invoke(app, ["txn", "list", "p", "-c", str(file), "-b", "nowhere"])
    assert result.exit_code == 2
    assert "bootstrap.servers: nowhere" in result.stderr


def test_every_command_that_a_hint_names_exists() -> None:
    """Those of pages: docs/test_names_in_the_pages.py."""
    named = {
        command
        for path in (ROOT / "spark_kafka_sink").rglob("*.py")
        for command in re.findall(r"['`]kprod txn ([a-z-]+)", path.read_text(encoding="utf-8"))
    }
    assert named >= {"reset", "resolve", "describe"}
    assert named <= {command.name or command.callback.__name__ for command in COMMANDS}


def test_the_version_is_shown() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"{spark_kafka_sink.__version__}\n")


def test_a_name_from_the_log_does_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    state = CommitState(generation=1, run_id="\x1b[2J[red]run", superseded=("\x07", "r[/]"))
    show_report(KeyReport("key", state))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\\x1b[2J[red]run" in shown
    assert "\\x07" in shown
    assert "r[/]" in shown


def test_the_generations_of_the_last_take_over_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A batch of the owner that was planned between them is superseded."""
    state = CommitState().taken_over("run-1", "q", 6)
    for one, told in ((state, [0, 6]), (state.taken_over("run-2", "q", 1), [6, 7])):
        assert report_json(KeyReport("key", one))["takeOver"] == told
        show_report(KeyReport("key", one))
        assert re.search(
            rf"last take-over +│ generation {told[0]} to {told[1]} ", capsys.readouterr().out
        )
    assert report_json(KeyReport("key", CommitState()))["takeOver"] is None
    show_report(KeyReport("key", CommitState()))
    assert "take-over" not in capsys.readouterr().out


def test_a_broker_that_gave_no_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is said to be open or not: its transactions are not known."""
    show_overview("orders", "commits", Overview((), {}, silent=("node 2 at b-2:9092",)))
    shown = capsys.readouterr().out
    assert "No answer from node 2 at b-2:9092: the list lacks its transactions." in shown
    assert "is open" not in shown


def test_a_phase_names_its_batch_and_how_many_are_lost() -> None:
    ids = ("p~r~g2.w~0", "p~r~g2.w~1")
    decided = CommitState(last_done=7).decided(
        Decision(8, tuple(PreparedTransaction(i, 1, 0, 2) for i in ids))
    )
    assert phase_of(CommitState(last_done=7)) == "DONE, last batch 7"
    assert phase_of(decided) == "DECIDED 8"
    assert phase_of(decided.partly_lost(ids[:1])) == "PARTIAL 8, 1 lost"


def test_a_long_table_says_how_much_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    found = TransactionDescription(ErrorCode.NONE, "", TransactionState.ONGOING)
    rows = [
        OpenTransaction(TransactionalId("p", "r", "w", k, 2), found, Standing.UNKNOWN, None, None)
        for k in range(103)
    ]
    show_open("Open", rows)
    shown = capsys.readouterr().out
    assert "Open (103)" in shown
    assert "p~r~g2.w~99 " in shown
    assert "p~r~g2.w~100" not in shown
    assert "+3 more; --json shows all" in shown


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250ms", 250), ("90s", 90_000), ("15m", 900_000), (" 2h ", 7_200_000), ("1d", 86_400_000)],
)
def test_a_time_is_a_number_with_its_unit(text: str, milliseconds: int) -> None:
    assert txn_commands.duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "m", "15", "-1s", "1.5h", "15 m", "1w", "9" * 13 + "s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no time"):
        txn_commands.duration_ms(text)


def test_an_age_is_shown_in_its_two_largest_units() -> None:
    shown = {ms: age(ms) for ms in (0, 999, 61_000, 3_600_000, 90_061_000)}
    assert json.dumps(list(shown.values())) == json.dumps(
        ["0 s", "0 s", "1 min 1 s", "1 h", "1 d 1 h"]
    )
    assert age(None) == "unknown"
