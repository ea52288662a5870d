"""A job that would write for minutes with exactly-once: Ctrl-C ends it. Its arguments are the
bootstrap servers, the topic, which is the prefix, too, and reportPath.
"""

import sys

from pyspark.sql import SparkSession

from spark_kafka_sink import register


def main() -> None:
    bootstrap, topic, path = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "600m")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    register(spark)
    rows = spark.range(20_000).selectExpr("cast(id AS string) AS value").repartition(2)
    rows.write.format("kprod").options(**{
        "kafka.bootstrap.servers": bootstrap, "topic": topic, "transactionalIdPrefix": topic,
        "deliveryGuarantee": "exactly-once", "maxRecordsPerSecond": "50", "reportPath": path,
    }).save()  # fmt: skip


if __name__ == "__main__":
    main()
