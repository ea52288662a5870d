"""A Spark application that writes the change feed of a Delta table to Kafka, until it is killed:

    python -m tests.changelogs.stream_job '{"folder": ..., "jars": ..., "brokers": ...,
        "topic": ...}'

It ends by itself when ``table_job`` has written its ``rows.json`` and every change is written. Each
line that it prints is JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from spark_kafka_sink import foreach_batch, register, upserts
from tests.changelogs.delta_table import KEYS, session
from tests.changelogs.table_job import ROWS

#: No limit of files: Delta ends micro-batches between versions.
WHOLE_VERSIONS = 2_147_483_647
#: A micro-batch has several versions, because it costs more CPU time than a statement does.
EVERY = "5 seconds"


def _tell(**said: Any) -> None:
    print(json.dumps(said), flush=True)


def into_topic(
    given: dict[str, Any], name: str, checkpoint: str
) -> Callable[[DataFrame, int], None]:
    """A function that writes the changes of a micro-batch to the topic, as the query ``name``."""
    return foreach_batch(
        name,
        **{
            "kafka.bootstrap.servers": given["brokers"],
            "topic": given["topic"],
            "changelog": "delta-cdf",
            "keyColumns": ", ".join(KEYS),
            "valueColumns": "*",
            "checkpointLocation": checkpoint,
        },
    )


def main(given: dict[str, Any]) -> None:
    folder = Path(given["folder"])
    checkpoint = str(folder / "checkpoint")
    spark = session(folder / "stream-job", given["jars"])
    register(spark)
    write_changes = into_topic(given, given["topic"], checkpoint)

    def write(batch: DataFrame, number: int) -> None:
        _tell(begun=number)
        write_changes(upserts(batch, KEYS), number)
        _tell(written=number)

    query = (
        spark.readStream.format("delta")
        .option("readChangeFeed", "true")
        .option("maxFilesPerTrigger", given.get("limit", WHOLE_VERSIONS))
        .load(str(folder / "table"))
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=EVERY)
        .start()
    )
    while not (folder / ROWS).exists():
        query.awaitTermination(1)
    query.processAllAvailable()
    query.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
