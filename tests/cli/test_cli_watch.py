"""``--watch``: looks again until Ctrl-C, which is no failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.monitoring.reports import report
from tests.transactions.operator_stage import Stage

ROOT = Path(__file__).parents[2]


def watch(*arguments: str, after_one: Callable[[], str]) -> None:
    """Until a later look shows what ``after_one`` gives, which is called after the first one has
    begun; then Ctrl-C.
    """
    command = [sys.executable, "-m", "spark_kafka_sink.cli"]
    running = subprocess.Popen(
        [*command, *arguments, "--watch"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "300"},
    )
    assert running.stdout is not None
    looks, wanted, seen = 0, None, False
    try:
        for line in running.stdout:
            looks += "Ctrl-C ends it" in line
            if looks == 1 and wanted is None:
                wanted = after_one()
            seen = wanted is not None and looks > 1 and wanted in line
            if seen:
                break
    finally:
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert seen, errors
    assert running.returncode == 0, errors
    assert "Traceback" not in errors


def test_reports_that_come_later_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "reports.jsonl"
    path.write_text(json.dumps(report(1)) + "\n")

    def another() -> str:
        with path.open("a") as file:
            file.write(json.dumps(report(2)) + "\n")
        return "orders 2"

    watch("report", "tail", str(path), after_one=another)


@pytest.mark.parametrize("words", [("list",), ("list", "PREFIX")])
def test_a_transaction_that_is_opened_later_is_shown(stage: Stage, words: tuple[str, ...]) -> None:
    about = [stage.prefix if word == "PREFIX" else word for word in words]
    where = ["-b", stage.kafka.bootstrap, "--log-topic", stage.log_topic]
    watch("txn", *about, *where, after_one=lambda: stage.open(1)[0].transactional_id)


def test_a_watch_for_blockers_goes_on_while_there_is_none(stage: Stage) -> None:
    where = ["-b", stage.kafka.bootstrap, "--log-topic", stage.log_topic]
    watch("txn", "blockers", stage.topic, *where, after_one=lambda: "no consumer waits")


def test_a_watch_has_no_json(stage: Stage) -> None:
    result = stage.run("blockers", stage.topic, "--watch", "--json", code=2)
    assert "--json" in result.output
