"""``backfill`` from a real Spark into a real Kafka: steps, second calls, what is refused."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading

import pytest

from spark_kafka_sink import BackfillResult, backfill
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import CommitError, ConfigError
from spark_kafka_sink.cli.app import app
from spark_kafka_sink.datasource.jobs.backfill_request import LedgerOnDriver
from tests.datasource.exactly_once.queries import shows
from tests.datasource.jobs.rows_read import RowsRead

ROWS, DAYS = 1_000, 10

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def options(kafka, topic):
    return {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic,
            "transactionalIdPrefix": f"p.{topic}"}  # fmt: skip


@pytest.fixture
def table(spark, tmp_path):
    """A partitioned table of ten days, and its directory."""
    where = tmp_path / "table"
    days = spark.range(0, ROWS, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value", f"id % {DAYS} AS day"
    )
    days.repartition(2, "day").write.partitionBy("day").parquet(str(where))
    return where


def read(spark, table):
    """By a schema of its own: Spark reads a file for one otherwise."""
    return spark.read.schema("value string, day bigint").parquet(str(table))


def stop_after(count):
    """An ``on_step`` that wants no more than that."""
    seen = []

    def on_step(step):
        seen.append(step)
        return len(seen) < count

    return on_step


def unreadable(table, days):
    """Who reads one of these days fails; the list of files stays."""
    for day in days:
        for file in table.glob(f"day={day}/*.parquet"):
            file.write_bytes(b"whoever reads it fails")


def test_steps_that_are_written_are_not_read_again(spark, options, topic, consume, table):
    frame = read(spark, table)
    first = backfill(frame, name="days", by="day", on_step=stop_after(1), **options)
    assert (first.finished, first.stopped_by) == (False, "on_step returned False")
    assert first.steps == len(first.written) == 1
    assert 0 < first.rows < ROWS
    shows(consume, topic, [n for n in range(ROWS) if n % DAYS < first.rows // 100])
    unreadable(table, range(first.rows // 100))
    # A new process reads the table anew.
    second = backfill(read(spark, table), name="days", by="day", **options)
    assert second.finished
    assert (second.rows, second.steps) == (ROWS, 1 + len(second.written))
    assert second.bytes == sum(len(str(n)) for n in range(ROWS))
    assert [step.version for step in (*first.written, *second.written)] == list(range(second.steps))
    assert second.written[-1].share == 1
    shows(consume, topic, range(ROWS))


@pytest.mark.long
def test_a_finished_backfill_reads_nothing(spark, options, topic, consume, table):
    frame = read(spark, table)
    read_rows = RowsRead(spark)
    done = backfill(frame, name="days", by="day", **options)
    assert read_rows.take() == 2 * ROWS, "each row once for the plan, and once in its step"
    unreadable(table, range(DAYS))
    again = backfill(frame, name="days", by="day", **options)
    assert read_rows.take() == 0
    assert again == BackfillResult("days", True, "", done.steps, ROWS, done.bytes, done.seconds)
    shows(consume, topic, range(ROWS))


def test_another_plan_under_a_name_is_refused(spark, options, table):
    frame = read(spark, table)
    backfill(frame, name="days", by="day", on_step=stop_after(1), **options)
    more = spark.range(3).selectExpr("CAST(id AS STRING) AS value", "id AS day")
    more.write.partitionBy("day").mode("append").parquet(str(table))
    changed = read(spark, table)
    for given, by, shown in (
        (frame, {"steps": 40}, "by: day in the plan, not set now; steps: not set in the plan, 40"),
        (
            frame.selectExpr("*", "1 AS x"),
            {"by": "day"},
            "columns: struct<value:string,day:bigint> in",
        ),
        (frame, {"by": "day", "onNullValue": "skip"}, "onNullValue: not set in the plan, skip now"),
        (changed, {"by": "day"}, "source's files: "),
    ):
        with pytest.raises(ConfigError, match="has another plan") as raised:
            backfill(given, name="days", **by, **options)
        assert shown in raised.value.message
        assert raised.value.kind is Kind.BACKFILL_PLAN
        assert "call it as it was called first, or choose a new name" in raised.value.hint
    assert backfill(frame, name="days", by="day", **options).rows == ROWS
    assert backfill(changed, name="later", by="day", **options).rows == ROWS + 3


def test_a_second_caller_is_refused_while_the_first_runs(spark, options, topic, consume):
    frame = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")
    in_step, go_on, found = threading.Event(), threading.Event(), []

    def hold(_step):
        in_step.set()
        assert go_on.wait(120)

    def first():
        found.append(backfill(frame, name="both", steps=3, on_step=hold, **options))

    thread = threading.Thread(target=first)
    thread.start()
    try:
        assert in_step.wait(120)
        with pytest.raises(ConfigError, match=f"'both' runs in process {os.getpid()} on") as raised:
            backfill(frame, name="both", steps=3, **options)
        assert raised.value.kind is Kind.BACKFILL_RUNS
    finally:
        go_on.set()
        thread.join()
    assert found[0].finished
    shows(consume, topic, range(ROWS))


def test_a_call_that_is_paused_before_its_write_writes_nothing(
    spark, options, topic, consume, monkeypatch
):
    """The first call is paused when its step is recorded. The second call takes the first call's
    process for dead, and begins the step again. Then the first call continues.
    """
    frame = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")
    recorded, go_on, raised = threading.Event(), threading.Event(), []
    original = LedgerOnDriver.step

    def paused(ledger, end):
        step = original(ledger, end)
        if threading.current_thread() is thread:
            recorded.set()
            assert go_on.wait(120)
        elif thread.is_alive():
            go_on.set()
            thread.join()
        return step

    def first():
        with pytest.raises(Exception, match="another call of the backfill has taken over") as told:
            backfill(frame, name="paused", steps=3, **options)
        raised.append(told.value)

    monkeypatch.setattr(LedgerOnDriver, "step", paused)
    monkeypatch.setattr("spark_kafka_sink.datasource.jobs.backfill.is_gone", lambda _: True)
    thread = threading.Thread(target=first)
    thread.start()
    assert recorded.wait(120)
    second = backfill(frame, name="paused", steps=3, on_step=stop_after(1), **options)
    assert second.steps == 1
    assert "SupersededError" in str(raised[0])
    assert "if none runs, call backfill again" in str(raised[0])
    assert backfill(frame, name="paused", steps=3, **options).rows == ROWS
    shows(consume, topic, range(ROWS))


@pytest.mark.long
def test_a_step_that_fails_leaves_the_ones_before(spark, options, topic, consume, tmp_path):
    """Its rows are invisible, and come with the next call."""
    fails = tmp_path / "fails"
    fails.touch()

    def rows(batches):
        for batch in batches:
            if fails.exists() and 999 in batch.column("id").to_pylist():
                raise ValueError("told to fail")
            yield batch

    frame = spark.range(0, ROWS, 1, 2).mapInArrow(rows, "id long")
    frame = frame.selectExpr("CAST(id AS STRING) AS value", "id DIV 100 AS day")
    with pytest.raises(Exception, match="told to fail"):
        backfill(frame, name="fails", by="day", **options)
    fails.unlink()
    done = backfill(frame, name="fails", by="day", **options)
    assert done.finished
    shows(consume, topic, range(ROWS))


@pytest.mark.long
def test_the_hint_of_a_rate_that_is_too_low_is_followed(spark, options, topic, consume):
    """Rows that are the same stay together: the slice that has them can't be cut."""
    frame = spark.range(0, 200, 1, 1).selectExpr("'same' AS value")
    slow = {"maxRecordsPerSecond": 1, "tasksAtOnce": 1, "kafka.transaction.timeout.ms": 60_000}
    with pytest.raises(CommitError, match="has more rows than the rate limit lets") as raised:
        backfill(frame, name="slow", steps=1, **options, **slow)
    assert raised.value.kind is Kind.STEP_TOO_LONG
    assert "raise maxRecordsPerSecond or maxBytesPerSecond" in raised.value.hint
    shows(consume, topic, [])
    done = backfill(frame, name="slow", steps=1, **options, **slow | {"maxRecordsPerSecond": 1000})
    assert (done.finished, done.rows) == (True, 200)
    shows(consume, topic, ["same"] * 200)


@pytest.mark.long
def test_sigterm_stops_between_two_steps(spark, options, topic, consume):
    frame = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value")
    before = signal.getsignal(signal.SIGTERM)
    stopped = backfill(
        frame, name="stops", steps=3, on_step=lambda _: os.kill(os.getpid(), signal.SIGTERM),
        **options,
    )  # fmt: skip
    assert (stopped.finished, stopped.stopped_by, stopped.steps) == (False, "SIGTERM", 1)
    assert signal.getsignal(signal.SIGTERM) is before
    assert backfill(frame, name="stops", steps=3, **options).finished
    shows(consume, topic, range(ROWS))


@pytest.mark.long
def test_an_empty_table_and_ranges_without_rows_end(spark, options, topic, consume):
    nothing = spark.range(0).selectExpr("CAST(id AS STRING) AS value", "id AS day")
    for cut in ({"by": "day"}, {"steps": 2}):
        done = backfill(nothing, name="empty" + "".join(cut), **cut, **options)
        assert (done.finished, done.rows, done.steps) == (True, 0, 0)
    one = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    done = backfill(one, name="one", steps=5, **options)
    assert (done.finished, done.rows, done.steps) == (True, 1, 1)
    shows(consume, topic, range(1))


def test_a_step_shows_a_line_and_the_command_shows_the_backfill(
    spark, options, kafka, caplog, table
):
    from typer.testing import CliRunner

    def kprod(*words):
        where = ("-b", kafka.bootstrap, "--prefix", options["transactionalIdPrefix"])
        return CliRunner().invoke(app, ["backfill", "shown", *words, *where])

    assert "there is no backfill 'shown'" in kprod().output
    assert "it begins with the first call of backfill(..., name=...)" in kprod().output
    frame = read(spark, table)
    with caplog.at_level(logging.INFO, "spark_kafka_sink"):
        done = backfill(frame, name="shown", by="day", on_step=stop_after(1), **options)
    line = next(text for text in caplog.messages if text.startswith("shown  10%  1 step  "))
    assert f"  {done.rows} rows  " in line.replace(",", "")
    assert "MB/s" in line
    assert line.endswith("left")
    shown = kprod("--json")
    found = json.loads(shown.stdout)
    assert (found["finished"], found["rows"], found["caller"]) == (False, done.rows, None)
    assert found["plan"]["by"] == "day"
    assert "no call runs" in kprod().output
    forgotten = kprod("--forget", "--yes")
    assert "Forgotten" in forgotten.output
    assert kprod().exit_code == 1


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, "one of by= and steps="),
        ({"by": "value", "steps": 3}, "one of by= and steps="),
        ({"steps": 0}, "steps=0"),
        ({"steps": 1, "deliveryGuarantee": "none"}, "deliveryGuarantee is none"),
        ({"steps": 1, "txnVersion": 3}, "sets txnVersion itself"),
        ({"steps": 1, "transform": lambda frame: frame}, "transform="),
        ({"steps": 1, "name": "a b"}, "the name given to backfill"),
    ],
)
def test_what_is_asked_for_is_checked_before_anything(spark, given, shown):
    frame = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(ConfigError, match=shown):
        backfill(frame, **{"name": "n", **given})
