"""What failed attempts leave: where, for which batch, and what the report makes of it."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from spark_kafka_sink.base.errors import DataError, DeliveryError
from spark_kafka_sink.base.security import allow_lists
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.plan.planned_batch import PlannedBatch
from spark_kafka_sink.datasource.plan.write_plan import WritePlan
from spark_kafka_sink.datasource.report.failed_attempts import FailedAttempts
from spark_kafka_sink.datasource.report.log_line import failure_of
from spark_kafka_sink.datasource.report.report_of_batch import (
    report_of_attempt,
    report_of_batch,
    with_failures,
)
from spark_kafka_sink.datasource.report.write_report import WriteOutcome
from spark_kafka_sink.producer.metrics.produce_report import NodeReport
from spark_kafka_sink.records.column_plan import ColumnPlan
from tests.datasource.commit_messages import config, message

CONFIG = config()
COLUMNS = ColumnPlan(topic="t", value_column=0)
OF_A_STREAM = {"query_id": "q", "query_name": "orders", "run_id": "r", "app_id": "local-1"}


def names_in(folder):
    return [one.name for one in folder.iterdir()]


@pytest.fixture
def failed(tmp_path):
    made = FailedAttempts.of(f"{tmp_path}/report.jsonl", "token")
    made.begin()
    return made


@pytest.fixture
def local(monkeypatch, tmp_path):
    """The local directory of executors."""
    folder = tmp_path / "local"
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))
    return folder


def attempt(error, number=0, batch_id=7, **fields):
    of_task = message(attempt=number, batch_id=batch_id, **OF_A_STREAM, **fields)
    return report_of_attempt(CONFIG, of_task, error)


def aborted(attempts, messages=()):
    report = report_of_batch(CONFIG, messages, WriteOutcome.ABORTED, batch_id=7, unfinished=[0])
    return with_failures(report, attempts, None)


def test_an_abort_takes_the_attempts_of_its_batch(failed, tmp_path):
    failed.leave(attempt(DeliveryError("an earlier one, which succeeded later"), batch_id=6))
    ours = attempt(DeliveryError("no"))
    failed.leave(ours)
    (found,) = failed.take(7)
    assert found.error == ours.error
    assert names_in(tmp_path) == []
    assert failed.take(7) == []


def test_a_batch_that_succeeded_shows_its_lost_attempts(failed, tmp_path):
    """Task 0 has failed twice, and task 1's first executor was killed: it has left nothing."""
    reports = tmp_path / "report.jsonl"
    plan = WritePlan(config(reportPath=str(reports)), COLUMNS, None, failed=failed)
    for number in (1, 0):
        failed.leave(attempt(DeliveryError(f"attempt {number}"), number))
    done = [message(attempt=2, batch_id=7), message(partition_id=1, attempt=1, batch_id=7)]
    PlannedBatch(plan).commit([*done, message(partition_id=2, batch_id=7)], 7)
    told = json.loads(reports.read_text())
    assert (told["outcome"], told["error"]) == ("acknowledged", None)
    assert told["lostAttempts"] == 3
    assert {one["message"] for one in told["failedAttempts"]} == {"attempt 0", "attempt 1"}
    assert names_in(tmp_path) == ["report.jsonl"]


def test_an_abort_without_an_attempts_error_names_the_oom_killer():
    """A Python worker that is killed leaves nothing."""
    line = failure_of(aborted([]))
    assert "error=KP0505" in line
    assert "OOM killer" in line
    assert "spark.executor.memoryOverhead" in line


def test_the_line_of_an_abort_has_what_brokers_responded_last():
    nodes = {1: NodeReport(1, 2, 2), 2: NodeReport(4, 400, 250, "t-1: no leader")}
    line = failure_of(aborted([], [message(nodes=nodes)]))
    assert " lastAnswers=broker 2: t-1: no leader error=" in line


def test_a_job_in_foreach_batch_has_the_number_of_its_tasks(failed):
    """Spark gives its abort none."""
    failed.leave(attempt(DeliveryError("no"), batch_id=0))
    report = report_of_batch(CONFIG, [], WriteOutcome.ABORTED, unfinished=[0])
    report = with_failures(report, failed.take(None), None)
    assert (report.batch_id, report.query_name) == (0, "orders")


def test_the_first_task_tells_whose_batch_it_is(local):
    """Spark kills the tasks of a write that is stopped, and the driver does not know its id."""
    failed = FailedAttempts.of(None, "token")
    failed.tell(message(**OF_A_STREAM).identity)
    assert failed.told is None, "an executor of another machine"
    failed.begin()
    failed.tell(message(batch_id=7, app_name="shop", **OF_A_STREAM).identity)
    told = failed.told
    assert failed.take(7) == []
    assert names_in(local) == []
    report = report_of_batch(CONFIG, [], WriteOutcome.ABORTED, batch_id=7, unfinished=[0])
    report = with_failures(report, [], None, told)
    assert (report.application_id, report.application_name) == ("local-1", "shop")
    assert (report.query_id, report.query_name, report.run_id) == ("q", "orders", "r")
    assert report.failed_attempts == ()
    assert report.error.code == "KP0505"


def test_a_run_without_an_abort_is_not_taken_for_the_next_one(local, failed):
    """Spark interrupts its own abort sometimes, when a query is stopped. The next run has the same
    options and, from a new checkpoint, the same number.
    """
    failed.tell(message(batch_id=7, **OF_A_STREAM).identity)
    failed.leave(attempt(DeliveryError("of the run before")))
    failed.begin()
    assert failed.told is None
    assert failed.take(7) == []


def test_a_batch_is_as_old_as_its_planning(local):
    """Files of its tasks give a directory another time: they came an hour later."""
    failed = FailedAttempts.of(None, "token")
    failed.begin()
    (folder,) = local.iterdir()
    os.utime(folder, (1_000_000, 1_000_000))
    failed.tell(message(**OF_A_STREAM).identity)
    failed.leave(attempt(DeliveryError("no")))
    assert len(names_in(folder)) == 2
    assert failed.begun_ms == 1_000_000_000


@pytest.mark.parametrize(
    "text",
    ["{", "[1]", '{"query_id": 5}', '{"batch_id": "x"}', '{"query_id": null}', "[" * 200_000],
)
def test_files_that_no_task_has_left_cost_no_report(tmp_path, local, failed, text):
    """The abort would end without its own failed attempts, and leave the directory."""
    failed.leave(attempt(DeliveryError("no")))
    for folder in (failed.local, failed.named):
        for name in ("begun.json", "9-9.json"):
            Path(folder, name).write_text(text)
    assert failed.told is None
    assert [one.error.message for one in failed.take(7)] == ["no"]
    assert names_in(tmp_path) == ["local"]
    assert names_in(local) == []


def test_queries_with_equal_options_do_not_share_attempts(tmp_path):
    """A config of the session may name the checkpoints of both."""
    first, second = (
        FailedAttempts.of(f"{tmp_path}/report.jsonl", "token", name)
        for name in ("orders", "o\ud83d")
    )
    for one in (first, second):
        one.begin()
    first.leave(attempt(DeliveryError("no")))
    second.end()
    assert second.take(7) == []
    assert len(FailedAttempts.of(f"{tmp_path}/report.jsonl", "token", "orders").take(7)) == 1


def test_an_attempt_leaves_nothing_where_the_folder_is_not(failed, tmp_path):
    """An executor of another machine; a batch that was aborted meanwhile."""
    failed.end()
    failed.leave(attempt(DeliveryError("no")))
    FailedAttempts().leave(attempt(DeliveryError("no")))
    assert names_in(tmp_path) == []


def test_a_link_of_the_folders_name_is_not_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "theirs.json").write_text("{}")
    linked = FailedAttempts.of(f"{tmp_path}/report.jsonl", "token")
    (tmp_path / ".kprod-failed-token").symlink_to(elsewhere)
    linked.begin()
    linked.leave(attempt(DeliveryError("no")))
    assert linked.take(7) == []
    assert names_in(elsewhere) == ["theirs.json"]


def test_what_a_killed_driver_left_is_removed_after_a_week(tmp_path):
    """No commit and no abort came, and a later batch has another name."""
    week_s, now_s = 7 * 24 * 3600, time.time()
    ages = {"old": week_s + 60, "young": week_s - 60, "kept": week_s + 60, "elsewhere": week_s + 60}
    for name, age_s in ages.items():
        folder = tmp_path / ("elsewhere" if name == "elsewhere" else f".kprod-failed-{name}")
        folder.mkdir()
        for file in ("3-0.json", ".4-1.json.0a1b2c3d.tmp"):
            (folder / file).write_text("{}")
        if name == "kept":
            (folder / "notes.txt").write_text("of a user")
        os.utime(folder, (now_s - age_s, now_s - age_s))
    (tmp_path / ".kprod-failed-link").symlink_to(tmp_path / "elsewhere")
    FailedAttempts.of(f"{tmp_path}/report.jsonl", "token").begin()
    assert sorted(names_in(tmp_path)) == [
        ".kprod-failed-kept", ".kprod-failed-link", ".kprod-failed-token", ".kprod-failed-young",
        "elsewhere",
    ]  # fmt: skip
    assert names_in(tmp_path / ".kprod-failed-kept") == ["notes.txt"]
    for name in (".kprod-failed-young", "elsewhere"):
        assert len(names_in(tmp_path / name)) == 2


def test_a_file_that_is_no_attempt_keeps_no_transaction_open(failed, caplog, tmp_path):
    """Whatever is in the directory, the abort goes on."""
    strange = replace(attempt(DeliveryError("no")), error=None, slowest_task=None)
    failed.leave(strange)
    plan = WritePlan(CONFIG, ColumnPlan(topic="t", value_column=0), None, failed=failed)
    with caplog.at_level(logging.WARNING):
        PlannedBatch(plan).abort([None], 7)
    assert "kprod write of micro-batch 7 failed" in caplog.text
    assert names_in(tmp_path) == []


def test_after_a_failed_commit_no_task_is_blamed():
    finished = report_of_batch(CONFIG, [message()], WriteOutcome.ABORTED)
    assert with_failures(finished, [], None).error is None


def test_a_folder_that_is_not_allowed_is_not_used(limit, local, tmp_path):
    limit(allow_lists.REPORT_PATHS, f"{tmp_path}/report.jsonl")
    found = FailedAttempts.of(f"{tmp_path}/report.jsonl", "token")
    assert (found.named, found.local) == ("", f"{local}/.kprod-failed-token")


@pytest.mark.parametrize("path", ["nowhere/report.jsonl", "later/", "full/report.jsonl"])
def test_a_report_path_that_takes_no_file_hides_no_error(local, tmp_path, path):
    """Its directory is missing, made with the first report, or on a disk that is full: the report
    goes to other destinations, too.
    """
    (tmp_path / "full").mkdir()
    made = FailedAttempts.of(f"{tmp_path}/{path}", "token")
    made.begin()
    ours = attempt(DeliveryError("no"))
    # As on a full disk: a directory has the name, so that the file can't be made.
    if path.startswith("full"):
        taken = tmp_path / "full" / ".kprod-failed-token" / "0-0.json"
        taken.mkdir()
        made.leave(ours)
        taken.rmdir()
        assert names_in(local / ".kprod-failed-token") == ["0-0.json"]
    else:
        made.leave(ours)
    assert [one.error for one in made.take(7)] == [ours.error]
    assert names_in(local) == names_in(tmp_path / "full") == []


def test_the_error_is_that_of_the_attempt_that_ended_the_batch():
    """Spark stops other tasks then, and they fail, too."""
    retried = attempt(DeliveryError("first try"), partition_id=3)
    last = attempt(DataError("last try"), number=3, partition_id=3)
    stopped = attempt(EOFError("canary4711"), number=3, partition_id=4)
    report = aborted([retried, stopped, last])
    assert (report.error.code, report.error.message) == ("KP0210", "last try")
    attempts = {(one.partition, one.attempt) for one in report.failed_attempts}
    assert attempts == {(3, 0), (3, 3), (4, 3)}
    assert "canary4711" not in report.json()


def test_a_failed_batch_has_its_attempts_brokers_and_identity():
    brokers = {1: NodeReport(2, 10, 9), 3: NodeReport(0, 0, 0, "t-0: it disconnected")}
    left = attempt(DeliveryError("no"), nodes=brokers, parent_run="airflow/load/1")
    finished = message(nodes={1: NodeReport(2, 30, 20)}, partition_id=1)
    report = aborted([left], [finished])
    one, three = report.brokers
    assert (one.id, one.requests, one.mean_latency_ms, one.max_latency_ms) == (1, 4, 10.0, 20)
    assert (three.id, three.last_answer) == (3, "t-0: it disconnected")
    assert (report.query_name, report.query_id, report.application_id, report.parent_run) == (
        "orders", "q", "local-1", "airflow/load/1",
    )  # fmt: skip


def test_an_errors_note_says_where_in_the_report():
    error = DataError("a null")
    error.add_note("  while sending rows 0 to 1 of partition 5 of the DataFrame")
    assert attempt(error).error.message == f"a null {error.__notes__[0].strip()}"


def test_the_line_of_an_abort_says_why_and_whose(failed, caplog, tmp_path):
    failed.leave(attempt(DeliveryError("t-0: no", hint="do this"), host="node-4"))
    plan = WritePlan(CONFIG, ColumnPlan(topic="t", value_column=0), None, failed=failed)
    with caplog.at_level(logging.WARNING):
        PlannedBatch(plan).abort([None], 7)
    (line,) = [r.getMessage() for r in caplog.records]
    assert "kprod write of micro-batch 7 failed: 0 of 1 tasks had finished (not task 0)" in line
    assert "applicationId=local-1 queryName=orders queryId=q elapsedMs=" in line
    assert "failedAttempts=0.0@node-4 error=KP0500 t-0: no (do this)" in line
    assert names_in(tmp_path) == []


def test_an_abort_without_any_attempt_names_the_query():
    """Executors that were killed leave nothing; the name is an option of the write."""
    plan = WritePlan(CONFIG, ColumnPlan(topic="t", value_column=0), None, query_name="orders")
    report = PlannedBatch(plan)._identified(aborted([]))
    assert (report.query_name, report.error.code) == ("orders", "KP0505")
    assert "error=KP0505" in failure_of(report)


@pytest.mark.parametrize(("there", "known"), [('{"id":"q-1"}', "q-1"), ("{}", None), (None, None)])
def test_an_abort_without_any_attempt_has_the_query_of_the_checkpoint(tmp_path, there, known):
    """Of a query that is stopped before its first task."""
    if there is not None:
        (tmp_path / "metadata").write_text(there)
    options = {"kafka.bootstrap.servers": "h:9092", "checkpointLocation": str(tmp_path)}
    plan = WritePlan(parse_sink_config(options), ColumnPlan(topic="t", value_column=0), None)
    assert PlannedBatch(plan)._of_its_query(aborted([])).query_id == known
    of_a_task = replace(aborted([]), query_id="q")
    assert PlannedBatch(plan)._of_its_query(of_a_task).query_id == "q"
    assert PlannedBatch(plan)._of_its_query(replace(aborted([]), batch_id=None)).query_id is None
