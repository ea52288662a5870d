"""Micro-batches of 1000 rows, trigger as soon as possible: kprod next to a sink that does nothing.

Both are Python data sources with an Arrow writer, so that what is compared is what kprod adds to
Spark's own cost of planning and committing a Python sink. Prints one JSON line with the duration
of each micro-batch (milliseconds, ``triggerExecution`` of the query's progress).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from bench.spark_job import create, delete, session


def run(spark: SparkSession, sink: str, options: dict[str, str], batches: int) -> list[float]:
    checkpoint = tempfile.mkdtemp(prefix="bench-checkpoint-")
    source = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 1000)
        .option("numPartitions", 2)
        .load()
        .selectExpr("cast(value as string) as key", "cast(timestamp as string) as value")
    )
    query = (
        source.writeStream.format(sink)
        .options(**options)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    durations: dict[int, float] = {}
    try:
        while len(durations) < batches:
            query.awaitTermination(1)
            if query.exception() is not None:
                raise SystemExit(str(query.exception()))
            for progress in query.recentProgress:
                if progress["numInputRows"] > 0:
                    durations[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    ordered = [durations[batch] for batch in sorted(durations)]
    return ordered[5:]  # the first ones start workers and connect


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
    results: dict[str, list[list[float]]] = {"nothing": [], "kprod": []}
    for number in range(args.rounds):
        results["nothing"].append(run(spark, "nothing", {}, args.batches))
        results["kprod"].append(run(spark, "kprod", kprod, args.batches))
        print(f"round {number} done", file=sys.stderr)
    delete(admin, topic)
    print(json.dumps(results))
    spark.stop()


if __name__ == "__main__":
    main()
