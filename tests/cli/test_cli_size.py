"""``kprod size``: what a write takes. A real worker is measured in test_size_of_a_worker.py."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from spark_kafka_sink.cli.app import app

MIB = 1 << 20
PAGE = Path(__file__).resolve().parents[2] / "docs" / "clusters.md"


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["size", "--tasks", "200", "--leaders", "12", *arguments])
    assert result.exit_code == code, result.output
    return result


def figures(*arguments: str) -> dict[str, int]:
    told: dict[str, int] = json.loads(run(*arguments, "--json").stdout)
    return told


def test_connections_are_tasks_times_leaders_and_the_drivers():
    told = figures()
    assert (told["connections"], told["driverConnections"]) == (2400, 26)
    assert told["connectionsPerBroker"] == 204
    assert told["executors"] == 50
    assert figures("--cores", "7")["executors"] == 29


def test_a_worker_has_its_buffer_and_two_arrow_batches():
    base = figures("--row-bytes", "100")
    assert base["arrowBatchBytes"] == 1_000_000
    more = figures("--row-bytes", "100", "--buffer-memory", "128m")
    assert more["workerBytes"] - base["workerBytes"] == 96 * MIB
    wide = figures("--row-bytes", "1000")
    assert wide["workerBytes"] - base["workerBytes"] == 2 * 9_000_000


def test_an_arrow_batch_is_bounded_by_bytes_where_spark_does_so():
    assert figures("--row-bytes", "100k")["arrowBatchBytes"] == 64 * MIB + 100 * 1024
    unbounded = figures("--row-bytes", "100k", "--arrow-bytes", "0")
    assert unbounded["arrowBatchBytes"] == 10_000 * 100 * 1024


def test_the_overhead_is_all_workers_and_the_jvms_own():
    few, many = figures("--cores", "1"), figures("--cores", "4")
    each = few["workerBytes"] + 64 * MIB
    assert many["executorMemoryOverheadBytes"] - few["executorMemoryOverheadBytes"] == 3 * each
    large = figures("--cores", "1", "--executor-memory", "10g")
    jvm = large["executorMemoryOverheadBytes"] - few["executorMemoryOverheadBytes"]
    assert jvm == 1024 * MIB - int(0.1 * 4096 * MIB)


def test_people_read_the_setting_as_spark_takes_it():
    overhead = figures()["executorMemoryOverheadBytes"]
    assert f"{-(-overhead // MIB)}m" in run().stdout


@pytest.mark.parametrize("size", ["32 M", "a", "-1", "1.5g", ""])
def test_a_size_that_is_none_is_refused(size):
    assert "is no size" in run("--buffer-memory", size, code=2).stderr


def test_the_page_shows_what_it_says(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = PAGE.read_text("utf-8")
    (command, shown), *_ = re.findall(r"^\$ kprod (size .*)\n((?:.+\n)+?)```", text, re.MULTILINE)
    told = CliRunner().invoke(app, shlex.split(command)).stdout
    rows = [" ".join(re.split(r"\s*\u2502\s*", line)).split() for line in told.splitlines()]
    for line in shown.splitlines():
        assert line.split() in rows
