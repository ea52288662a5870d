"""The Spark driver of the demo. It runs in a separate process, so that the demo can kill it.

The driver writes one topic as a batch and another topic as a stream, both exactly once. It prints a
line of JSON after the batch, after each micro-batch and after the stream::

    {"event": "batch", "seconds": 1.2}
    {"event": "micro-batch", "number": 3}
    {"event": "stream", "seconds": 9.1}
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_TOPIC, STREAM_TOPIC = "demo-batch", "demo-stream"
#: Micro-batches of the stream: one file each.
MICRO_BATCHES = 8


def main(arguments: list[str] | None = None) -> None:
    """Starts a Spark session, and writes to the topics that are arguments of the command line."""
    options = _parse(arguments)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)
    from pyspark.sql import SparkSession

    from spark_kafka_sink.datasource.session.registration import register
    from spark_kafka_sink.local_kafka.installation import QUICK_JVM

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("kprod demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # A life of a minute is not worth the second compiler.
        .config("spark.driver.extraJavaOptions", " ".join(QUICK_JVM))
        .getOrCreate()
    )
    register(spark)
    write(spark, options)
    spark.stop()


def write(spark: SparkSession, options: argparse.Namespace) -> None:
    """Writes the batch and the stream. With ``--stream-only``, continues the stream of a killed
    driver, and writes no batch.
    """
    kafka = {
        "kafka.bootstrap.servers": options.bootstrap,
        "deliveryGuarantee": "exactly-once",
        "kafka.compression.type": "lz4",
    }
    if options.registry:
        kafka |= {
            "valueFormat": "avro",
            "valueColumns": "value",
            "schema.registry.url": options.registry,
            "auto.register.schemas": "true",
        }
    if not options.stream_only:
        _write_batch(spark, kafka, options.rows)
    _write_stream(spark, kafka, options.folder, options.rows)


def _write_batch(spark: SparkSession, kafka: dict[str, str], rows: int) -> None:
    start = time.monotonic()
    job = _rows(spark, rows).write.format("kprod").options(**kafka)
    job.option("topic", BATCH_TOPIC).option("txnAppId", "demo").option("txnVersion", 1).save()
    _say("batch", seconds=time.monotonic() - start)


def _write_stream(spark: SparkSession, kafka: dict[str, str], folder: Path, rows: int) -> None:
    source = folder / "rows"
    if not source.exists():
        incomplete = folder / "made"
        _rows(spark, rows).repartition(MICRO_BATCHES).write.parquet(str(incomplete))
        incomplete.rename(source)
    stream = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1)
    start = time.monotonic()
    query = (
        stream.parquet(str(source))
        .writeStream.format("kprod")
        .options(**kafka)
        .option("topic", STREAM_TOPIC)
        .option("transactionalIdPrefix", "demo")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    last_reported, ended = -1, False
    while not ended:
        ended = query.awaitTermination(1) is True  # raises what the query failed with
        for progress in query.recentProgress:
            number = int(progress["batchId"])
            # Without rows it is a look for files, when all are written.
            if number > last_reported and progress["numInputRows"]:
                last_reported = number
                _say("micro-batch", number=number)
    _say("stream", seconds=time.monotonic() - start)


def _rows(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(rows).selectExpr(
        "cast(id % 1000 as string) as key", "cast(id as string) as value"
    )


def _say(event: str, **fields: float) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--registry", default="", help="its URL: values are Avro")
    parser.add_argument("--stream-only", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
