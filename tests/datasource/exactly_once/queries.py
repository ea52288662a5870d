"""Exactly-once writes and streams on Spark, and what is read back of them with read_committed."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql.functions import col, raise_error, when

from tests.waiting import PATIENCE

COMMITTED = "read_committed"


def save(df, options, **more):
    df.write.format("kprod").mode("append").options(**(options | more)).save()


def run_with(frame, function, tmp_path, checkpoint="checkpoint", mode="append"):
    """Runs a query of foreachBatch over all that is there, from its checkpoint."""
    query = (
        frame.writeStream.foreachBatch(function)
        .outputMode(mode)
        .option("checkpointLocation", str(tmp_path / checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def in_a_thread(write):
    """``write``, a function for foreachBatch, in a thread of a pool. It has none of Spark's local
    properties.
    """

    def function(batch, batch_id):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(write, batch, batch_id).result()

    return function


def numbers(spark, start, end, partitions=2):
    return spark.range(start, end, 1, partitions).selectExpr("cast(id AS string) AS value")


def shows(consume, topic, expected):
    """A read_committed reader sees just these once the markers are there (milliseconds later)."""
    wanted = sorted(str(v).encode() for v in expected)
    deadline = time.monotonic() + 60 * PATIENCE
    while (found := sorted(consume(topic, isolation=COMMITTED).values)) != wanted:
        assert time.monotonic() < deadline, f"{found}, and not {wanted}"


def fails_at(df, value):
    """``df``, with a row that fails its task after others were written."""
    return df.select(
        when(col("value") == str(value), raise_error("told to fail"))
        .otherwise(col("value"))
        .alias("value")
    )


def lose_commit(tmp_path, batch_id):
    """The driver dies between our DONE and Spark's own record of the commit."""
    for record in (tmp_path / "checkpoint" / "commits").glob(f"*{batch_id}*"):
        record.unlink()
