"""The write report: sums, line, JSON, file."""

from __future__ import annotations

import json
import logging
import stat

from test_datasource_commit_message import message

from spark_kafka_sink.datasource.write.write_report import (
    LOGGED_PARTITIONS,
    WriteReport,
    configure_driver_logging,
    publish,
)

LOGGER = "spark_kafka_sink.datasource.write.write_report"


def two_tasks():
    return WriteReport.of(
        [
            message(partition_id=0, elapsed_ms=40, query_id="q", batch_id=7),
            message(
                partition_id=1,
                rows=5,
                acknowledged=5,
                bytes=1000,
                batches=3,
                retries=2,
                throttle_ms=11,
                queue_ms=102,
                max_queue_ms=60,
                buffer_wait_ms=70,
                nodes=((1, 1, 2, 2), (2, 4, 400, 250)),
                offsets=(("t", 0, 8, 12), ("t", 1, 0, 4)),
                query_id="q",
                batch_id=7,
            ),
            message(partition_id=2, rows=0, acknowledged=0, nodes=(), offsets=(), batches=0),
        ]
    )


def test_tasks_are_summed():
    report = two_tasks()
    produced = report.produced
    assert (report.tasks, produced.rows, produced.bytes, produced.batches) == (3, 8, 1240, 5)
    assert (produced.retries, produced.throttle_ms, report.longest_task_ms) == (2, 11, 40)
    assert (produced.buffer_wait_ms, produced.connections, produced.cluster_id) == (70, 3, "c")
    assert (report.mean_queue_ms, produced.max_queue_ms) == (118 / 5, 60)
    assert report.compression_rate == 1240 / 720
    assert report.mean_batch_size == 248
    assert report.offsets == (("t", 0, 5, 12), ("t", 1, 0, 4))


def test_the_slowest_broker_is_the_one_with_the_longest_mean_latency():
    slowest = two_tasks().slowest_node
    assert (slowest.id, slowest.mean_latency_ms, slowest.max_latency_ms) == (2, 100.0, 250)


def test_the_line_says_it_all_in_one_line():
    assert two_tasks().line() == (
        "kprod wrote queryId=q batchId=7 rows=8 bytes=1240 batches=5 meanBatchSize=248 requests=6 "
        "retries=2 splits=0 duplicates=0 throttleMs=11 bufferWaitMs=70 meanQueueMs=23.6 tasks=3 "
        "longestTaskMs=40 guarantee=at-least-once slowestBroker=2(100.0ms) "
        "offsets=t-0:5..12,t-1:0..4"
    )


def test_the_line_stays_short_with_many_partitions():
    many = tuple(("t", p, 0, 1) for p in range(1000))
    line = WriteReport.of([message(offsets=many)]).line()
    assert line.endswith(f",+{1000 - LOGGED_PARTITIONS} more")
    assert len(line) < 1000


def test_a_batch_without_rows_has_a_report_too():
    report = WriteReport.of([message(rows=0, acknowledged=0, batches=0, nodes=(), offsets=())])
    assert "rows=0 " in report.line()
    assert "slowestBroker=none offsets=none" in report.line()
    assert report.mean_batch_size == 0


def test_the_json_holds_what_the_line_holds(caplog, tmp_path):
    path = tmp_path / "report.jsonl"
    with caplog.at_level(logging.INFO, LOGGER):
        publish(two_tasks(), str(path), 1_700_000_000_123)
    told = json.loads(path.read_text())
    assert told["writtenAtMs"] == 1_700_000_000_123
    assert (told["rows"], told["tasks"], told["batchId"], told["queryId"]) == (8, 3, 7, "q")
    assert told["partitions"][0] == {
        "topic": "t", "partition": 0, "firstOffset": 5, "lastOffset": 12,
    }  # fmt: skip
    assert told["brokers"][1]["maxLatencyMs"] == 250
    assert (told["clusterId"], told["maxQueueMs"], told["compressionRate"]) == ("c", 60, 1.722)
    (record,) = caplog.records
    assert record.getMessage() == two_tasks().line()
    assert (record.context["rows"], record.context["slowestBroker"]) == ("8", "2(100.0ms)")


def test_reports_are_appended_one_json_object_a_line(tmp_path):
    path = tmp_path / "report.jsonl"
    publish(two_tasks(), str(path), 1)
    publish(two_tasks(), str(path), 2)
    assert [json.loads(line)["writtenAtMs"] for line in path.read_text().splitlines()] == [1, 2]


def test_a_batch_job_has_neither_query_nor_batch_in_its_json():
    told = json.loads(WriteReport.of([message()]).json(1))
    assert (told["queryId"], told["batchId"]) == (None, None)


def test_a_report_that_cannot_be_written_is_a_warning(caplog, tmp_path):
    publish(two_tasks(), str(tmp_path / "no" / "such" / "directory"), 1)
    publish(two_tasks(), "nul\0byte", 1)
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert "the rows are in Kafka, but reportPath can't be written" in warnings[0].getMessage()


def test_the_file_is_not_writable_for_others(tmp_path):
    path = tmp_path / "report.jsonl"
    publish(two_tasks(), str(path), 1)
    assert not path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def test_where_nobody_configured_logging_the_line_reaches_stderr(capsys, monkeypatch):
    package = logging.getLogger("spark_kafka_sink")
    monkeypatch.setattr(package, "handlers", [])
    monkeypatch.setattr(package, "propagate", False)
    monkeypatch.setattr(package, "level", logging.NOTSET)
    package.manager._clear_cache()
    configure_driver_logging()
    configure_driver_logging()
    logging.getLogger(LOGGER).info("hello")
    assert capsys.readouterr().err.count("INFO " + LOGGER + ": hello\n") == 1
    package.manager._clear_cache()
