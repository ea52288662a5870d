"""Reports of writes into a real Kafka: the file, and Spark's log of Python workers."""

from __future__ import annotations

import json
import time

import pyspark
import pytest

from tests.datasource.rows import ROWS, frame
from tests.waiting import wait_for


def test_the_report_has_rows_and_offsets(spark, write, topic, tmp_path, consume):
    path = tmp_path / "report.jsonl"
    rows = spark.range(100).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
    for _ in range(2):
        write(rows.repartition(2), topic, reportPath=str(path))
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert (first["rows"], first["tasks"], first["batchId"]) == (100, 2, None)
    assert first["batches"] >= 2
    assert first["requests"] >= 1
    assert first["bytes"] > 0
    assert [one.name for one in tmp_path.iterdir()] == ["report.jsonl"], "nothing else is left"
    found = consume(topic)
    told = {p["partition"]: p["firstOffset"] for p in first["partitions"]}
    assert told == {0: 0, 1: 0}
    ends = {p["partition"]: p["lastOffset"] for p in second["partitions"]}
    assert ends == {
        p: max(o for o, q in zip(found.offsets, found.partitions, strict=True) if q == p)
        for p in (0, 1)
    }


def test_a_stream_reports_each_micro_batch(source, stream, topic, tmp_path):
    rows, add = source
    add(ROWS)
    add(["6"])
    path = tmp_path / "report.jsonl"
    query = stream(rows, topic, reportPath=str(path))
    query.awaitTermination()
    told = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(t["batchId"], t["queryId"]) for t in told] == [(0, query.id), (1, query.id)]
    assert sorted(t["rows"] for t in told) == [1, 5]


@pytest.mark.long  # it waits for what comes after 30 s
@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="Spark keeps no such log there")
def test_a_task_that_runs_tells_its_listeners_and_sparks_log(spark, write, topic, tmp_path):
    """Spark's log is the one of Python workers."""
    heard = tmp_path / "heard.jsonl"
    module = tmp_path / "kprod_test_progress.py"
    module.write_text(
        "import dataclasses, json\n"
        "def to_file(progress):\n"
        f"    with open({str(heard)!r}, 'a') as file:\n"
        "        file.write(json.dumps(dataclasses.asdict(progress)) + '\\n')\n"
    )
    spark.sparkContext.addPyFile(str(module))

    def slowly(batches):

        for one in batches:
            yield one
            time.sleep(35)

    rows = frame(spark, [("v",)], "value string").coalesce(1)

    def lines():
        return [r for r in spark.tvf.python_worker_logs().collect() if "kprod writes" in r.msg]

    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        slow = rows.mapInArrow(slowly, "value string")
        write(slow, topic, progressListeners="kprod_test_progress:to_file")
        # Spark stores a worker's lines in its own time.
        told = wait_for(lines, 60, "the task's line")
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    assert "waitsFor=Spark's next rows" in told[0].msg
    assert told[0].level == "INFO"
    heard_of = json.loads(heard.read_text().splitlines()[0])
    assert (heard_of["partition"], heard_of["waits_for"]) == (0, "Spark's next rows")


@pytest.mark.long
@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="Spark keeps no such log there")
def test_the_report_is_in_sparks_log_of_python_workers(spark, write, topic):
    def lines():
        logs = spark.tvf.python_worker_logs().collect()
        return [row for row in logs if "kprod wrote" in row.msg and topic in row.msg]

    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        write(frame(spark, [("v",)], "value string"), topic)
        # Spark stores a worker's lines in its own time.
        told = wait_for(lines, 30, "the report's line")
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    assert len(told) == 1
    assert (told[0].context["rows"], told[0].level) == ("1", "INFO")
