"""progressTopic, the side of tasks and commits: what is sent, and when."""

import json
import logging
import time
from contextlib import suppress

import pytest

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.parsing import parse_producer_config, parse_sink_config
from spark_kafka_sink.datasource.monitoring.topic_tail import TopicTail
from spark_kafka_sink.datasource.write import worker_progress
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.datasource.write.task_progress import ProgressLog, TaskProgress
from spark_kafka_sink.datasource.write.worker_progress import (
    ProgressSender,
    WorkerProgress,
    WorkerSums,
    this_worker,
    watched_commit,
)
from tests.waiting import wait_for

IDENTITY = TaskIdentity(app_id="app-1", query_id="q", query_name="orders", batch_id=7, stage_id=3)


def progress(rows=0, elapsed_ms=0, **values):
    fields = {
        "partition": 0, "attempt": 0, "batch_id": 7, "megabytes": rows / 1000,
        "rows_per_second": 0.0, "retries": 0, "in_flight": 0, "oldest_batch_ms": 0,
        "slowest_broker": -1, "slowest_broker_ms": 0.0, "waits_for": "", "last_answer": "",
    }  # fmt: skip
    return TaskProgress(rows=rows, elapsed_ms=elapsed_ms, **(fields | values))


class Clock:
    now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def worker(clock):
    return WorkerSums(clock)


# --- when -----------------------------------------------------------------------------------------


def test_tasks_of_less_than_ten_seconds_send_nothing(worker, clock):
    """A job of 1000 rows is as fast as before."""
    for _ in range(9):
        clock.now += 1
        assert worker.add(IDENTITY, progress(100, 1_000), finished=True) is None


def test_short_tasks_are_summed_and_sent_every_ten_seconds(worker, clock):
    sent = []
    for _ in range(30):
        clock.now += 1
        record = worker.add(IDENTITY, progress(100, 1_000, retries=1), finished=True)
        sent += [record] if record else []
    assert [(one.finished_tasks, one.rows, one.retries) for one in sent] == [
        (10, 1_000, 10), (20, 2_000, 20), (30, 3_000, 30),
    ]  # fmt: skip
    assert sent[-1].megabytes == pytest.approx(3.0)
    assert {one.worker for one in sent} == {sent[0].worker}


def test_a_long_task_is_added_to_those_before(worker, clock):
    worker.add(IDENTITY, progress(100, 1_000), finished=True)
    clock.now += 10
    first = worker.add(IDENTITY, progress(40, 10_000, oldest_batch_ms=9), finished=False)
    clock.now += 5
    assert worker.add(IDENTITY, progress(60, 15_000), finished=False) is None
    clock.now += 5
    second = worker.add(IDENTITY, progress(80, 20_000), finished=True)
    assert [(r.rows, r.finished_tasks, r.oldest_batch_ms) for r in (first, second)] == [
        (140, 1, 9), (180, 2, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("change", [{"stage_id": 4}, {"batch_id": 8}, {"app_id": "app-2"}])
def test_another_stage_begins_at_zero(worker, clock, change):
    values = {"app_id": "app-1", "batch_id": 7, "stage_id": 3}
    worker.add(TaskIdentity(**values), progress(100, 1_000), finished=True)
    clock.now += 20
    record = worker.add(TaskIdentity(**(values | change)), progress(5, 12_000), finished=False)
    assert (record.rows, record.finished_tasks) == (5, 0)


def test_after_a_failure_nothing_is_sent_for_a_minute(worker, clock):
    clock.now += 20
    assert worker.add(IDENTITY, progress(1, 20_000), finished=False) is not None
    worker.pause()
    for _ in range(5):
        clock.now += 11
        assert worker.add(IDENTITY, progress(1, 20_000), finished=False) is None
    clock.now += 11
    assert worker.add(IDENTITY, progress(1, 20_000), finished=False) is not None


class Watcher:
    every_s = 0.01

    def __init__(self):
        self.seen, self.last = [], []

    def running(self, progress):
        self.seen.append(progress)

    def finished(self, progress):
        self.last.append(progress)


@pytest.mark.parametrize("fails", [False, True])
def test_an_attempt_says_its_last_figures_of_its_own_end(fails):
    """The producer may serve the next task by the time the thread runs."""
    watcher, rows = Watcher(), [5]
    with suppress(KeyError), ProgressLog(lambda: progress(rows[0]), 60, watcher=watcher):
        wait_for(lambda: watcher.seen, 30, "a look")
        rows[0] = 9
        if fails:
            raise KeyError
    rows[0] = 0
    wait_for(lambda: watcher.last, 30, "the last figures")
    assert [one.rows for one in watcher.last] == [9]


def test_figures_that_can_not_be_had_are_left_out(caplog):
    """The producer may be made while the thread looks."""
    looks = []

    def figures():
        looks.append(len(looks))
        if len(looks) < 3:
            raise KeyError
        return progress(9)

    watcher = Watcher()
    with ProgressLog(figures, 60, watcher=watcher):
        wait_for(lambda: watcher.seen, 30, "a look that succeeds")
    assert watcher.seen[0].rows == 9
    assert not caplog.records


def test_a_watched_attempt_logs_no_more_lines(caplog):
    caplog.set_level(logging.INFO)
    watcher = Watcher()
    with ProgressLog(progress, 3600, watcher=watcher):
        wait_for(lambda: len(watcher.seen) > 3, 30, "looks")
    assert "kprod writes" not in caplog.text


# --- to a topic -----------------------------------------------------------------------------------


def config_of(kafka):
    return parse_producer_config({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture
def tail(kafka):
    topic = kafka.unique_topic("progress", partitions=1)
    with TransactionClient(config_of(kafka)) as client:
        tail = TopicTail(client, topic, "progressTopic")
        tail.topic = topic
        assert tail.new_values(30_000) == []
        yield tail


def test_a_task_of_a_worker_sends_when_it_is_time(kafka, tail, monkeypatch):
    monkeypatch.setattr(worker_progress, "EVERY_S", 0.0)
    attempt = this_worker(config_of(kafka), tail.topic, IDENTITY)
    attempt.running(progress(10, 1))
    attempt.finished(progress(20, 2))
    first, last = (json.loads(value) for value in tail.new_values(30_000))
    assert (first["rows"], last["rows"], last["finishedTasks"]) == (10, 20, 1)
    assert (last["queryName"], last["batchId"], last["commitMs"]) == ("orders", 7, None)


def test_a_topic_that_is_not_there_is_one_warning(kafka, caplog, monkeypatch):
    monkeypatch.setattr(worker_progress, "_SEND_MS", 1_500)
    sender = ProgressSender(config_of(kafka), f"nowhere-{time.time_ns()}")
    record = WorkerProgress(
        worker="w", application_id="a", query_id="", query_name="", batch_id=-1, stage_id=0
    )
    assert [sender.send(record) for _ in range(2)] == [False, False]
    (warning,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "the progress of tasks can't be sent" in warning.getMessage()


def test_a_worker_without_its_topic_is_quiet_for_a_while(monkeypatch):
    """A failure costs its task a wait, and the next ones none."""
    monkeypatch.setattr(worker_progress, "_SEND_MS", 200)
    monkeypatch.setattr(worker_progress, "EVERY_S", 0.0)
    quiet = WorkerSums()
    nobody = parse_producer_config({"bootstrap.servers": "127.0.0.1:1"})
    attempt = worker_progress._Attempt(quiet, IDENTITY, ProgressSender(nobody, "progress"))
    attempt.running(progress(10, 1))
    assert quiet.add(IDENTITY, progress(20, 20_000), finished=False) is None


def test_a_connection_of_other_options_is_closed(kafka, tail):
    """A session may write to two clusters; one client is kept."""
    record = WorkerProgress(
        worker="w", application_id="a", query_id="", query_name="", batch_id=-1, stage_id=0
    )
    for client in ("one", "two", "one"):
        given = {"bootstrap.servers": kafka.bootstrap, "client.id": client}
        assert ProgressSender(parse_producer_config(given), tail.topic).send(record)
    kept = worker_progress._clients()
    assert [config.client_id for config, _ in kept] == ["one"]
    assert len(tail.new_values(30_000)) == 3


def test_a_commit_that_takes_long_says_so_and_that_it_ended(kafka, tail, monkeypatch):
    monkeypatch.setattr(worker_progress, "EVERY_S", 0.05)
    found = []
    with watched_commit(config_of(kafka), tail.topic, IDENTITY):
        wait_for(lambda: found.extend(tail.new_values(30_000)) or found, 60, "a record")
    wait_for(
        lambda: found.extend(tail.new_values(30_000)) or json.loads(found[-1])["commitMs"] == 0,
        60,
        "the last one",
    )
    assert all(json.loads(value)["commitMs"] > 0 for value in found[:-1])
    assert json.loads(found[0])["queryName"] == "orders"


def test_a_quick_commit_sends_nothing(kafka, tail):
    with watched_commit(config_of(kafka), tail.topic, IDENTITY):
        pass
    assert tail.new_values(30_000) == []


@pytest.mark.parametrize("other", ["topic", "reportTopic", "commitLogTopic"])
def test_progress_has_a_topic_of_its_own(other):
    options = {"kafka.bootstrap.servers": "h:1", "topic": "t", "progressTopic": "x"}
    options |= {other: "x"} | ({"deliveryGuarantee": "exactly-once"} if other[0] == "c" else {})
    with pytest.raises(ConfigError, match=f"progressTopic and {other} are the same topic"):
        parse_sink_config(options)
