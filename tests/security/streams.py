"""A streaming query that ends with its input. Owns: the query. Never: what becomes of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stream_once(spark: SparkSession, options: dict[str, str], place: Path) -> None:
    """Write the JSON files of ``place / "source"``, with a column ``value``, by the sink."""
    query = (
        spark.readStream.schema("value string")
        .json(str(place / "source"))
        .writeStream.format("kprod")
        .options(**options)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
