"""A Spark application that changes a Delta table at random, while a stream writes the changes to
Kafka:

    python -m tests.changelogs.delta_job '{"folder": ..., "jars": ..., "brokers": ..., "topic": ...,
        "seed": 1, "keys": 60, "versions": 12, "killed": "after"}'

It ends when the table has ``versions`` commits and the stream has written them. If ``killed`` is
not empty, it kills itself (SIGKILL) in the first micro-batch after these commits, while it goes on
changing the table: ``before`` the write, ``during`` it, or ``after`` it and before Spark has noted
its end. Each line that it prints is JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from random import Random
from threading import Event, Timer
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_kafka_sink import foreach_batch, register, upserts
from tests.changelogs.delta_table import KEYS, DeltaTable, session

#: No limit of files: Delta ends micro-batches between versions.
WHOLE_VERSIONS = 2_147_483_647


def _tell(**said: Any) -> None:
    print(json.dumps(said), flush=True)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Writer:
    """The foreachBatch function."""

    def __init__(self, given: dict[str, Any], checkpoint: Path) -> None:
        self.killed: str = given["killed"]
        self.is_due = Event()
        self._random = Random(f"{given['seed']} {given['versions']}")
        self._write = foreach_batch(
            given["topic"],
            **{
                "kafka.bootstrap.servers": given["brokers"],
                "topic": given["topic"],
                "changelog": "delta-cdf",
                "keyColumns": ", ".join(KEYS),
                "valueColumns": "*",
                "checkpointLocation": str(checkpoint),
            },
        )

    def __call__(self, batch: DataFrame, number: int) -> None:
        is_last = self.killed != "" and self.is_due.is_set()
        _tell(begun=number)
        if is_last and self.killed == "before":
            _kill()
        if is_last and self.killed == "during":
            Timer(self._random.uniform(0, 2), _kill).start()
        self._write(upserts(batch, KEYS), number)
        if is_last:
            _kill()
        _tell(written=number)


def _change(table: DeltaTable, given: dict[str, Any], is_due: Event) -> None:
    """Changes the table until it has its commits, or until the kill, which is due then."""
    kinds: Counter[str] = Counter()
    while (version := table.version()) < given["versions"] or given["killed"]:
        if version >= given["versions"]:
            is_due.set()
        # (A statement that finds no row is no commit.)
        kinds[table.change(Random(f"{given['seed']} {version} {kinds.total()}"))] += 1
    _tell(statements=kinds)


def _feed(spark: SparkSession, table: DeltaTable, **options: Any) -> DataFrame:
    reader = spark.readStream.format("delta").option("readChangeFeed", "true").options(**options)
    return reader.load(str(table.path))


def main(given: dict[str, Any]) -> None:
    folder = Path(given["folder"])
    spark = session(folder, given["jars"])
    register(spark)
    table = DeltaTable(spark, folder / "table", given["keys"])
    table.create(Random(given["seed"]))
    writer = Writer(given, folder / "checkpoint")
    query = (
        _feed(spark, table, maxFilesPerTrigger=given.get("limit", WHOLE_VERSIONS))
        .writeStream.foreachBatch(writer)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    _change(table, given, writer.is_due)
    query.processAllAvailable()
    query.stop()
    key, row = (f"to_json(struct({names}))" for names in (", ".join(KEYS), "*"))
    rows = spark.sql(f"SELECT {key}, {row} FROM {table.name}").collect()
    (folder / "rows.json").write_text(json.dumps([list(one) for one in rows]))
    _tell(rows=len(rows), version=table.version())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
