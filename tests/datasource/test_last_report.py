"""``last_report``: what the driver keeps, and what a session gets of it."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import replace

import pytest
from pyspark.sql.functions import raise_error

from spark_kafka_sink import WriteReport, foreach_batch, last_report
from spark_kafka_sink.base.described_fields import from_json
from spark_kafka_sink.base.security.local_files import UnusableFileError, read_file
from spark_kafka_sink.datasource.report import kept_reports
from spark_kafka_sink.datasource.report.destinations import publish
from spark_kafka_sink.datasource.report.last_report import NoReportsKeptError, schema_with_report
from spark_kafka_sink.datasource.report.report_of_batch import report_of_batch
from spark_kafka_sink.datasource.report.write_report import WriteOutcome
from tests.datasource.commit_messages import config, message

QUERY = "3f0c9c3e-0000-4000-8000-000000000001"
OTHER = "3f0c9c3e-0000-4000-8000-000000000002"


@pytest.fixture
def kept(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/blockmgr,/elsewhere")
    return tmp_path / "blockmgr" / "kprod-reports"


class Asked:
    """A session whose driver answers ``schema``."""

    def __init__(self, schema):
        self.schema = schema
        self.read = self

    def format(self, _):
        return self

    def options(self, **_):
        return self

    def load(self):
        return self


def report(at_ms, query_id=QUERY, **fields):
    told = message(query_id=query_id, batch_id=7, task_attempt_id=at_ms)
    made = report_of_batch(config(), [told], WriteOutcome.ACKNOWLEDGED, wall_ms=at_ms)
    return replace(made, **fields)


def test_a_report_is_read_as_it_was_written():
    one = report(5, commit_ms=3)
    assert from_json(WriteReport, json.loads(one.json()) | {"ofALaterPackage": 1}) == one
    broken = json.loads(one.json())
    with pytest.raises(TypeError):
        from_json(WriteReport, broken | {"rows": "3"})
    del broken["rows"]
    with pytest.raises(KeyError):
        from_json(WriteReport, broken)


def test_the_last_report_of_each_query_and_the_newest_are_kept(kept):
    for one in (report(1), report(2, OTHER), report(3), report(4, "", batch_id=None)):
        kept_reports.keep(one)
    assert [f.name.split("~")[0] for f in sorted(kept.iterdir())] == [QUERY, OTHER, "none"]
    assert json.loads(kept_reports.kept(QUERY))["writtenAtMs"] == 3
    assert json.loads(kept_reports.kept(OTHER))["writtenAtMs"] == 2
    assert json.loads(kept_reports.kept(None))["writtenAtMs"] == 4
    assert kept_reports.kept("never-there") is None


def test_an_unfinished_batch_belongs_to_the_query_of_its_options(kept):
    kept_reports.keep(report(1))
    publish(
        report_of_batch(config(), [], WriteOutcome.ABORTED, batch_id=8, unfinished=[0]), config()
    )
    assert json.loads(kept_reports.kept(QUERY))["outcome"] == "aborted"
    (file,) = kept.iterdir()
    others = config(topic="u")
    publish(report_of_batch(others, [], WriteOutcome.ABORTED, batch_id=8, unfinished=[0]), others)
    assert len(list(kept.iterdir())) == 2
    assert file.exists()


def test_the_number_of_kept_reports_is_bounded_and_the_oldest_go(kept):
    for at in range(kept_reports.MOST_KEPT + 3):
        kept_reports.keep(report(at, str(uuid.uuid4())))
    times = sorted(json.loads(one.read_text())["writtenAtMs"] for one in kept.iterdir())
    assert times == list(range(3, kept_reports.MOST_KEPT + 3))


def test_the_report_of_a_failed_commit_is_known_to_its_abort(kept):
    """Even if the report of another write has replaced it."""
    failed = [report(at, outcome=WriteOutcome.FAILED) for at in range(kept_reports.MOST_KEPT + 3)]
    for one in failed:
        kept_reports.keep(one)
    kept_reports.keep(report(1_000))
    known = [kept_reports.is_kept(one) for one in failed]
    assert known == [False] * 3 + [True] * kept_reports.MOST_KEPT, "the names are bounded, too"
    assert len(list(kept.iterdir())) == 1


@pytest.mark.parametrize("certain", ["committed", "partial", "done before", "failed", "unknown"])
@pytest.mark.parametrize("abort_first", [True, False])
def test_of_two_reports_of_a_run_the_more_certain_one_is_kept(kept, certain, abort_first):
    """The report of the commit has the time of its begin, which is before the abort."""
    run = {"report_id": "7" * 32}
    commit = report(1, outcome=WriteOutcome(certain), **run)
    abort = report(2, outcome=WriteOutcome.ABORTED, **run)
    kept_reports.keep(report(0, outcome=WriteOutcome.COMMITTED))
    for one in (abort, commit) if abort_first else (commit, abort):
        kept_reports.keep(one)
    assert json.loads(kept_reports.kept(QUERY))["outcome"] == certain
    assert len(list(kept.iterdir())) == 1
    kept_reports.keep(report(3, outcome=WriteOutcome.ABORTED))
    assert json.loads(kept_reports.kept(QUERY))["outcome"] == "aborted", "another run"


def test_a_write_of_a_block_is_aborted_after_its_commit(kept):
    """Its commit shows only that its rows were prepared."""
    prepared = report(2, outcome=WriteOutcome.PREPARED, report_id="7" * 32)
    aborted = report(1, outcome=WriteOutcome.ABORTED, report_id="7" * 32)
    for one in (aborted, prepared):
        kept_reports.keep(one)
    assert json.loads(kept_reports.kept(QUERY))["outcome"] == "aborted"


def test_a_damaged_report_of_the_same_run_is_replaced(kept):
    run = {"report_id": "7" * 32}
    kept_reports.keep(report(2, outcome=WriteOutcome.COMMITTED, **run))
    (file,) = kept.iterdir()
    file.write_text("[")
    kept_reports.keep(report(1, outcome=WriteOutcome.ABORTED, **run))
    assert json.loads(kept_reports.kept(QUERY))["outcome"] == "aborted"


def test_a_query_id_leads_to_no_other_file(kept, tmp_path):
    (tmp_path / "blockmgr").mkdir()
    (tmp_path / "blockmgr" / "secret~1.json").write_text("canary4711")
    assert kept_reports.kept("../secret") is None
    assert kept_reports.kept("*") is None
    kept_reports.keep(report(1, "../../x"))
    assert [f.name.split("~")[0] for f in kept.iterdir()] == ["none"]


def test_a_report_that_can_not_be_read_is_no_missing_report(kept):
    kept_reports.keep(report(1))
    (file,) = kept.iterdir()
    file.unlink()
    file.mkdir()
    with pytest.raises(UnusableFileError):
        kept_reports.kept(QUERY)


def test_a_link_to_a_missing_report_is_an_error_and_no_endless_search(kept, tmp_path):
    kept_reports.keep(report(1))
    (file,) = kept.iterdir()
    file.unlink()
    file.symlink_to(tmp_path / "missing")
    with pytest.raises(UnusableFileError):
        kept_reports.kept(QUERY)


def test_a_report_in_a_closed_directory_is_an_error(kept, monkeypatch):
    """The directory may be listed, and its files may not be looked at."""
    kept_reports.keep(report(1))
    (file,) = kept.iterdir()
    refused = []

    def refuse(path, *args, **options):
        if str(path) == str(file):
            refused.append(path)
            raise PermissionError(13, "Permission denied")
        return opened(path, *args, **options)

    opened = os.open
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UnusableFileError):
        kept_reports.kept(QUERY)
    assert refused


DAMAGED = {
    "empty": b"",
    "half": b'{"reportVersion": 1, "rows": "',
    "not UTF-8": b"\xff\xfe",
    "no object": b"[]",
    "null": b"null",
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_report_is_an_error_of_its_own(kept, content):
    """And a report of an abort, which looks for its application there, loses nothing by it."""
    kept_reports.keep(report(1))
    (file,) = kept.iterdir()
    file.write_bytes(content)
    with pytest.raises(NoReportsKeptError, match="can't be read"):
        last_report(Asked(schema_with_report("any")))
    assert kept_reports.known_application() == (None, None)


@pytest.mark.parametrize("there", ["a file", "a loop"])
def test_reports_that_can_not_be_listed_are_no_missing_reports(kept, there):
    """None would tell that nothing was written."""
    kept.parent.mkdir()
    if there == "a file":
        kept.write_text("")
    else:
        kept.symlink_to(kept)
    with pytest.raises(NoReportsKeptError, match="keeps no reports: "):
        last_report(Asked(schema_with_report("any")))


def test_a_report_that_is_replaced_while_it_is_read_is_read_anew(kept, monkeypatch):
    """A commit of the next micro-batch may come between the list of the files and the read."""
    kept_reports.keep(report(1))

    def read_late(path, what):
        monkeypatch.undo()
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(kept.parent))
        kept_reports.keep(report(2))
        return read_file(path, what)

    monkeypatch.setattr(kept_reports, "read_file", read_late)
    assert json.loads(kept_reports.kept(QUERY))["writtenAtMs"] == 2


def test_a_driver_without_a_directory_keeps_nothing_and_says_so(monkeypatch, caplog):
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    publish(report(1), config())
    assert "can't be delivered" not in caplog.text
    (column,) = schema_with_report("any")
    assert column.metadata == {"problem": "SPARK_LOCAL_DIRS is not set on the driver"}


def test_a_directory_that_can_not_be_written_is_a_warning(kept, caplog):
    kept.parent.write_text("")
    publish(report(1), config())
    assert "a report can't be delivered: it is not kept for last_report: " in caplog.text


def test_the_application_is_known_before_its_first_report(kept, monkeypatch):
    """Where its environment has it: on Kubernetes, and in the directories of YARN."""
    monkeypatch.delenv("SPARK_APPLICATION_ID", raising=False)
    assert kept_reports.known_application() == (None, None)
    with monkeypatch.context() as on_yarn:
        local = "/data/usercache/me/appcache/application_1700000000000_0042/blockmgr-1"
        on_yarn.setenv("SPARK_LOCAL_DIRS", local)
        assert kept_reports.known_application() == ("application_1700000000000_0042", None)
    monkeypatch.setenv("SPARK_APPLICATION_ID", "spark-4f1e")
    assert kept_reports.known_application() == ("spark-4f1e", None)
    kept_reports.keep(report(1, application_id="app-1", application_name="shop"))
    assert kept_reports.known_application() == ("app-1", "shop")


# --- on Spark -------------------------------------------------------------------------------------


def test_a_session_finds_the_report_of_its_last_write(spark, write, topic):
    rows = spark.range(5).selectExpr("cast(id AS string) AS value")
    write(rows, topic)
    told = last_report(spark)
    assert isinstance(told, WriteReport)
    assert (told.outcome, told.rows, told.query_id) == (WriteOutcome.ACKNOWLEDGED, 5, None)
    assert (told.application_id, told.topics) == (spark.sparkContext.applicationId, (topic,))
    with pytest.raises(Exception, match="planned"):
        write(rows.select(raise_error("planned").cast("string").alias("value")), topic)
    assert last_report(spark).outcome is WriteOutcome.ABORTED


def test_a_querys_report_is_found_by_its_name(spark, source, stream, write, topic, tmp_path):
    rows, add = source
    add(["a", "b"])
    query = stream(rows, topic, queryName="ord<ers & id = 7")
    query.awaitTermination()
    write(spark.range(1).selectExpr("'v' AS value"), topic)
    told = last_report(query)
    assert (told.query_id, told.batch_id, told.rows) == (query.id, 0, 2)
    assert (told.run_id, told.query_name) == (query.runId, "ord<ers & id = 7")
    assert last_report(spark).query_id is None
    other = rows.writeStream.format("noop").option("checkpointLocation", f"{tmp_path}/other")
    other = other.trigger(availableNow=True).start()
    other.awaitTermination()
    assert last_report(other) is None, "it writes elsewhere"


def test_foreach_batch_counts_as_its_querys(kafka, source, topic, tmp_path):
    rows, add = source
    add(["a"])
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
    write = foreach_batch(f"last-{uuid.uuid4().hex[:6]}", **options)
    writer = rows.writeStream.queryName("each").foreachBatch(write)
    query = writer.option("checkpointLocation", f"{tmp_path}/c").trigger(availableNow=True).start()
    query.awaitTermination()
    told = last_report(query)
    assert (told.query_name, told.outcome, told.txn_version) == ("each", WriteOutcome.COMMITTED, 0)
    assert told.commit_ms is not None
    assert told.connections >= 1, "that for InitProducerId, before the first row"


def test_no_report_is_found_where_none_was_written_or_kept(spark, monkeypatch):
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    with pytest.raises(NoReportsKeptError, match="SPARK_LOCAL_DIRS is not set") as raised:
        last_report(Asked(schema_with_report("any")))
    assert "reportPath" in raised.value.hint
    older = spark.range(1).selectExpr("'v' AS value").schema
    with pytest.raises(NoReportsKeptError, match="is older"):
        last_report(Asked(older))
