"""A limit on records or bytes, from Spark into a real Kafka."""

from __future__ import annotations

import re
import time
from pathlib import Path

from pyspark import TaskContext

PAGE = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## A limit for the rate of a write\n")[2]
EXAMPLE = re.findall(r"^```python\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)[0]


def test_the_pages_example_takes_its_time_and_the_report_says_so(
    spark, kafka, consume, tmp_path, reports
):
    """40 rows at 200 a second for two tasks (``local[2]``) are 20 at 100 for each: 200 ms."""
    topic = kafka.unique_topic("rate", partitions=1)
    code = EXAMPLE.replace('"backfill"', repr(topic)).replace(
        ".save()", f'.option("reportPath", "{tmp_path}/report.jsonl").save()'
    )
    exec(compile(code, "docs/tuning.md", "exec"), {"spark": spark, "servers": kafka.bootstrap})
    assert sorted(map(int, consume(topic).values)) == list(range(40))
    (told,) = reports()
    assert told["rows"] == 40
    assert told["rateWaitMs"] > 0
    assert told["elapsedMs"] >= 200


def test_a_stream_has_a_limit_too(source, stream, topic, consume, tmp_path, reports):
    rows, add = source
    add(map(str, range(30)))
    options = {
        "reportPath": f"{tmp_path}/report.jsonl",
        "maxBytesPerSecond": "500",
        "tasksAtOnce": "1",
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": topic,
    }
    stream(rows, topic, **options).awaitTermination()
    assert sorted(map(int, consume(topic).values)) == list(range(30))
    # Two bytes a row but for the first ten.
    assert sum(one["rateWaitMs"] for one in reports()) >= 50 * 1000 / 500 - 1


def test_the_second_of_two_tasks_connects_a_second_later(
    spark, kafka, topic, write, consume, tmp_path, reports
):
    """Both tasks run at the same time, so each has a worker. No producer is used again, because no
    other write has this client.id.
    """
    places = [str(tmp_path / f"task {number}") for number in range(2)]

    def together(batches):
        number = TaskContext.get().partitionId()
        Path(places[number]).touch()
        while not all(Path(place).exists() for place in places):
            time.sleep(0.01)
        yield from batches

    rows = spark.range(0, 40, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    rows = rows.mapInArrow(together, "value string")
    paced = {"connectionsPerSecond": "1", "tasksAtOnce": "2", "kafka.client.id": topic}
    write(rows, topic, reportPath=f"{tmp_path}/report.jsonl", **paced)
    assert sorted(map(int, consume(topic).values)) == list(range(40))
    (told,) = reports()
    assert told["elapsedMs"] >= 1000
