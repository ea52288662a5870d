"""What a change costs in a task: the step that turns a change feed into rows of the table.

    python -m bench.change_cost

CPU time of the thread for each row: the fastest and the median of many batches, for keys of one
number, and of a number and a text. A batch is as Spark sends it after ``upserts``: 10,000 rows with
other keys, in no order of the commits. The goal is 0.1 us for a row. Measure on a machine that does
nothing else.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.write.schema import plan_columns
from spark_kafka_sink.records.changes.changed_rows import ChangedRows
from spark_kafka_sink.records.column_plan import ColumnPlan

ROWS = 10_000
OPTIONS = {
    "kafka.bootstrap.servers": "h:9092",
    "topic": "t",
    "changelog": "delta-cdf",
    "valueColumns": "*",
}


def batch_of(rng: np.random.Generator) -> pa.RecordBatch:
    kinds = np.array(["insert", "update_postimage", "delete"])
    columns = {
        "id": pa.array(rng.permutation(ROWS)),
        "name": pa.array([f"name {number % 1000}" for number in range(ROWS)]),
        "text": pa.array([f"text {number}" for number in range(ROWS)]),
        "amount": pa.array(rng.random(ROWS)),
        "_change_type": pa.array(rng.choice(kinds, ROWS, p=[0.3, 0.6, 0.1])),
        "_commit_version": pa.array(rng.integers(1, 20, ROWS)),
        "_commit_timestamp": pa.array(
            np.full(ROWS, 1_790_000_000_000_000), pa.timestamp("us", tz="UTC")
        ),
    }
    return pa.RecordBatch.from_pydict(columns)


def plan_of(schema: pa.Schema, keys: str) -> ColumnPlan:
    config = parse_sink_config(OPTIONS | {"keyColumns": keys})
    fields = [StructField(field.name, from_arrow_type(field.type)) for field in schema]
    plan: ColumnPlan = plan_columns(
        StructType(fields), config.topic, config.named_columns, changes=config.changes
    )
    return plan


def costs(keys: str, rounds: int) -> list[float]:
    """Microseconds of CPU for a row, one for each round."""
    rng = np.random.default_rng(1)
    batches = [batch_of(rng) for _ in range(10)]
    rows = ChangedRows(plan_of(batches[0].schema, keys))
    found = []
    for number in range(rounds):
        begun = time.thread_time_ns()
        rows.changed(batches[number % len(batches)])
        found.append((time.thread_time_ns() - begun) / 1000 / ROWS)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3000)
    rounds = parser.parse_args().rounds
    for keys in ("id", "id, name"):
        found = costs(keys, rounds)
        print(
            f"{keys}: fastest {min(found):.3f} us a row, median {statistics.median(found):.3f} us"
        )


if __name__ == "__main__":
    main()
