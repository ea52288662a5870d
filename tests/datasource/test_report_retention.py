"""reportPathRetentionBytes and reportPathRetentionMs: which reports are kept."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security import allow_lists, local_files
from spark_kafka_sink.datasource.report.destinations import publish
from spark_kafka_sink.datasource.report.report_file import file_name, write_report_file
from spark_kafka_sink.datasource.report.report_of_batch import report_of_batch
from spark_kafka_sink.datasource.report.retention import Retention
from spark_kafka_sink.datasource.report.write_report import Outcome
from tests.datasource.commit_messages import config, message

HOUR = 3_600_000
NOW = 1_700_000_000_000


def report(number=0, at=NOW):
    made = report_of_batch(
        config(), [message(task_attempt_id=number)], Outcome.ACKNOWLEDGED, batch_id=number
    )
    return replace(made, written_at_ms=at)


def batches(*files):
    return [
        json.loads(line)["batchId"]
        for file in files
        if file.exists()
        for line in file.read_text().splitlines()
    ]


def test_a_file_takes_no_more_bytes_than_asked(tmp_path):
    """And at least the half of it, once there was as much."""
    path, former = tmp_path / "r.jsonl", tmp_path / "r.jsonl.1"
    limit = 20 * len(report().json())
    for number in range(100):
        publish(report(number), config(reportPath=str(path), reportPathRetentionBytes=str(limit)))
        kept = batches(former, path)
        assert kept == list(range(number + 1 - len(kept), number + 1))
        assert len(kept) >= min(number + 1, 9)
        assert sum(one.stat().st_size for one in tmp_path.iterdir()) <= limit * 1.1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["r.jsonl", "r.jsonl.1"]


def test_a_file_has_no_reports_older_than_asked(tmp_path):
    path, former = tmp_path / "r.jsonl", tmp_path / "r.jsonl.1"
    for hour in range(48):
        now = NOW + hour * HOUR
        write_report_file(str(path), report(hour, now), Retention(None, 8 * HOUR, lambda: now))  # noqa: B023
        os.utime(path, (now / 1000, now / 1000))
        kept = batches(former, path)
        assert kept == list(range(hour + 1 - len(kept), hour + 1))
        assert min(hour + 1, 4) <= len(kept) <= 8


def test_without_retention_nothing_is_renamed_or_deleted(tmp_path):
    path = tmp_path / "r.jsonl"
    former = tmp_path / "r.jsonl.1"
    former.write_text("somebody else's\n")
    os.utime(former, (0, 0))
    for number in range(3):
        publish(report(number, 0), config(reportPath=str(path)))
    assert batches(path) == [0, 1, 2]
    assert former.read_text() == "somebody else's\n"


def test_a_file_that_had_grown_too_large_goes_on(tmp_path, monkeypatch):
    """Without retention it ends there."""
    monkeypatch.setattr(local_files, "MAX_REPORT", 100)
    path = tmp_path / "r.jsonl"
    path.write_text("x" * 200 + "\n")
    publish(report(7), config(reportPath=str(path), reportPathRetentionBytes="100"))
    assert batches(path) == [7]


def test_writers_at_once_lose_no_report(tmp_path):
    """Each finds the file full; one renames it. The limit is that of two files of five reports."""
    path = tmp_path / "r.jsonl"
    former = tmp_path / "r.jsonl.1"
    for number in range(5):
        write_report_file(str(path), report(number))
    limit = Retention(path.stat().st_size * 2)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: write_report_file(str(path), report(n), limit), range(5, 9)))
    assert sorted(batches(former, path)) == list(range(9))


def test_a_file_that_another_writer_renames_is_begun_anew(tmp_path):
    """Between the other one's rename and its new file there is none of that name."""
    path, former = tmp_path / "r.jsonl", tmp_path / "r.jsonl.1"
    path.write_text("old\n")

    def full(_: int) -> bool:
        path.rename(former)
        return True

    local_files.append_line(str(path), b"new\n", None, full)
    assert (former.read_text(), path.read_text()) == ("old\n", "new\n")


def test_a_new_file_that_two_begin_has_no_empty_line(tmp_path):
    """It is empty when one asks for its size, and has the other one's line a moment later."""
    path = tmp_path / "r.jsonl"

    def written_by_another(_: str) -> None:
        if path.exists() and path.stat().st_size == 0:
            path.write_bytes(b"first\n")

    local_files.append_line(str(path), b"second\n", written_by_another)
    assert path.read_text() == "first\nsecond\n"


def test_a_renamed_file_is_in_an_allowed_path_too(tmp_path, monkeypatch, caplog):
    path = tmp_path / "r.jsonl"
    lists = allow_lists.read_lists({allow_lists.REPORT_PATHS: str(path)})
    monkeypatch.setattr(allow_lists, "_LISTS", lists)
    for number in range(2):
        publish(report(number), config(reportPath=str(path), reportPathRetentionBytes="1"))
    assert "KPROD_ALLOWED_REPORT_PATHS" in caplog.text
    assert batches(path) == [0]
    assert not (tmp_path / "r.jsonl.1").exists()


# --- directories ----------------------------------------------------------------------------------


def names(folder):
    return sorted(one.name for one in folder.iterdir())


def test_a_directory_keeps_the_newest_reports_by_age(tmp_path):
    retention = Retention(None, 3 * HOUR, lambda: NOW + 10 * HOUR)
    reports = [report(n, NOW + n * HOUR) for n in range(11)]
    for one in reports[:-1]:
        write_report_file(str(tmp_path), one)
    write_report_file(str(tmp_path), reports[-1], retention)
    assert names(tmp_path) == [file_name(one) for one in reports[7:]]


@pytest.mark.parametrize(("kept", "expected"), [(5.5, 5), (1, 1), (0.1, 1)])
def test_a_directory_keeps_the_newest_reports_by_size(tmp_path, kept, expected):
    limit = str(int(kept * (len(report().json()) + 3)))
    for number in range(10):
        one = report(number, NOW + number)
        publish(one, config(reportPath=str(tmp_path), reportPathRetentionBytes=limit))
    assert names(tmp_path)[-1] == file_name(report(9, NOW + 9))
    assert len(names(tmp_path)) == expected


def test_what_is_no_report_is_never_deleted(tmp_path):
    strange = (
        "20231114T221320.999Z-notes.json", "20231114T221320.999Z-batch-7-0123456789ab.json.bak",
        "0.json", ".20231114T221320.999Z-batch-7-0123456789ab.json.tmp",
    )  # fmt: skip
    for name in strange:
        (tmp_path / name).write_text("mine")
        os.utime(tmp_path / name, (0, 0))
    write_report_file(str(tmp_path), report(0, NOW), Retention(1, 1, lambda: NOW))
    assert names(tmp_path) == sorted([*strange, file_name(report(0, NOW))])


@pytest.mark.parametrize("name", ["reportPathRetentionBytes", "reportPathRetentionMs"])
@pytest.mark.parametrize("value", ["0", "-1", "ten"])
def test_a_retention_that_is_none_is_an_error(name, value):
    with pytest.raises(ConfigError, match=name):
        config(reportPath="/tmp/r", **{name: value})
