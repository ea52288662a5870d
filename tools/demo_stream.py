"""A stream that writes exactly once and is watched: rows that Spark makes, to the topic ``orders``.

    python demo_stream.py --bootstrap kafka-1:9093 --listen 0.0.0.0:9464

docker-compose.yml's profile ``demo`` runs it as it stands, and ``demo_ops.py`` imports it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import prometheus_client
from pyspark.sql import SparkSession

from spark_kafka_sink import KprodListener, PrometheusMetrics, register

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC, QUERY = "orders", "orders"
REPORTS = "reports.jsonl"


def session() -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("kprod demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def listener(
    folder: Path, registry: prometheus_client.CollectorRegistry = prometheus_client.REGISTRY
) -> KprodListener:
    """One that reads the reports of :func:`start`'s stream in ``folder``."""
    return KprodListener(PrometheusMetrics(registry), reports=folder / REPORTS)


def start(spark: SparkSession, bootstrap: str, folder: Path, rate: int) -> StreamingQuery:
    """Starts the stream: ``rate`` rows of 200 bytes a second."""
    register(spark)
    rows = spark.readStream.format("rate").option("rowsPerSecond", rate).load()
    return (
        rows.selectExpr("cast(value as string) key", "repeat('an order! ', 20) value")
        .writeStream.format("kprod")
        .queryName(QUERY)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", TOPIC)
        .option("deliveryGuarantee", "exactly-once")
        .option("transactionalIdPrefix", "demo")
        .option("reportPath", str(folder / REPORTS))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="A stream to the topic orders, and its metrics.")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--listen", default="127.0.0.1:9464", help="where the exporter listens")
    parser.add_argument("--rate", type=int, default=500, help="rows a second")
    parsed = parser.parse_args(arguments)
    host, _, port = parsed.listen.rpartition(":")
    spark = session()
    with tempfile.TemporaryDirectory() as name:
        spark.streams.addListener(listener(Path(name)))
        prometheus_client.start_http_server(int(port), host)
        start(spark, parsed.bootstrap, Path(name), parsed.rate).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
