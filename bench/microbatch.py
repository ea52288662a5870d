"""Micro-batches of 1000 rows, trigger as soon as possible: kprod next to a sink that does nothing.

Both are Python data sources with an Arrow writer, so that what is compared is what kprod adds to
Spark's own cost of planning and committing a Python sink. Prints one JSON line with the duration
of each micro-batch (milliseconds, ``triggerExecution`` of the query's progress) and the CPU that a
micro-batch took of the Python workers, in the mean (milliseconds).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from functools import partial

from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession

from bench.rounds import Rounds
from bench.spark_job import cpu_seconds, create, delete, session

#: The first ones start workers and connect.
_WARM = 5


def micro_batches(spark: SparkSession) -> DataFrame:
    """A stream whose micro-batches have 1000 rows in two partitions."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 1000)
        .option("numPartitions", 2)
        .load()
        .selectExpr("cast(value as string) as key", "cast(timestamp as string) as value")
    )


def run(
    spark: SparkSession, sink: str, options: dict[str, str], batches: int
) -> tuple[list[float], float]:
    """Durations of the micro-batches, and the CPU of one."""
    checkpoint = tempfile.mkdtemp(prefix="bench-checkpoint-")
    query = (
        micro_batches(spark)
        .writeStream.format(sink)
        .options(**options)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    durations: dict[int, float] = {}
    warm: tuple[int, float] | None = None
    try:
        while len(durations) < batches:
            query.awaitTermination(1)
            if query.exception() is not None:
                raise SystemExit(str(query.exception()))
            for progress in query.recentProgress:
                if progress["numInputRows"] > 0:
                    durations[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
            if warm is None and len(durations) >= _WARM:
                warm = len(durations), cpu_seconds(python_only=True)
        assert warm is not None
        cpu = (cpu_seconds(python_only=True) - warm[1]) / (len(durations) - warm[0])
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    ordered = [durations[batch] for batch in sorted(durations)]
    return ordered[_WARM:], 1000 * cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--jars", default="")
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    spark = session(args.jars)
    admin = AdminClient({"bootstrap.servers": args.bootstrap})
    topic = "bench-microbatch"
    create(admin, topic, 12)
    kprod = {"kafka.bootstrap.servers": args.bootstrap, "topic": topic}
    machine = Rounds(args.rounds, partial(print, file=sys.stderr))
    nothing, ours = machine.interleaved(
        [
            partial(run, spark, "nothing", {}, args.batches),
            partial(run, spark, "kprod", kprod, args.batches),
        ]
    )
    delete(admin, topic)
    found = {
        sink: {"ms": [ms for ms, _ in runs], "cpu_ms": [cpu for _, cpu in runs]}
        for sink, runs in (("nothing", nothing), ("kprod", ours))
    }
    print(json.dumps(found | {"conditions": machine.conditions()}))
    spark.stop()


if __name__ == "__main__":
    main()
