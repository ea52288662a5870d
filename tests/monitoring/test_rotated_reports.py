"""Reports are read while their files are rotated, truncated and deleted."""

import json
import logging
import os
import threading
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from spark_kafka_sink import KprodListener
from spark_kafka_sink.base.security import allow_lists
from spark_kafka_sink.base.security.local_files import UnusableFileError
from spark_kafka_sink.datasource.monitoring import new_reports
from spark_kafka_sink.datasource.monitoring.new_reports import NewReports
from spark_kafka_sink.datasource.monitoring.prometheus_metrics import PrometheusMetrics
from tests.monitoring.reports import progress, report, started


@pytest.fixture
def path(tmp_path):
    return tmp_path / "reports.jsonl"


def add(path, *numbers):
    with path.open("a") as file:
        for number in numbers:
            file.write(json.dumps(line(number)) + "\n")


def line(number):
    return {"reportVersion": 1, "reportId": f"{number:032}"} | report(number)


def numbers(reports):
    return [one["batchId"] for one in reports]


@pytest.mark.parametrize("left", [[], [2, 3]])
def test_a_file_that_was_renamed_is_read_to_its_end(path, left):
    """As logrotate does with `create`."""
    read = NewReports(path)
    add(path, 0, 1)
    assert numbers(read()) == [0, 1]
    add(path, *left)
    path.rename(f"{path}.1")
    add(path, 4)
    assert numbers(read()) == [*left, 4]
    assert read() == []


def test_a_writer_that_had_the_renamed_file_open_is_read(path):
    read = NewReports(path)
    add(path, 0)
    assert numbers(read()) == [0]
    with path.open("a") as slow:
        path.rename(f"{path}.1")
        add(path, 1)
        assert numbers(read()) == [1]
        slow.write(json.dumps(line(2)) + "\n")
    assert numbers(read()) == [2]


def test_a_file_that_is_away_for_a_while_goes_on(path):
    read = NewReports(path)
    add(path, 0)
    path.rename(f"{path}.1")
    assert read() == []  # it was not open
    add(path, 1)
    assert numbers(read()) == [1]
    path.unlink()
    assert read() == []
    add(path, 2)
    assert numbers(read()) == [2]


def test_a_line_is_read_when_it_is_whole(path):
    """And what was there before is history."""
    add(path, 0)
    read = NewReports(path)
    assert read() == []
    text = json.dumps(line(2))
    add(path, 1)
    with path.open("a") as file:
        file.write(text[:40])
        file.flush()
        assert numbers(read()) == [1]
        file.write(text[40:] + "\n")
    assert numbers(read()) == [2]
    assert read() == []


@pytest.mark.parametrize("after", [[9], [9, 10, 11], [9, 10, 11, 12, 13, 14]])
def test_a_file_that_was_truncated_is_read_from_its_begin(path, after):
    """As logrotate does with `copytruncate`: it may be as long as before, or longer."""
    add(path, 0)
    read = NewReports(path)
    add(path, 1, 2)
    assert numbers(read()) == [1, 2]
    os.truncate(path, 0)
    add(path, *after)
    assert numbers(read()) == after


def test_no_descriptor_is_left_open_by_a_hundred_rotations(path):
    read = NewReports(path)
    opened = Path("/proc/self/fd")
    before = len(list(opened.iterdir()))
    for number in range(100):
        add(path, number)
        assert numbers(read()) == [number]
        path.rename(f"{path}.1")
    assert len(list(opened.iterdir())) <= before + 2


def test_a_line_that_is_no_report_is_skipped_with_a_warning(path, caplog):
    read = NewReports(path)
    add(path, 0)
    with path.open("a") as file:
        file.write('{"reportVersion": 1, "repo\n[1]\n')
    add(path, 1)
    assert numbers(read()) == [0, 1]
    assert len(caplog.records) == 2
    assert "KP0703" in caplog.text


@pytest.mark.parametrize("there", [True, False], ids=["it stays", "it was moved away"])
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_can_not_be_read_is_an_error_while_it_is_there(tmp_path, monkeypatch, kind, there):
    """A rotation may take it between the two."""
    path = tmp_path / "reports"
    if kind == "directory":
        path.mkdir()
    read = NewReports(path)
    if kind == "directory":
        (path / "1.json").write_text(json.dumps(line(1)))
    else:
        add(path, 1)

    def unreadable(name, *_):
        if not there:
            Path(name).unlink()
        raise UnusableFileError("it can't be read")

    monkeypatch.setattr(new_reports, "open_to_read", unreadable)
    monkeypatch.setattr(new_reports, "read_file", unreadable)
    if there:
        with pytest.raises(UnusableFileError):
            read()
    else:
        assert read() == []


@pytest.mark.parametrize("kind", ["fifo", "uri"])
def test_what_no_report_can_be_in_is_an_error_at_once(tmp_path, kind):
    os.mkfifo(tmp_path / "fifo")
    path = tmp_path / "fifo" if kind == "fifo" else "s3://bucket/reports/"
    with pytest.raises(UnusableFileError):
        NewReports(path)


def test_reports_are_read_from_allowed_paths_only(tmp_path, monkeypatch):
    """The path may be a link to elsewhere, also later than at the start."""
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    allowed.mkdir()
    other.write_text(json.dumps(line(0)) + "\n")
    lists = allow_lists.read_lists({allow_lists.REPORT_PATHS: str(allowed)})
    monkeypatch.setattr(allow_lists, "_LISTS", lists)
    with pytest.raises(allow_lists.NotAllowedError):
        NewReports(other)
    read = NewReports(allowed / "reports.jsonl")
    (allowed / "reports.jsonl").symlink_to(other)
    with pytest.raises(allow_lists.NotAllowedError):
        read()


def test_reports_that_can_not_be_read_leave_sparks_metrics(path, caplog):
    registry = CollectorRegistry()
    listener = KprodListener(PrometheusMetrics(registry), reports=path)
    listener.onQueryStarted(started())
    os.mkfifo(path)
    listener.onQueryProgress(progress(0))
    value = registry.get_sample_value
    assert value("kprod_query_input_rows_total", {"query": "orders"}) == 100
    assert "reports can't be read: it is a FIFO" in caplog.text


# --- directories ----------------------------------------------------------------------------------


def test_a_directory_that_is_pruned_goes_on(tmp_path):
    read = NewReports(tmp_path)
    for number in range(10):
        add(tmp_path / f"{number}.json", number)
        if number >= 3:
            (tmp_path / f"{number - 3}.json").unlink()
        assert numbers(read()) == [number]


def test_a_file_of_a_directory_is_read_when_it_is_whole(tmp_path):
    """Some mounts show half a file. And what was there before is history."""
    add(tmp_path / "1-history.json", 0)
    read = NewReports(tmp_path)
    assert read() == []
    text = json.dumps(line(3)) + "\n"
    (tmp_path / ".3.json.0a1b2c3d.tmp").write_text(text)
    add(tmp_path / "2.json", 2)
    (tmp_path / "3.json").write_text(text[:40])
    assert numbers(read()) == [2]
    (tmp_path / "1-history.json").unlink()
    (tmp_path / "3.json").write_text(text)
    assert numbers(read()) == [3]
    assert read() == []


def test_an_unchanged_directory_is_not_listed(tmp_path, monkeypatch):
    """It may hold 100 000 files, and each look of the listener would cost a tenth of a second."""
    listed = []
    monkeypatch.setattr(new_reports, "_SAME_TIME_S", -1e9)
    monkeypatch.setattr(os, "listdir", lambda p, ls=os.listdir: listed.append(p) or ls(p))
    read = NewReports(tmp_path)
    add(tmp_path / "0.json", 0)
    assert numbers(read()) == [0]
    before = len(listed)
    assert [read() for _ in range(10)] == [[]] * 10
    assert len(listed) == before
    add(tmp_path / "1.json", 1)
    assert numbers(read()) == [1]
    assert len(listed) == before + 1


def test_two_reports_within_one_tick_of_the_clock_are_seen(tmp_path, monkeypatch):
    """A file system's times may be as coarse as two seconds: here it never changes."""
    read = NewReports(tmp_path)
    stopped = tmp_path.stat().st_mtime_ns
    for number in range(5):
        add(tmp_path / f"{number}.json", number)
        os.utime(tmp_path, ns=(stopped, stopped))
        assert numbers(read()) == [number]


def test_reports_of_several_writers_are_each_read_once(path, caplog):
    """Eight threads append, one renames once: what is written is read, and nothing twice."""
    caplog.set_level(logging.WARNING)
    read, seen = NewReports(path), []
    over = threading.Event()

    def write(first):
        for number in range(first, first + 50):
            add(path, number)

    threads = [threading.Thread(target=write, args=(i * 50,)) for i in range(8)]
    for one in threads:
        one.start()
    rotated = False
    while not over.is_set():
        if not any(one.is_alive() for one in threads):
            over.set()
        if path.exists() and path.stat().st_size > 20_000 and not rotated:
            seen += numbers(read())
            path.rename(f"{path}.1")
            rotated = True
        seen += numbers(read())
    seen += numbers(read()) + numbers(read())
    assert rotated
    assert sorted(seen) == list(range(400))
    assert caplog.text == ""
