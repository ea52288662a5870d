"""JSON by ``valueColumns=*`` next to Spark's ``to_json(struct(*))`` before the sink, in turn.

python -m bench.json_values --bootstrap HOST:PORT --rows N     a broker that nobody else uses
Prints a line for each shape of rows: rows per second and client CPU seconds of both, and ratios.
"""

from __future__ import annotations

import argparse
import os
import time

from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession

from bench.spark_job import check, cpu_seconds, create, delete, session, touch
from bench.statistics import median, ratio

SHAPES = {
    "flat": (
        "id", "CAST(id * 7919 AS STRING) AS customer", "id % 100 AS store", "id / 7 AS amount",
        "CAST(id % 1000 / 100 AS DECIMAL(10, 2)) AS tax", "id % 3 = 0 AS paid",
        "CAST('2026-01-01' AS DATE) + CAST(id % 365 AS INT) AS day",
        "timestamp_micros(1767225600000000 + id) AS at",
    ),
    "text": ("id", "repeat(concat('words, \\\"quoted\\\" ', id, ' '), 12) AS text"),
    "nested": (
        "id", "named_struct('a', id, 'b', CAST(id AS STRING)) AS struct",
        "array(id, id + 1, id + 2) AS list", "map('k', id, 'l', id + 1) AS map",
        "array(named_struct('x', id), named_struct('x', id + 1)) AS structs",
    ),
}  # fmt: skip


def frame_of(spark: SparkSession, shape: str, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, 2).selectExpr(*SHAPES[shape])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    spark = session("")
    admin = AdminClient({"bootstrap.servers": args.bootstrap})
    for shape in SHAPES:
        rates: dict[str, list[float]] = {"valueColumns": [], "to_json": []}
        cpu: dict[str, list[float]] = {"valueColumns": [], "to_json": []}
        frame = frame_of(spark, shape, args.rows)
        for round_number in range(args.rounds + 1):
            for name, found in rates.items():
                topic = f"bench-{shape}-{name}-{round_number}-{os.getpid()}"
                create(admin, topic, 12)
                touch(args.bootstrap, topic, 12)
                used, start = cpu_seconds(), time.perf_counter()
                _write(frame, name, args.bootstrap, topic)
                seconds = time.perf_counter() - start
                used = cpu_seconds() - used
                check(args.bootstrap, topic, args.rows + 12, 12)
                delete(admin, topic)
                if round_number:  # the first round warms up
                    found.append(args.rows / seconds)
                    cpu[name].append(used)
        ours, theirs = rates.values()
        print(
            f"{shape}: {median(ours):,.0f} rows/s, to_json {median(theirs):,.0f}, "
            f"{ratio(ours, theirs)}; CPU {ratio(*cpu.values())}",
            flush=True,
        )
    spark.stop()


def _write(frame: DataFrame, name: str, bootstrap: str, topic: str) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    if name == "to_json":
        frame = frame.selectExpr("to_json(struct(*)) AS value")
    else:
        options["valueColumns"] = "*"
    frame.write.format("kprod").options(**options).mode("append").save()


if __name__ == "__main__":
    main()
