"""The restart of a micro-batch that is done, known by its digest or compared by its rows.

``python -m bench.replayed_batch --rows 10000000``: the query is stopped between the commit and
Spark's own record of it, and started again. Prints one JSON line: seconds of the write, and of
restarts with Spark's checkpointLocation as an option (its digest is known) and without (the rows
are read), in turn.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from bench.spark_job import create, session
from spark_kafka_sink.local_kafka import KafkaCluster

TOPIC = "bench-replayed"
_ENOUGH_S = 600


def seconds(spark: SparkSession, bootstrap: str, home: Path, rows: int, *, known: bool) -> float:
    """Until Spark has recorded batch 0 as committed."""
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=rows, numPartitions=4)
    frame = source.load().selectExpr("repeat(CAST(value AS STRING), 10) AS value")
    writer = frame.writeStream.format("kprod").options(
        **{
            "kafka.bootstrap.servers": bootstrap,
            "topic": TOPIC,
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": "bench-replayed",
        }
    )
    if known:
        writer = writer.option("checkpointLocation", str(home / "query"))
    else:
        spark.conf.set("spark.sql.streaming.checkpointLocation", str(home))
        writer = writer.queryName("query")
    begun = time.monotonic()
    query = writer.trigger(processingTime="1 hour").start()
    while not (home / "query" / "commits" / "0").exists():
        if not query.isActive or time.monotonic() > begun + _ENOUGH_S:
            raise SystemExit(f"batch 0 was not written: {query.exception()}")
        time.sleep(0.05)
    taken = time.monotonic() - begun
    query.stop()
    return round(taken, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="replayed-"))
    found: dict[str, list[float]] = {"write": [], "known": [], "read": []}
    with KafkaCluster() as kafka:
        create(AdminClient({"bootstrap.servers": kafka.bootstrap}), TOPIC, 4)
        spark = session("")
        found["write"].append(seconds(spark, kafka.bootstrap, home, args.rows, known=True))
        for _ in range(args.rounds):
            for name, known in (("known", True), ("read", False)):
                shutil.rmtree(home / "query" / "commits")
                found[name].append(seconds(spark, kafka.bootstrap, home, args.rows, known=known))
        spark.stop()
    shutil.rmtree(home)
    print(json.dumps({"rows": args.rows, "seconds": found}))


if __name__ == "__main__":
    main()
