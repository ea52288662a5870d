"""Backfills of a Delta table, in a session that has Delta Lake.

    python delta_backfill_job.py FOLDER BROKERS TOPIC CALL

FOLDER holds the table, which the call ``first`` makes. Each call prints its result as JSON:

- ``first`` writes one step, and stops;
- ``recreated`` drops the table, makes another one with as many versions in its place, and prints
  the error of the call;
- ``changed`` changes the table in every way (new rows, other values, deleted rows, a new column),
  and goes on to the end;
- ``again`` calls the finished backfill again, with the table dropped.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from bench.peers import delta_jars
from spark_kafka_sink import backfill, register
from spark_kafka_sink.base.errors import ConfigError
from tests.changelogs.delta_table import session
from tests.datasource.jobs.rows_read import RowsRead

ROWS, DAYS = 1_000, 10


def main(folder: str, brokers: str, topic: str, call: str) -> None:
    spark = session(Path(folder), delta_jars())
    register(spark)
    table = f"delta.`{Path(folder) / 'table'}`"
    if call == "first":
        rows = spark.range(0, ROWS, 1, 2).selectExpr("id", f"id % {DAYS} AS day")
        rows.write.format("delta").partitionBy("day").save(str(Path(folder) / "table"))
    if call == "recreated":
        shutil.move(Path(folder) / "table", Path(folder) / "kept")
        rows = spark.range(0, ROWS, 1, 2).selectExpr("-id AS id", f"id % {DAYS} AS day")
        rows.write.format("delta").partitionBy("day").save(str(Path(folder) / "table"))
    if call == "changed":
        spark.sql(f"INSERT INTO {table} SELECT id, id % {DAYS} FROM range({ROWS}, {2 * ROWS})")
        spark.sql(f"UPDATE {table} SET id = -id WHERE id % 3 = 0")
        spark.sql(f"DELETE FROM {table} WHERE id % 5 = 0")
        spark.sql(f"ALTER TABLE {table} ADD COLUMN more STRING")
    if call == "again":
        # The log has the steps; nothing of the table is left to read.
        for file in (Path(folder) / "table").rglob("*.parquet"):
            file.unlink()

    def records(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("CAST(id AS STRING) AS value", "day")

    read_rows = RowsRead(spark)
    try:
        done = backfill(
            table,
            name="days",
            by="day",
            transform=records,
            on_step=lambda _: call != "first",
            topic=topic,
            transactionalIdPrefix=topic,
            **{"kafka.bootstrap.servers": brokers},
        )
    except ConfigError as error:
        print("RESULT " + json.dumps({"error": error.message}))
        shutil.rmtree(Path(folder) / "table")
        shutil.move(Path(folder) / "kept", Path(folder) / "table")
        return
    result = {"finished": done.finished, "rows": done.rows, "steps": done.steps}
    more = {"written": [step.rows for step in done.written], "read": read_rows.take()}
    print("RESULT " + json.dumps(result | more))


if __name__ == "__main__":
    main(*sys.argv[1:])
