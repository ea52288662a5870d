"""A stream that divides a version of a Delta table, and the query that the warning suggests:

    python -m tests.changelogs.divided_job '{"folder": ..., "jars": ..., "brokers": ...,
        "topic": ...}' divided
    python -m tests.changelogs.divided_job '{...}' whole VERSION

``divided`` replaces every row, and writes the changes with one file in a micro-batch. ``whole``
writes the changes from VERSION, as the warning's hint says. Each prints a line of JSON: the
``warnings`` and the ``rows`` of the table.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import DataFrame

from spark_kafka_sink import register, upserts
from tests.changelogs.delta_table import KEYS, DeltaTable, session
from tests.changelogs.stream_job import WHOLE_VERSIONS, into_topic


class Warnings(logging.Handler):
    """The messages of the package's warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def write(table: DeltaTable, given: dict[str, Any], name: str, **options: Any) -> None:
    """Writes all changes as the query ``name``, with ``options`` of Delta's source."""
    checkpoint = str(Path(given["folder"]) / name)
    write_changes = into_topic(given, f"{given['topic']}-{name}", checkpoint)

    def each(batch: DataFrame, number: int) -> None:
        write_changes(upserts(batch, KEYS), number)

    changes = table.spark.readStream.format("delta").option("readChangeFeed", "true")
    query = (
        changes.options(**options)
        .load(str(table.path))
        .writeStream.foreachBatch(each)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(given: dict[str, Any], step: str, version: str = "") -> None:
    heard = Warnings()
    logging.getLogger("spark_kafka_sink").addHandler(heard)
    folder = Path(given["folder"])
    spark = session(folder, given["jars"])
    register(spark)
    table = DeltaTable(spark, folder / "table", 40)
    if step == "divided":
        table.create(Random(46))
        write(table, given, step, maxFilesPerTrigger=1)
        spark.sql(
            f"INSERT OVERWRITE {table.name} SELECT id, name, number + 1, tags, part"
            f" FROM {table.name}"
        )
        write(table, given, step, maxFilesPerTrigger=1)
    else:
        write(table, given, step, maxFilesPerTrigger=WHOLE_VERSIONS, startingVersion=version)
    print(json.dumps({"warnings": heard.messages, "rows": table.rows()}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), *sys.argv[2:])
