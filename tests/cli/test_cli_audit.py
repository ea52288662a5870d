"""``kprod audit``: its output, its exit codes and its arguments, on a real broker."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from spark_kafka_sink import WriteReport
from spark_kafka_sink.cli.app import app
from tests.datasource.jobs.audited_writes import (
    aborted,
    committed,
    producer_to,
    reported,
    send,
    written,
)
from tests.real_kafka import RealKafka


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["audit", *arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def written_report(kafka: RealKafka) -> WriteReport:
    return replace(written(kafka, kafka.unique_topic("audit", 1)), txn_version=7)


def path_of(folder: Path, *reports: WriteReport) -> str:
    """A file of reports, the oldest first."""
    path = folder / "reports.jsonl"
    path.write_text("".join(one.json() + "\n" for one in reports))
    return str(path)


def lying(report: WriteReport, rows: int) -> WriteReport:
    assert report.audit is not None
    return replace(report, rows=rows, audit=replace(report.audit, rows=(rows,)))


def test_the_last_report_is_audited(
    kafka: RealKafka, written_report: WriteReport, tmp_path: Path
) -> None:
    found = run("--report", path_of(tmp_path, written_report), "-b", kafka.bootstrap)
    assert found.stdout == "30 of 30 in 1 partition: complete\n"
    lie = replace(lying(written_report, 31), written_at_ms=written_report.written_at_ms + 1)
    path = path_of(tmp_path, written_report, replace(lie, txn_version=8))
    missing = run("--report", path, "-b", kafka.bootstrap, code=3)
    assert missing.stdout.startswith("30 of 31 in 1 partition: missing\n")
    run("--report", path, "-b", kafka.bootstrap, "--batch", "7")


def test_scripts_get_json_and_a_code_for_each_kind_of_verdict(
    kafka: RealKafka, written_report: WriteReport, tmp_path: Path
) -> None:
    path = path_of(tmp_path, lying(written_report, 31))
    found = json.loads(run("-r", path, "-b", kafka.bootstrap, "--json", code=3).stdout)
    assert (found["verdict"], found["claimed"], found["found"]) == ("missing", 31, 30)
    (partition,) = found["partitions"]
    assert (partition["verdict"], partition["checksum"]) == ("missing", False)
    assert (partition["firstOffset"], partition["lastOffset"]) == (0, 29)
    gone = json.loads(written_report.json().replace(written_report.topics[0], "no-such-topic"))
    Path(path).write_text(json.dumps(gone))
    assert "gone" in run("-r", path, "-b", kafka.bootstrap, code=4).stdout
    unlisted = replace(written_report, rows=35)
    shown = run("-r", path_of(tmp_path, unlisted), "-b", kafka.bootstrap, code=5).stdout
    assert "5 more rows are in partitions that the report does not list" in shown


def test_a_sample_is_said_to_be_one(
    kafka: RealKafka, written_report: WriteReport, tmp_path: Path
) -> None:
    path = path_of(tmp_path, written_report)
    arguments = ("--report", path, "-b", kafka.bootstrap, "--sample", "--seed", "3")
    first, second = (run(*arguments).stdout for _ in range(2))
    assert first == second
    assert "a sample was read): sampled" in first


def test_an_audit_shows_what_it_has_compared_within_its_time(
    kafka: RealKafka, tmp_path: Path
) -> None:
    """The rows of a partition are hidden by an open transaction, for which --timeout would wait. It
    said "not done within", and nothing of the partition that is complete.
    """
    topic = kafka.unique_topic("audit", 2)
    other, ours = producer_to(kafka), producer_to(kafka)
    send(other, topic, 1, [b"open"])
    for partition in (0, 1):
        send(ours, topic, partition, [b"row"] * 30)
    report = path_of(tmp_path, reported(committed(ours)))
    arguments = ("-r", report, "-b", kafka.bootstrap, "--timeout", "600", "--within", "5")
    begun = time.monotonic()
    shown = run(*arguments, code=5).stdout
    assert time.monotonic() - begun < 30
    first, told, *rest = shown.splitlines()
    assert first == "30 of 60 in 2 partitions: unread"
    assert told.endswith("incomplete: 1 of 2 partitions were not read to their end.")
    assert "the time for the audit is over" in "".join(rest)
    found = json.loads(run(*arguments, "--json", code=5).stdout)
    assert [one["verdict"] for one in found["partitions"]] == ["complete", "unread"]
    assert found["timeIsOver"]
    aborted(other)
    assert "60 of 60" in run(*arguments).stdout


def test_wrong_input_is_one_line(tmp_path: Path) -> None:
    """Found before any broker is asked."""
    here = ("-b", "127.0.0.1:1")
    assert "give --report PATH, or --report-topic TOPIC" in run(*here, code=2).output
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"reportVersion": 1, "rows": "many"}))
    assert "this is not a report of a write" in run("--report", str(path), *here, code=2).stderr
