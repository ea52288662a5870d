"""Writes a day's rows of a table to Kafka, each once: a second run of a day writes nothing."""

from __future__ import annotations

import argparse
import datetime
import sys

from pyspark.sql import SparkSession

from spark_kafka_sink import register


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True)
    parser.add_argument("--day", required=True, type=datetime.date.fromisoformat)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--username", required=True)
    parser.add_argument("--app-id", required=True)
    parser.add_argument("--ca", help="PEM file of a CA of your own, in a volume")
    given = parser.parse_args(arguments)
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    options = {
        "kafka.bootstrap.servers": given.bootstrap_servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": given.username,
        "kafka.sasl.password": "${env:KAFKA_PASSWORD}",
        "topic": given.topic,
        "deliveryGuarantee": "exactly-once",
        "txnAppId": given.app_id,
        "txnVersion": str(given.day.toordinal()),
    }
    if given.ca:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.location"] = given.ca
    rows = spark.table(given.table).where(f"day = date'{given.day}'").select("key", "value")
    rows.write.format("kprod").options(**options).save()


if __name__ == "__main__":
    main(sys.argv[1:])
