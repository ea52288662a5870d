"""Writes all rows of a table to Kafka in steps, each row once. A second run writes what is missing.

The table is read at the version that it has at the first run. Its rows become visible to consumers
step by step.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession

from spark_kafka_sink import backfill, register


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True, help="with columns day, key and value")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--username", required=True)
    parser.add_argument("--name", required=True, help="of this backfill in this target")
    parser.add_argument("--ca", help="PEM file of a CA of your own, in a volume")
    return parser.parse_args(arguments)


def records(table: DataFrame) -> DataFrame:
    """The columns of the records, and the column by which the table is cut."""
    return table.select("key", "value", "day")


def main(arguments: list[str]) -> None:
    given = parsed(arguments)
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    options = {
        "kafka.bootstrap.servers": given.bootstrap_servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": given.username,
        "kafka.sasl.password": "${env:KAFKA_PASSWORD}",
        "topic": given.topic,
    }
    if given.ca:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.location"] = given.ca
    result = backfill(given.table, name=given.name, by="day", transform=records, **options)
    sys.stdout.write(f"{result}\n")
    if not result.finished:
        sys.exit("stopped before the end: the job's next retry or run continues")


if __name__ == "__main__":
    main(sys.argv[1:])
