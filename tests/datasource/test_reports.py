"""Reports of writes: sums, line, JSON and its schema, and where they go."""

from __future__ import annotations

import errno
import json
import logging
import stat
import sys
import time
from asyncio import CancelledError
from dataclasses import replace
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from spark_kafka_sink.base.errors import CommitError
from spark_kafka_sink.datasource.process.process_logging import configure_logging
from spark_kafka_sink.datasource.report import destinations
from spark_kafka_sink.datasource.report.destinations import publish
from spark_kafka_sink.datasource.report.log_line import LOGGED_PARTITIONS, line_of
from spark_kafka_sink.datasource.report.report_of_batch import NAMED, report_of_batch
from spark_kafka_sink.datasource.report.write_report import (
    MAX_JSON_BYTES,
    REPORT_VERSION,
    DeadLettersReport,
    WriteOutcome,
)
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.producer.metrics.produce_report import NodeReport
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from tests.datasource.commit_messages import config, message

LOGGER = "spark_kafka_sink.datasource.report.destinations"
OF_A_STREAM = {
    "query_id": "q", "run_id": "r", "batch_id": 7, "app_id": "local-1", "app_name": "orders app",
    "query_name": "orders",
}  # fmt: skip
SCHEMA = json.loads(
    resources.files("spark_kafka_sink.datasource.report")
    .joinpath("write_report.schema.json")
    .read_text()
)


def report_of(messages, outcome=WriteOutcome.ACKNOWLEDGED, **more):
    return report_of_batch(config(), messages, outcome, wall_ms=1_700_000_000_123, **more)


def checked(text):
    """The JSON of a report, once it is as the schema says, and holds nothing that it doesn't."""
    told = json.loads(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(told)
    assert set(told) == set(SCHEMA["properties"]), "is the schema stale? make docs writes it"
    return told


def two_tasks():
    return report_of(
        [
            message(elapsed_ms=40, begun_ms=1_699_999_999_123, input_wait_ms=30, **OF_A_STREAM),
            message(
                partition_id=1,
                attempt=2,
                rows=5,
                bytes=1000,
                batches=3,
                retries=2,
                throttle_ms=11,
                queue_ms=102,
                max_queue_ms=60,
                buffer_wait_ms=70,
                broker_wait_ms=4,
                begun_ms=1_700_000_000_000,
                nodes={1: NodeReport(1, 2, 2), 2: NodeReport(4, 400, 250, "t-1: no leader")},
                offsets={TopicPartition("t", 0): (8, 12), TopicPartition("t", 1): (0, 4)},
                **OF_A_STREAM,
            ),
            message(
                partition_id=2,
                rows=0,
                nodes={},
                offsets={},
                batches=0,
                begun_ms=1_700_000_000_000,
            ),
        ]
    )


def test_a_report_of_a_failed_batch_explains_why():
    """And not that no task waited, because none was finished."""
    error = CommitError("no broker took it", hint="start one")
    explained = report_of([], WriteOutcome.FAILED, error=error).explain()
    assert "no broker took it. What to do: start one. More: kprod explain KP0" in explained


def test_a_report_explains_what_its_tasks_waited_for():
    explained = two_tasks().explain()
    assert explained.startswith("Tasks waited most for memory, because brokers took less")
    assert "bufferWaitMs is 70 of 104 ms of waiting" in explained
    idle = report_of([message(input_wait_ms=0, buffer_wait_ms=0, broker_wait_ms=0)])
    assert idle.explain() == "No task waited for anything."


def test_skew_is_reported_by_time_and_rows_with_the_slowest_task():
    report = two_tasks()
    assert (report.longest_task_ms, report.median_task_ms, report.task_skew) == (40, 12, 3.33)
    assert report.row_skew == 1.25
    slowest = report.slowest_task
    assert (slowest.partition, slowest.attempt, slowest.host) == (0, 0, "executor-1")
    assert (slowest.rows, slowest.elapsed_ms, slowest.input_wait_ms) == (3, 40, 30)


def test_skew_over_kafkas_partitions_is_reported():
    """Tasks with as many rows may write most of them to one partition."""
    counts = {TopicPartition("t", 0): (92, 900, 1), TopicPartition("t", 1): (8, 100, 2)}
    report = report_of([message(rows=50, by_partition=counts), message(rows=50)])
    assert (report.row_skew, report.partition_skew, report.largest_partition) == (1.0, 1.84, "t-0")
    assert (report_of([]).partition_skew, report_of([]).largest_partition) == (1.0, None)


def test_the_schema_is_a_valid_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"] == f"urn:spark-kafka-sink:write-report:{REPORT_VERSION}"


def test_a_report_says_whose_it_is():
    told = checked(two_tasks().json())
    whose = ("applicationId", "applicationName", "queryId", "queryName", "runId", "batchId")
    assert [told[name] for name in whose] == ["local-1", "orders app", "q", "orders", "r", 7]
    assert (told["topics"], told["deliveryGuarantee"]) == (["t"], "at-least-once")
    assert told["transactionalIdPrefix"] is None
    assert told["reportVersion"] == 1


def test_a_report_of_exactly_once_says_under_which_names():
    exactly_once = config(deliveryGuarantee="exactly-once", txnAppId="nightly", txnVersion="3")
    told = checked(report_of_batch(exactly_once, [message()], WriteOutcome.COMMITTED).json())
    assert (told["transactionalIdPrefix"], told["txnAppId"], told["txnVersion"]) == (
        "kprod", "nightly", 3,
    )  # fmt: skip


def test_the_age_of_the_oldest_transaction_is_reported():
    exactly_once = config(deliveryGuarantee="exactly-once")
    began = 1_700_000_000_000
    messages = [
        message(prepared=PreparedTransaction("a", 1, 0, 2), start_ms=began + 400),
        message(prepared=PreparedTransaction("b", 2, 0, 2), start_ms=began + 100),
        message(prepared=None, start_ms=began),
    ]
    report = report_of_batch(exactly_once, messages, WriteOutcome.COMMITTED, wall_ms=began + 1_000)
    told = checked(report.json())
    assert (told["oldestTransactionMs"], told["transactionTimeoutMs"]) == (900, 900_000)
    told = checked(two_tasks().json())
    assert (told["oldestTransactionMs"], told["transactionTimeoutMs"]) == (None, None)


def test_equal_options_have_equal_fingerprints_without_secrets():
    one = config(**{"kafka.linger.ms": "5"}).fingerprint
    assert one == config(**{"KAFKA.linger.ms": "5"}).fingerprint
    assert one != config(**{"kafka.linger.ms": "6"}).fingerprint
    sasl = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
    first, second = (
        config(**sasl, **{"kafka.sasl.username": "u", "kafka.sasl.password": p}).fingerprint
        for p in ("canary1", "canary2")
    )
    assert first == second


def test_the_line_says_it_all_in_one_line():
    assert line_of(two_tasks()) == (
        "kprod wrote queryId=q batchId=7 rows=8 bytes=1240 batches=5 meanBatchSize=248 requests=6 "
        "retries=2 splits=0 duplicates=0 throttleMs=11 inputWaitMs=30 bufferWaitMs=70 "
        "brokerWaitMs=4 meanQueueMs=23.6 elapsedMs=1000 rowsPerSecond=8 tasks=3 longestTaskMs=40 "
        "taskSkew=3.3 guarantee=at-least-once lostAttempts=2 slowestBroker=2(100.0ms) "
        "offsets=t-0:5..12,t-1:0..4"
    )


def test_the_line_counts_dead_letters():
    """Its rows don't, and without a report's destination nothing else says so."""
    letters = DeadLettersReport("dlq", 2, ())
    assert " deadLetters=2 " in line_of(replace(two_tasks(), dead_letters=letters))
    assert "deadLetters" not in line_of(
        replace(two_tasks(), dead_letters=replace(letters, total=0))
    )


def test_the_line_has_rows_that_were_skipped_and_waits_for_a_rate():
    line = line_of(replace(two_tasks(), skipped_rows=3, rate_wait_ms=250))
    assert " skippedRows=3 lostAttempts=2 rateWaitMs=250 slowestBroker=" in line


def test_the_line_stays_short_with_many_partitions():
    many = {TopicPartition("t", p): (0, 1) for p in range(1000)}
    line = line_of(report_of([message(offsets=many)]))
    more = 1000 - LOGGED_PARTITIONS
    assert line.endswith(f",+{more} more (reportPath and reportTopic have them)")
    assert len(line) < 1000


def test_a_report_of_many_partitions_is_bounded_and_says_so():
    many = {
        TopicPartition(f"a-topic-with-a-name-of-its-own-{p % 10}", p): (0, 2**40)
        for p in range(20_000)
    }
    text = report_of([message(offsets=many)]).json()
    told = checked(text)
    assert MAX_JSON_BYTES * 0.9 < len(text) <= MAX_JSON_BYTES
    assert len(told["partitions"]) + told["partitionsLeftOut"] == 20_000


def test_a_report_has_the_figures_of_an_audit():
    """Sums are 64 bits, and in the order of the partitions."""
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    tasks = [
        message(
            by_partition={two: (1, 10, 255), one: (3, 30, 2**64 - 1)},
            offsets={two: (7, 7), one: (0, 2)},
            producer_ids=producers,
            topic_ids={"t": "an-id"},
            rows_without_offset=2,
        )
        for producers in ({(4001, 7), (12, 0)}, {(12, 0)})
    ]
    told = checked(report_of(tasks).json())
    assert told["audit"] == {
        "rows": [6, 2],
        "checksums": ["fffffffffffffffe", "1fe"],
        "rowsWithoutOffset": 4,
        "producers": ["12/0", "4001/7"],
    }
    assert told["topicCounts"][0]["topicId"] == "an-id"


def test_a_large_report_has_its_partitions_and_no_audit():
    tasks = [message(producer_ids={(n, 1) for n in range(100_000)})]
    told = checked(report_of(tasks).json())
    assert told["audit"] is None
    assert told["partitions"]


def test_a_batch_without_rows_has_a_report_too():
    report = report_of([message(rows=0, batches=0, nodes={}, offsets={})])
    assert "rows=0 " in line_of(report)
    assert "slowestBroker=none offsets=none" in line_of(report)
    assert (report.mean_batch_size, report.task_skew, report.row_skew) == (0, 1.0, 1.0)


def test_a_failed_batch_has_its_error_and_unfinished_tasks():
    error = CommitError("it failed", hint="do this")
    report = report_of([message()], WriteOutcome.FAILED, error=error, unfinished=[1, 4], batch_id=3)
    told = checked(report.json())
    assert told["error"] == {"code": "KP0600", "message": "it failed", "hint": "do this"}
    assert (told["tasks"], told["unfinishedTasks"], told["unfinished"]) == (3, 2, [1, 4])
    assert (told["outcome"], told["batchId"], told["rows"]) == ("failed", 3, 3)


def test_a_report_without_any_task_is_bounded():
    report = report_of([], WriteOutcome.ABORTED, unfinished=range(10_000), batch_id=3)
    told = checked(report.json())
    assert (told["tasks"], told["unfinishedTasks"], len(told["unfinished"])) == (
        10_000, 10_000, NAMED,
    )  # fmt: skip
    assert (told["applicationId"], told["batchId"], told["rows"]) == (None, 3, 0)


def test_the_json_holds_what_the_line_holds(caplog, tmp_path):
    path = tmp_path / "report.jsonl"
    with caplog.at_level(logging.INFO, LOGGER):
        publish(two_tasks(), config(reportPath=str(path)))
    told = checked(path.read_text())
    assert told["writtenAtMs"] == 1_700_000_000_123
    assert (told["rows"], told["tasks"], told["batchId"], told["queryId"]) == (8, 3, 7, "q")
    assert told["partitions"][0] == {
        "topic": "t", "partition": 0, "firstOffset": 5, "lastOffset": 12,
    }  # fmt: skip
    slowest = (250, "t-1: no leader")
    assert (told["brokers"][1]["maxLatencyMs"], told["brokers"][1]["lastAnswer"]) == slowest
    assert (told["bytesPerSecond"], told["connections"]) == (1240, 3)
    assert (told["clusterId"], told["maxQueueMs"], told["compressionRate"]) == ("c", 60, 1.722)
    (record,) = caplog.records
    assert record.getMessage() == line_of(two_tasks())
    assert (record.context["rows"], record.context["slowestBroker"]) == ("8", "2(100.0ms)")


def test_reports_are_appended_one_json_object_a_line(tmp_path):
    path = tmp_path / "report.jsonl"
    for report in (first := two_tasks(), second := report_of([message(task_attempt_id=18)])):
        publish(report, config(reportPath=str(path)))
    told = [checked(line)["reportId"] for line in path.read_text().splitlines()]
    assert told == [first.report_id, second.report_id]
    assert len(set(told)) == 2
    assert not path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def test_a_report_id_is_a_function_of_the_tasks_attempts():
    """By it an abort knows that the commit of its batch has reported already."""
    tasks = [message(partition_id=i, task_attempt_id=i, host="h") for i in range(3)]
    assert report_of(tasks).report_id == report_of(tasks[::-1], WriteOutcome.ABORTED).report_id
    again = [*tasks[:2], message(partition_id=2, task_attempt_id=9, host="h")]
    assert report_of(tasks).report_id != report_of(again).report_id
    assert report_of([]).report_id != report_of([]).report_id


def test_a_batch_job_has_neither_query_nor_batch_in_its_json():
    told = checked(report_of([message()]).json())
    assert (told["queryId"], told["runId"], told["batchId"]) == (None, None, None)


@pytest.mark.parametrize("path", ["no/such/directory/report", "nul\0byte", "file/"])
def test_a_report_that_cannot_be_written_is_a_warning(caplog, tmp_path, path):
    (tmp_path / "file").write_text("")
    publish(two_tasks(), config(reportPath=f"{tmp_path}/{path}"))
    (warning,) = (r for r in caplog.records if r.levelno == logging.WARNING)
    assert "a report can't be delivered: reportPath can't be written" in warning.getMessage()
    assert [one.name for one in tmp_path.iterdir()] == ["file"], "no half of a report"


def test_a_failing_destination_stops_no_other_nor_shows_secrets(caplog, monkeypatch):
    delivered = []

    monkeypatch.setattr(
        destinations,
        "DESTINATIONS",
        (lambda report, _: fails(report), lambda report, _: delivered.append(report)),
    )
    publish(report := two_tasks(), config())
    assert delivered == [report]
    assert "ValueError in fails" in caplog.text
    assert "canary4711" not in caplog.text


def test_without_logging_configured_the_line_is_on_stderr(capsys, monkeypatch):
    package = logging.getLogger("spark_kafka_sink")
    monkeypatch.setattr(package, "handlers", [])
    monkeypatch.setattr(package, "propagate", False)
    monkeypatch.setattr(package, "level", logging.NOTSET)
    package.manager._clear_cache()
    configure_logging()
    configure_logging()
    logging.getLogger(LOGGER).info("hello")
    assert capsys.readouterr().err.count("INFO " + LOGGER + ": hello\n") == 1
    package.manager._clear_cache()


# --- a directory ----------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [True, False])
def test_a_directory_gets_a_file_a_report_sorted_by_time(tmp_path, made):
    folder = tmp_path / "reports"
    if made:
        folder.mkdir()
    path = f"{folder}" if made else f"{folder}/"
    at = (1_700_000_000_999, 1_700_000_001_000, 1_700_000_010_000)
    told = [replace(two_tasks(), written_at_ms=ms) for ms in at]
    for report in reversed(told):
        publish(report, config(reportPath=path))
    files = sorted(folder.iterdir())
    assert [checked(file.read_text())["reportId"] for file in files] == [r.report_id for r in told]
    assert files[0].name == f"20231114T221320.999Z-batch-7-{told[0].report_id[:12]}.json"


def test_a_mount_that_can_not_rename_gets_whole_files_too(tmp_path, monkeypatch):
    """As volumes on object stores: a file is written once, from its first byte to its last."""

    def refuses(self, target):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(Path, "rename", refuses)
    publish(report := two_tasks(), config(reportPath=f"{tmp_path}/"))
    (file,) = tmp_path.iterdir()
    assert checked(file.read_text())["reportId"] == report.report_id


# --- listeners ------------------------------------------------------------------------------------

heard = []
raised = ValueError


def hears(report):
    heard.append(report)


def fails(report):
    raise raised("canary4711")


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, CancelledError])
def test_a_failing_listener_stops_no_other_listener(caplog, monkeypatch, error):
    """Nor the batch, whose rows are written."""
    heard.clear()
    monkeypatch.setitem(sys.modules, "kprod_listeners", sys.modules[__name__])
    monkeypatch.setattr(sys.modules[__name__], "raised", error)
    listeners = "kprod_listeners:fails,kprod_listeners:hears"
    publish(report := two_tasks(), config(reportListeners=listeners))
    assert heard == [report]
    assert f"a report can't be delivered: {error.__name__} in fails" in caplog.text
    assert "canary4711" not in caplog.text


# --- a topic --------------------------------------------------------------------------------------


def test_a_topic_gets_what_a_file_gets(tmp_path):
    publish(report := two_tasks(), config(reportPath=f"{tmp_path}/"))
    (file,) = tmp_path.iterdir()
    assert destinations.topic_record(report, "reports").value + b"\n" == file.read_bytes()


def test_a_report_within_a_decision_is_written_only_there(caplog, monkeypatch):
    """There is no broker: an attempt would raise."""
    monkeypatch.setattr(destinations, "REPORT_TOPIC_MS", 500)
    asked = {"reportTopic": "reports", "deliveryGuarantee": "exactly-once"}
    nobody = config(
        **asked, **{"kafka.max.block.ms": "50", "kafka.bootstrap.servers": "127.0.0.1:1"}
    )
    for outcome in (WriteOutcome.COMMITTED, WriteOutcome.PREPARED, WriteOutcome.DONE_BEFORE):
        publish(replace(two_tasks(), outcome=outcome), nobody)
    assert "can't be delivered" not in caplog.text
    publish(replace(two_tasks(), outcome=WriteOutcome.ABORTED), nobody)
    assert "a report can't be delivered: " in caplog.text
    assert "127.0.0.1:1" in caplog.text


@pytest.mark.timing
def test_ten_times_the_partitions_cost_a_report_ten_times_the_cpu(tmp_path, monkeypatch):
    """Made, kept for last_report, and written to a file, for 1,000 and for 10,000 partitions.

    The two are measured in turn, and the least of five counts: a slow machine is slow for both.
    """
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))

    def messages(count: int) -> list[TaskCommitMessage]:
        halves = (range(count // 2), range(count // 2, count))
        return [
            message(partition_id=i, offsets={TopicPartition("orders", p): (0, 9) for p in half})
            for i, half in enumerate(halves)
        ]

    counts = (1_000, 10_000)
    seconds: dict[int, list[float]] = {count: [] for count in counts}
    for n in range(5):
        for count in counts:
            written = messages(count)
            reports = config(reportPath=f"{tmp_path}/{count}/")
            begun = time.process_time()
            publish(replace(report_of(written), written_at_ms=n), reports)
            seconds[count].append(time.process_time() - begun)
    files = list((tmp_path / "10000").iterdir())
    assert len(files) == 5
    assert len(json.loads(files[0].read_text())["partitions"]) == 10_000
    assert files[0].stat().st_size <= MAX_JSON_BYTES
    assert min(seconds[10_000]) < 30 * min(seconds[1_000])
