"""by_leader in a session of Spark Connect.

    python connect_by_leader_job.py BROKERS TOPIC

Prints a line of JSON: the tasks of each partition.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_kafka_sink import by_leader, register


def main(brokers: str, topic: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    assert "connect" in type(spark).__module__
    register(spark)
    options = {"kafka.bootstrap.servers": brokers, "topic": topic}
    rows = spark.range(0, 500, 1, 2).selectExpr(
        "CAST(id % 40 AS STRING) AS key", "CAST(id AS STRING) AS value"
    )
    led = by_leader(rows, tasks=3, **options)
    led.write.format("kprod").options(**options).save()
    tasks = led.select("partition", F.spark_partition_id().alias("task")).distinct().collect()
    partitions = [row["partition"] for row in tasks]
    print("RESULT " + json.dumps([partitions.count(one) for one in partitions]))


if __name__ == "__main__":
    main(*sys.argv[1:])
