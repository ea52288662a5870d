"""The job of test_few_leaders_on_four_workers.py: the sockets of the executors after a write.

    job.py BOOTSTRAP TOPIC TASKS FOLDER NAME=VALUE ...    of an option; by_leader=1 calls by_leader

All tasks run at the same time, because each waits in FOLDER for the others. The last line of
standard output is JSON: a list for each Python worker, with the ports of the brokers to which it
is connected.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

import spark_kafka_sink

ROWS = 40_000


def together(folder: str, tasks: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """For ``mapInArrow``: a task's rows, once each task has begun."""

    def begun(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        (Path(folder) / str(context.partitionId())).touch()
        while len(list(Path(folder).iterdir())) < tasks:
            time.sleep(0.02)
        yield from batches

    return begun


def sockets(ports: set[int]) -> list[list[int]]:
    """The brokers' ports to which each Python worker of an executor is connected."""
    found = []
    for process in psutil.process_iter():
        try:
            parents = [" ".join(one.cmdline()) for one in process.parents()]
            if any("CoarseGrainedExecutorBackend" in one for one in parents):
                connections = process.net_connections("tcp")
                found.append([c.raddr.port for c in connections if c.raddr])
        except psutil.Error:
            continue  # it has ended, or is another user's
    return [kept for one in found if (kept := sorted(port for port in one if port in ports))]


def main() -> None:
    bootstrap, topic, tasks, folder, *given = sys.argv[1:]
    spark = SparkSession.builder.appName(f"connections {given}").getOrCreate()
    spark_kafka_sink.register(spark)
    options = dict(one.split("=") for one in given)
    grouped = options.pop("by_leader", None)
    options |= {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.batch.size": "10000"}
    # Twelve tasks begin at once: no leader counts as slow, which would be left for another one.
    options["kafka.partitioner.availability.timeout.ms"] = "600000"
    rows = spark.range(0, ROWS, 1, int(tasks)).selectExpr(
        "lpad(cast(id as string), 100, '0') value"
    )
    if grouped:
        rows = rows.selectExpr("value as key", "value")
        rows = spark_kafka_sink.by_leader(rows, tasks=int(tasks), **options)
    rows = rows.mapInArrow(together(folder, int(tasks)), rows.schema)
    rows.write.format("kprod").options(**options).mode("append").save()
    print(json.dumps(sockets({int(one.rpartition(":")[2]) for one in bootstrap.split(",")})))


if __name__ == "__main__":
    main()
