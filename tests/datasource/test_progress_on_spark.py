"""progressListeners in a real Spark task that runs for longer than 30 s."""

from __future__ import annotations

import json

import pytest


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_rate_limited_task_reports_progress_while_it_runs(spark, kafka, tmp_path):
    heard = tmp_path / "heard.jsonl"
    module = tmp_path / "kprod_test_progress.py"
    module.write_text(
        "import dataclasses, json\n"
        "def to_file(progress):\n"
        f"    with open({str(heard)!r}, 'a') as file:\n"
        "        file.write(json.dumps(dataclasses.asdict(progress)) + '\\n')\n"
    )
    spark.sparkContext.addPyFile(str(module))
    topic = kafka.unique_topic("progress", partitions=1)
    # Two lines: a single moment may be one at which it waits for nothing.
    rows = spark.range(65).selectExpr("CAST(id AS STRING) AS value").coalesce(1)
    (
        rows.write.format("kprod")
        .mode("append")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .option("topic", topic)
        .option("maxRecordsPerSecond", 1)
        .option("tasksAtOnce", 1)
        .option("progressListeners", "kprod_test_progress:to_file")
        .save()
    )
    lines = [json.loads(line) for line in heard.read_text().splitlines()]
    told = lines[0]
    assert told["partition"] == 0
    assert 0 < told["rows"] < 65
    assert told["rate_wait_ms"] > 0
    waits = [line["waits_for"] for line in lines]
    assert any(one.startswith("its rate (maxRecordsPerSecond=1") for one in waits), waits
