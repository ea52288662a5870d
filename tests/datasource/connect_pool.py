"""A program over Spark Connect: writes and a stream from threads of a pool, after ``register``.

Its arguments are the bootstrap servers, a directory and a topic; it prints a line of JSON with the
error of each thread (empty: none).
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from spark_kafka_sink import register


def main() -> None:
    bootstrap, directory, topic = sys.argv[1:]
    home = Path(directory)
    (home / "in").mkdir()
    (home / "in" / "0.json").write_text('{"value":"stream a"}\n{"value":"stream b"}\n')
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}

    def save(n: int) -> None:
        rows = spark.sql(f"SELECT 'save {n}' AS value")
        rows.write.format("kprod").options(**options).mode("append").save()

    def start() -> None:
        rows = spark.readStream.schema("value string").json(str(home / "in"))
        writer = rows.writeStream.format("kprod").options(**options).trigger(availableNow=True)
        writer.option("checkpointLocation", str(home / "checkpoint")).start().awaitTermination()

    with ThreadPoolExecutor(3) as pool:
        threads = [pool.submit(start), *(pool.submit(save, n) for n in range(2))]
        errors = [thread.exception() for thread in threads]
    print(json.dumps(["" if error is None else str(error) for error in errors]))


if __name__ == "__main__":
    main()
