"""``upserts`` in a session of Spark Connect: prints the types of the last changes, as JSON."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from spark_kafka_sink import upserts


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    delta = "id long, text string, _change_type string, _commit_version long"
    rows = [(1, "a", "insert", 1), (1, "a", "delete", 3), (1, "b", "update_postimage", 2),
            (2, "c", "update_preimage", 3), (3, "c", "update_postimage", 3)]  # fmt: skip
    last = upserts(spark.createDataFrame(rows, delta), ["id"]).orderBy("id").collect()
    changes = [[row["id"], row["_change_type"]] for row in last]
    envelope = "op string, before struct<id long>, after struct<id long>, source struct<lsn long>"
    events = [("c", None, (1,), (1,)), ("u", (1,), (2,), (2,))]
    last = upserts(spark.createDataFrame(events, envelope), ["id"], "debezium")
    print(json.dumps([changes, sorted(row["op"] for row in last.collect())]))


if __name__ == "__main__":
    main()
