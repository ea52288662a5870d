"""Writes a day's rows from a table to Kafka, each row once. A second run of a day writes nothing.

The day must be over: rows that the table gets after its day was written are not in the topic.
"""

from __future__ import annotations

import argparse
import datetime
import sys

from pyspark.sql import SparkSession

from spark_kafka_sink import register


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True)
    parser.add_argument("--day", default="", help="in UTC; empty: the day before --started")
    parser.add_argument("--started", required=True, type=datetime.date.fromisoformat)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--username", required=True)
    parser.add_argument("--app-id", required=True, help="of this job in this target")
    parser.add_argument("--ca", help="PEM file of a CA of your own, in a volume")
    given = parser.parse_args(arguments)
    try:
        given.day = datetime.date.fromisoformat(given.day or _day_before(given.started))
    except ValueError as error:
        parser.error(f"argument --day: {error}")
    # What is written of a day is all that is ever written of it.
    if given.day >= datetime.datetime.now(datetime.UTC).date():
        parser.error(f"argument --day: {given.day} is not over (UTC): name a day that is")
    return given


def _day_before(day: datetime.date) -> str:
    return str(day - datetime.timedelta(days=1))


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
        "deliveryGuarantee": "exactly-once",
        # An id for each day. The versions of an id must ascend, so a late day would be an error.
        "txnAppId": f"{given.app_id}-{given.day}",
        "txnVersion": "1",
    }
    if given.ca:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.location"] = given.ca
    rows = spark.table(given.table).where(f"day = date'{given.day}'").select("key", "value")
    rows.write.format("kprod").options(**options).save()


if __name__ == "__main__":
    main(sys.argv[1:])
