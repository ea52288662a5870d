"""Backfills in a session of Spark Connect: stopped, interrupted in a step, called again.

    python connect_backfill_job.py FOLDER BROKERS TOPIC

Prints a line of JSON with each call's result.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pyarrow import RecordBatch
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_sink import BackfillResult, backfill, register
from tests.waiting import wait_for

ROWS, DAYS = 1_000, 10


def main(folder: str, brokers: str, topic: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    assert "connect" in type(spark).__module__
    register(spark)
    where = Path(folder) / "table"
    days = spark.range(0, ROWS, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value", f"id % {DAYS} AS day"
    )
    days.write.partitionBy("day").parquet(str(where))
    base = {"kafka.bootstrap.servers": brokers, "topic": topic, "transactionalIdPrefix": topic}

    def show(call: str, done: BackfillResult) -> None:
        print("RESULT " + json.dumps({"call": call, "finished": done.finished, "rows": done.rows,
                                      "written": len(done.written)}))  # fmt: skip

    table = f"parquet.`{where}`"
    show("stopped", backfill(table, name="days", by="day", on_step=lambda _: False, **base))
    show("continued", backfill(table, name="days", by="day", **base))
    show("again", backfill(table, name="days", by="day", **base))

    begun = Path(folder) / "begun"
    go_on = Path(folder) / "go on"

    def waits(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        begun.touch()
        while not go_on.exists():  # the interrupt ends the task before
            time.sleep(0.05)
        yield from batches

    frame: DataFrame = spark.range(0, ROWS, 1, 2).selectExpr("CAST(id + 1000 AS STRING) AS value")
    frame = frame.mapInArrow(waits, "value string")
    failures: list[str] = []

    def call_it() -> None:
        try:
            backfill(frame, name="cut", steps=1, **base)
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=call_it)
    thread.start()
    wait_for(begun.exists, 120, "a step that runs")
    spark.interruptAll()
    thread.join(120)
    assert not thread.is_alive()
    go_on.touch()
    print("RESULT " + json.dumps({"call": "interrupted", "failure": failures}))
    show("after it", backfill(frame, name="cut", steps=1, **base))


if __name__ == "__main__":
    main(*sys.argv[1:])
