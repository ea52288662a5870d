"""``kprod report``: files of reports, as they are and as they should not be."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.cli.app import app
from spark_kafka_sink.datasource.report.destinations import publish
from spark_kafka_sink.datasource.report.report_of_batch import report_of_batch
from spark_kafka_sink.datasource.report.write_report import WriteOutcome
from tests.datasource.commit_messages import config, message
from tests.monitoring.reports import failed, report
from tests.real_kafka import RealKafka

WAITS = {"inputWaitMs": 300, "bufferWaitMs": 5_000, "metadataWaitMs": 0, "brokerWaitMs": 700}


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["report", *arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Three batches, the failed one in the middle, not in the order of their time."""
    found = [
        report(9, writtenAtMs=1_700_000_009_000, lostAttempts=1, **WAITS),
        report(7, writtenAtMs=1_700_000_007_000, rows=77),
        failed("KP0301", batchId=8, writtenAtMs=1_700_000_008_000),
    ]
    path = tmp_path / "reports.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in found))
    return path


def test_the_last_report_is_shown_with_units_and_waits(lines: Path) -> None:
    shown = run("show", str(lines)).stdout
    assert "Batch orders 9" in shown
    assert "5000 ms" in shown
    assert "buffer.memory was used up" in shown
    assert "id=1, requests=2, meanLatencyMs=4.0, maxLatencyMs=9" in shown
    assert "Tasks waited most for memory, because brokers took less than Spark gave" in shown
    assert "bufferWaitMs is 5000 of 6000 ms" in shown


def test_a_report_begins_with_lines_that_answer(lines: Path) -> None:
    said = run("show", str(lines)).stdout.splitlines()[:5]
    assert said[0] == "orders 9: committed, 100 rows"
    assert said[1].startswith("written: 2023-11-14 ")
    assert said[2] == "tasks: 0, failed attempts: 0, lost attempts: 1, dead letters: 0"
    assert said[3] == "sent: 2000 bytes in 4 batches and 3 requests, retried: 1"
    assert said[4].startswith("Tasks waited most for memory")


def test_the_table_of_reports_fits_100_columns(lines: Path) -> None:
    """Its headers were broken within words: ``inputW`` ``aitMs``."""
    shown = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["report", "tail", str(lines)]).stdout
    assert "longest wait" in shown
    assert "buffer 5000 ms" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_path_and_topic_exclude_each_other(lines: Path) -> None:
    assert "give PATH, or --topic" in run("show", code=2).stderr
    both = run("tail", str(lines), "--topic", "reports", "-b", "b:1", code=2)
    assert "give PATH, or --topic" in both.stderr


@pytest.mark.broker
def test_reports_are_read_from_their_topic(kafka: RealKafka) -> None:
    """As the option reportTopic writes them; a record that is no report is named."""
    topic = kafka.unique_topic("reports")
    with KafkaProducer({"bootstrap.servers": kafka.bootstrap}) as producer:
        for one in (report(7), report(8, writtenAtMs=1_700_000_009_000)):
            producer.send(ProducerRecord(topic, json.dumps(one).encode()))
        producer.send(ProducerRecord(topic, b"no report"))
        producer.flush()
    given = ("--topic", topic, "-b", kafka.bootstrap)
    shown = run("show", *given)
    assert shown.stdout.startswith("orders 8: committed")
    assert "partition 0, offset 2" in shown.stderr
    assert "orders 7" in run("tail", *given).stdout


def test_a_batch_is_found_by_its_number(lines: Path) -> None:
    assert json.loads(run("show", str(lines), "--batch", "7", "--json").stdout)["rows"] == 77
    failed = run("show", str(lines), "--batch", "8").stdout
    assert "code=KP0301" in failed
    assert "More: kprod explain KP0301" in failed
    assert "Tasks waited most" not in failed
    assert "has no report of batch 3" in run("show", str(lines), "--batch", "3", code=2).stderr


def test_the_last_ones_are_lines_in_the_order_of_time(lines: Path) -> None:
    shown = run("tail", str(lines)).stdout
    assert shown.index("orders 7") < shown.index("orders 8") < shown.index("orders 9")
    assert "KP0301" in shown
    shown = run("tail", str(lines), "-n", "1").stdout
    assert "orders 9" in shown
    assert "orders 8" not in shown


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_the_report_of_a_commit_counts_more_than_its_aborts(
    tmp_path: Path, first: int, second: int
) -> None:
    """The commit was stopped, and has ended well. Reports without an id are of different runs."""
    found = [
        report(6, writtenAtMs=1, rows=66),
        report(7, writtenAtMs=1 + first, reportId="a", rows=77),
        report(7, writtenAtMs=1 + second, reportId="a", outcome="unknown"),
        report(8, writtenAtMs=1, outcome="aborted", reportId=["b"]),
    ]
    for number, one in enumerate(found):
        (tmp_path / f"{number}.json").write_text(json.dumps(one))
    assert json.loads(run("show", str(tmp_path), "--json").stdout)["rows"] == 77
    shown = run("tail", str(tmp_path)).stdout
    assert [shown.count(f"orders {number}") for number in (6, 7, 8)] == [1, 1, 1]
    assert "unknown" not in shown


@pytest.mark.parametrize("outcomes", [("committed", "partial"), ("partial", "committed")])
def test_a_partial_report_counts_more_than_a_committed_one(
    tmp_path: Path, outcomes: tuple[str, str]
) -> None:
    """In a topic, the batch of a partial commit can have both."""
    found = [report(7, reportId="a", outcome=one) for one in outcomes]
    path = tmp_path / "reports.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in found))
    assert json.loads(run("show", str(path), "--json").stdout)["outcome"] == "partial"


def test_a_folder_has_a_report_in_each_file(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.json").write_text(json.dumps(report(number, writtenAtMs=number)))
    (tmp_path / "notes.txt").write_text("no report")
    assert "orders 2" in run("show", str(tmp_path)).stdout


def test_a_folder_without_reports_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its name, and as the folder that one is in: a dot has no name of its own."""
    monkeypatch.chdir(tmp_path)
    for place in (".", "..", str(tmp_path)):
        assert f"'{place}' has no report" in run("show", place, code=2).stderr
        assert run("tail", place).stdout == f"'{place}' has no report yet\n"


def test_a_last_line_that_is_being_written_is_left_out(lines: Path) -> None:
    with lines.open("a") as file:
        file.write('{"reportVersion": 1, "rows"')
    assert "Batch orders 9" in run("show", str(lines)).stdout


@pytest.mark.parametrize(
    "line",
    [b"{}", b"[1]", b"no json", b'{"reportVersion": 2}', b"[" * 100_000, b"\xff\0", b"caf\xc3"],
    ids=["empty", "list", "text", "later version", "deep", "binary", "cut in a character"],
)
def test_what_is_no_report_is_named_and_skipped(lines: Path, line: bytes) -> None:
    """A disk that was full once left a part of a line: the others are still there."""
    before = lines.read_bytes()
    lines.write_bytes(line + b"\n\n" + before)
    found = run("show", str(lines), "--json")
    assert json.loads(found.stdout)["batchId"] == 9
    assert "no report of version 1: " in found.stderr
    assert "reports.jsonl', line 1\n" in found.stderr
    lines.write_bytes(line + b"\n")
    assert "line 1" in run("show", str(lines), code=2).stderr
    assert "line 1" in run("tail", str(lines), code=2).stderr


@pytest.mark.parametrize("time", [10**30, -(10**18), "noon", None])
def test_a_report_with_no_possible_time_is_shown(tmp_path: Path, time: object) -> None:
    path = tmp_path / "reports.jsonl"
    path.write_text(json.dumps(report(5, writtenAtMs=time)) + "\n")
    assert "Batch orders 5" in run("show", str(path)).stdout
    assert "orders 5" in run("tail", str(path)).stdout


def test_of_many_reports_only_the_last_are_kept(tmp_path: Path) -> None:
    """All of a large file would take ten times its size, on the machine of a driver."""
    path = tmp_path / "reports.jsonl"
    path.write_text("".join(json.dumps(report(n, writtenAtMs=n)) + "\n" for n in range(1_000)))
    tracemalloc.start()
    try:
        assert "orders 999" in run("tail", str(path), "-n", "3").stdout
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * path.stat().st_size + 2_000_000


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    errors = run("show", str(tmp_path / "none.jsonl"), code=2).stderr
    assert "can't be read: No such file or directory" in errors
    assert errors.count("\n") == 1


def test_the_report_path_of_a_write_is_shown(tmp_path: Path) -> None:
    """As both hints have it: of a path that is not there, and of a file without reports."""
    place = tmp_path / "reports.jsonl"
    told = run("show", str(place), code=2).stderr
    assert "PATH is the value of the option reportPath of the write, on the driver" in told
    other = tmp_path / "notes.txt"
    other.write_text("no report\n")
    told = run("show", str(other), code=2).stderr
    assert "the option reportPath writes files of reports" in told
    written = report_of_batch(config(), [message()], WriteOutcome.ACKNOWLEDGED)
    publish(written, config(reportPath=str(place)))
    shown = json.loads(run("show", str(place), "--json").stdout)
    assert shown["reportId"] == written.report_id


def test_times_are_dates_and_counts_are_counts(tmp_path: Path) -> None:
    path = tmp_path / "reports.jsonl"
    of_one = {"tasks": 1, "unfinished": [0], "writtenAtMs": 1_700_000_009_000, "retries": 0}
    path.write_text(json.dumps(report(0, **of_one)) + "\n")
    shown = run("show", str(path)).stdout
    assert "1700000009000" not in shown
    assert "2023-11-14" in shown or "2023-11-15" in shown
    assert "1 task " in shown
    assert "task 0" in shown
    assert "Batch orders 0" in shown
    assert "retries" not in shown, "a zero says nothing"


def test_the_file_before_the_last_rotation_is_read_too(lines: Path) -> None:
    lines.rename(f"{lines}.1")
    lines.write_text(json.dumps(report(10, writtenAtMs=1_700_000_010_000)) + "\n")
    assert "Batch orders 10" in run("show", str(lines)).stdout
    assert "orders 7" in run("tail", str(lines)).stdout


def test_a_folder_that_changes_meanwhile_is_read(tmp_path: Path) -> None:
    """Reports are deleted when they are old, and a new one has a hidden name until it is whole."""
    (tmp_path / "1.json").write_text(json.dumps(report(1, writtenAtMs=1)) + "\n")
    (tmp_path / ".2.json.0a1b2c3d.tmp").write_text(json.dumps(report(2, writtenAtMs=2)) + "\n")
    (tmp_path / "3.json").symlink_to(tmp_path / "deleted")  # as one that is gone when it is read
    found = run("show", str(tmp_path), "--json")
    assert json.loads(found.stdout)["batchId"] == 1
    assert found.stderr == ""


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "reports.jsonl")
    errors = run("show", str(tmp_path / "reports.jsonl"), code=2).stderr
    assert "can't be read: it is a FIFO" in errors
