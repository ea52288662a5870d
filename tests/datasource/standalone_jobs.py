"""Jobs that test_standalone_cluster.py gives to ``spark-submit``; nothing of the checkout is there.

    job.py batch BOOTSTRAP TOPIC
    job.py stream BOOTSTRAP TOPIC FOLDER CHECKPOINT    a micro-batch for each file of FOLDER
    job.py copy BOOTSTRAP TOPIC SOURCE                 all of a topic, read by Spark's connector
    job.py memory BOOTSTRAP TOPIC BUFFER_MEMORY ROWS   rows of 1000 bytes through one task

The last line of standard output is JSON: where driver and executors have the package from; of
``memory``, how long the task waited for room in its buffer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import spark_kafka_sink

FILLER = "The quick brown fox jumps over the lazy dog. "


def whence(rows: DataFrame) -> DataFrame:
    """A row of each task: the file from which it has imported the package."""

    def imported(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        import spark_kafka_sink

        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"file": [spark_kafka_sink.__file__]})

    return rows.mapInArrow(imported, "file string")


def main() -> None:
    kind, bootstrap, topic, *more = sys.argv[1:]
    spark = SparkSession.builder.appName(f"standalone {kind}").getOrCreate()
    spark_kafka_sink.register(spark)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
    }
    if kind == "batch":
        rows = spark.range(0, 1000, 1, 4).selectExpr(
            "cast(id as string) as key", "concat('row ', id) as value"
        )
        rows.write.format("kprod").options(**options).save()
    elif kind == "copy":
        (source,) = more
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        rows = reader.option("subscribe", source).load()
        rows.select("key", "value").write.format("kprod").options(**options).save()
    elif kind == "memory":
        memory, count = more
        rows = spark.range(0, int(count), 1, 1).selectExpr(
            "cast(id as string) as key", f"rpad(cast(id as string), 992, '{FILLER}') as value"
        )
        options["kafka.buffer.memory"] = memory
        rows.write.format("kprod").options(**options).save()
        report = spark_kafka_sink.last_report(spark)
        assert report is not None
        print(json.dumps({"bufferWaitMs": report.buffer_wait_ms}))
        return
    else:
        folder, checkpoint = more
        stream = spark.readStream.option("maxFilesPerTrigger", 1).text(folder)
        options |= {"checkpointLocation": checkpoint, "transactionalIdPrefix": topic}
        query = (
            stream.repartition(2)
            .writeStream.format("kprod")
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    tasks = sorted({row.file for row in whence(spark.range(0, 8, 1, 8)).collect()})
    spark.stop()
    print(json.dumps({"driver": spark_kafka_sink.__file__, "tasks": tasks}))


if __name__ == "__main__":
    main()
