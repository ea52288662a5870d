"""Bars for what takes longer than a second: on a terminal's standard error, and nowhere else."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from rich.console import Console

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import KafkaTimeoutError
from spark_kafka_sink.cli.progress import Bar, bar
from spark_kafka_sink.config.parsing import parse_sink_config
from tests.monitoring.reports import report
from tests.real_kafka import RealKafka

ROOT = Path(__file__).parents[2]


class Terminal:
    """What is drawn, and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.drawn = io.StringIO()
        self.now_s = 100.0

    def bar(self) -> Bar:
        console = Console(file=self.drawn, force_terminal=True, width=80, color_system=None)
        return Bar(console, "asking brokers", lambda: self.now_s)


def test_what_takes_less_than_a_second_has_no_bar() -> None:
    terminal = Terminal()
    told = terminal.bar()
    told(0, 10)
    terminal.now_s += 0.9
    told(9, 10)
    told(10, 10)
    terminal.now_s += 60
    told(0, 10)
    told(10, 10)
    assert terminal.drawn.getvalue() == "", "the next one has a second of its own"


def test_a_bar_counts_and_is_wiped_away() -> None:
    terminal = Terminal()
    told = terminal.bar()
    told(0, 10)
    terminal.now_s += 1.0
    told(3, 10)
    assert "asking brokers" in terminal.drawn.getvalue()
    assert "3/10" in terminal.drawn.getvalue()
    told(10, 10)
    assert terminal.drawn.getvalue().endswith("\x1b[2K"), "the line is erased"
    assert "10/10" not in terminal.drawn.getvalue().rpartition("\x1b[2K")[2]


def test_a_file_a_pipe_and_json_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not isinstance(bar("asking brokers", as_json=False), Bar)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert isinstance(bar("asking brokers", as_json=False), Bar)
    assert not isinstance(bar("asking brokers", as_json=True), Bar)


def test_progress_shows_each_step_and_its_end(kafka: RealKafka) -> None:
    config = parse_sink_config({"kafka.bootstrap.servers": kafka.bootstrap})
    told: list[tuple[int, int]] = []
    with TransactionClient(config.producer) as client:
        client.loop.on_progress = lambda done, total: told.append((done, total))
        ids = [f"nobody-{uuid.uuid4().hex[:8]}" for _ in range(40)]
        client.describe(ids, client.deadline())
        assert told[-1][0] == told[-1][1]
        assert {total for _, total in told} - {0}
        assert all(0 <= done <= total for done, total in told)
        told.clear()
        with pytest.raises(KafkaTimeoutError):
            client.describe(ids, client.deadline(0))
        assert told[-1][0] == told[-1][1], "the bar of a run that failed goes away, too"


def test_progress_is_drawn_on_a_terminals_standard_error_only(
    tmp_path: Path,
) -> None:
    """Many reports, and a folder that takes longer than a second to read."""
    folder = tmp_path / "reports"
    folder.mkdir()
    line = json.dumps(report(1, partitions=[{"topic": "t", "partition": 0}] * 400)) + "\n"
    for number in range(60):
        (folder / f"{number}.json").write_text(line * 20)
    ours, terminal = pty.openpty()
    script = (
        "import sys, spark_kafka_sink.cli.progress as p; p._AFTER_S = 0.0;"
        "from spark_kafka_sink.cli.app import app; app()"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", script, "report", "tail", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=terminal,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "200"},
    )
    os.close(terminal)
    drawn = b""
    try:
        while part := os.read(ours, 1 << 16):
            drawn += part
    except OSError:  # Linux: the other end is closed
        pass
    os.close(ours)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert b"reading reports" in drawn
    assert b"/60" in drawn
    assert b"reading reports" not in out
    assert b"Reports (10)" in out
