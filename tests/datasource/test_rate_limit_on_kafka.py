"""A limit on records or bytes, from Spark into a real Kafka."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## A limit of your own\n")[2]
EXAMPLE = re.findall(r"^```python\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)[0]


def reports(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_pages_example_takes_its_time_and_the_report_says_so(spark, kafka, consume, tmp_path):
    """40 rows at 200 a second for two tasks (``local[2]``) are 20 at 100 for each: 200 ms."""
    topic = kafka.unique_topic("rate", partitions=1)
    report = tmp_path / "report.json"
    code = EXAMPLE.replace('"backfill"', repr(topic)).replace(
        ".save()", f'.option("reportPath", {str(report)!r}).save()'
    )
    exec(compile(code, "docs/tuning.md", "exec"), {"spark": spark, "servers": kafka.bootstrap})
    assert sorted(map(int, consume(topic).values)) == list(range(40))
    (told,) = reports(report)
    assert told["rows"] == 40
    assert told["rateWaitMs"] > 0
    assert told["elapsedMs"] >= 200


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_stream_has_a_limit_too(spark, kafka, consume, tmp_path, guarantee):
    topic = kafka.unique_topic("rate-stream", partitions=1)
    source = tmp_path / "source"
    spark.range(30).selectExpr("CAST(id AS STRING) AS value").coalesce(1).write.text(str(source))
    report = tmp_path / "report.json"
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "checkpointLocation": str(tmp_path / "checkpoint"),
        "reportPath": str(report),
        "maxBytesPerSecond": "500",
        "tasksAtOnce": "1",
        "deliveryGuarantee": guarantee,
    }
    if guarantee == "exactly-once":
        options |= {"transactionalIdPrefix": topic, "commitLogTopic": f"{topic}-log"}
    writer = spark.readStream.text(str(source)).writeStream.format("kprod").options(**options)
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(map(int, consume(topic).values)) == list(range(30))
    # Two bytes a row but for the first ten.
    assert sum(one["rateWaitMs"] for one in reports(report)) >= 50 * 1000 / 500 - 1
