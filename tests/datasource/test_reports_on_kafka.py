"""Reports of writes into a real Kafka: the file, and Spark's log of Python workers."""

from __future__ import annotations

import json
import time

import pyspark
import pytest

from tests.datasource.rows import frame
from tests.waiting import wait_for


def test_the_report_has_rows_and_offsets(spark, write, topic, tmp_path, consume, reports):
    rows = spark.range(100).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
    for _ in range(2):
        write(rows.repartition(2), topic, reportPath=f"{tmp_path}/report.jsonl")
    first, second = reports()
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


@pytest.mark.long  # it waits for what comes after 30 s
@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="Spark keeps no such log there")
def test_a_task_that_runs_tells_its_listeners_and_sparks_log(spark, write, topic, tmp_path):
    """Spark's log is the one of Python workers, which has the driver's line of the report, too."""
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
        """Goes on when the listener has heard of it, which is after 30 s."""
        for one in batches:
            yield one
            while not heard.exists():
                time.sleep(0.1)

    rows = frame(spark, [("v",)], "value string").coalesce(1)

    def lines(text):
        logs = spark.tvf.python_worker_logs().collect()
        return [row for row in logs if text in row.msg and row.level == "INFO"]

    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        slow = rows.mapInArrow(slowly, "value string")
        write(slow, topic, progressListeners="kprod_test_progress:to_file")
        # Spark stores a worker's lines in its own time.
        told = wait_for(lambda: lines("kprod writes"), 60, "the task's line")
        (report,) = wait_for(lambda: lines(f"offsets={topic}"), 60, "the report's line")
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    assert "waitsFor=Spark's next rows" in told[0].msg
    assert ("kprod wrote" in report.msg, report.context["rows"]) == (True, "1")
    heard_of = json.loads(heard.read_text().splitlines()[0])
    assert (heard_of["partition"], heard_of["waits_for"]) == (0, "Spark's next rows")
