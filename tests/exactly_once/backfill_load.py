"""A backfill of the load driver, which waits after each step until the test lets it go on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_kafka_sink import BackfillStep

#: Rows of a day.
DAY = 40


def run(spark: SparkSession, command: dict[str, Any]) -> dict[str, Any]:
    """Writes numbers from 0 on; the answer has the fields of the result. With the directory
    ``marks`` a step makes a file ``step-N`` there, and the call goes on when there is ``go-N``.
    """
    from spark_kafka_sink import backfill

    marks = command.get("marks")
    seen = 0

    def gate(_: BackfillStep) -> None:
        nonlocal seen
        seen += 1
        if marks is not None:
            (Path(marks) / f"step-{seen}").touch()
            wait_for((Path(marks) / f"go-{seen}").exists, 600, "the test to let it go on")

    frame = spark.range(command["rows"]).selectExpr(
        "CAST(id AS STRING) AS value", f"id DIV {DAY} AS day"
    )
    try:
        result = backfill(
            frame, name=command["name"], on_step=gate, **command["cut"], **command["options"]
        )
    except Exception as error:
        return {"result": "FAIL", "error": str(error)}
    return {"result": "OK", **asdict(result)}
