"""A program over Spark Connect: queries of which the driver dies before Spark's own record.

Its arguments are the bootstrap servers, a directory and a topic; it prints a line of JSON with what
became of each query (an error's text, or nothing).
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_sink import foreach_batch, register, transaction
from tests.waiting import LONG_S

Function = Callable[[DataFrame, int], None]


def start(frame: DataFrame, checkpoint: Path, function: Function) -> StreamingQuery:
    """Spark gives the function's Python 10 s to connect, before there is a query, and no setting
    changes that: a machine that has more to do is asked again.
    """
    writer = frame.writeStream.foreachBatch(function).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(checkpoint))
    deadline = time.monotonic() + LONG_S
    while True:
        try:
            return writer.start()
        except PySparkException as error:
            late = "connect back" in str(error)
            if not late or time.monotonic() >= deadline:
                raise


def run(frame: DataFrame, checkpoint: Path, function: Function) -> str:
    query = start(frame, checkpoint, function)
    try:
        query.awaitTermination()
    except Exception as error:
        return str(error)
    return ""


def deleted(spark: SparkSession, home: Path, base: dict[str, str]) -> list[str]:
    """A function's name with other rows, another checkpoint, and its own without its past."""
    source = home / "files"
    source.mkdir()
    files = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1)
    frame = files.json(str(source))
    write = foreach_batch("deleted", **base)

    def add(value: str) -> None:
        part = home / f"{value}.json"
        part.write_text(json.dumps({"value": f"deleted {value}"}))
        part.rename(source / part.name)

    add("a")
    told = [run(frame, home / "one", write)]
    told.append(run(frame.selectExpr("value || '!' AS value"), home / "other", write))
    add("b")
    told += [run(frame, home / "one", write), run(frame, home / "two", write)]
    shutil.rmtree(home / "one")
    return [*told, run(frame, home / "one", write)]


def main() -> None:
    bootstrap, directory, topic = sys.argv[1:]
    home = Path(directory)
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    base = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "transactionalIdPrefix": topic}
    (home / "source").mkdir()
    (home / "source" / "0.json").write_text('{"value":"a"}\n{"value":"b"}\n')
    frame = spark.readStream.schema("value string").json(str(home / "source"))

    def replayed(kind: str) -> list[str]:
        given = base | {"checkpointLocation": str(home / kind)}

        def function(batch: DataFrame, batch_id: int) -> None:
            rows = batch.selectExpr(f"concat('{kind} ', repeat(uuid(), 1 + int(rand() * 9))) value")
            if kind == "function":
                foreach_batch(kind, **given)(rows, batch_id)
                return
            with transaction(kind, batch_id, **given) as t:
                t.write(rows)

        first = run(frame, home / kind, function)
        shutil.rmtree(home / kind / "commits")
        return [first, run(frame, home / kind, function)]

    def twice(batch: DataFrame, batch_id: int) -> None:
        for tag in "ab":
            with transaction("twice", batch_id, **base) as t:
                t.write(batch.selectExpr(f"concat('twice {tag} ', value) AS value"))

    def nested(batch: DataFrame, batch_id: int) -> None:
        with transaction("nested", batch_id, **base) as t:
            t.write(batch.selectExpr("concat('nested ', value) AS value"))
            with transaction("nested", batch_id, **base):
                pass

    def no_mode(batch: DataFrame, batch_id: int) -> None:
        rows = batch.selectExpr("concat('no_mode ', value) AS value")
        where = {name: base[name] for name in ("kafka.bootstrap.servers", "topic")}
        rows.write.format("kprod").options(**where).save()

    told = {kind: replayed(kind) for kind in ("function", "block")}
    told |= {f.__name__: [run(frame, home / f.__name__, f)] for f in (twice, nested, no_mode)}
    told["deleted"] = deleted(spark, home, base)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
