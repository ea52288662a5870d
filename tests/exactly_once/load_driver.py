"""A Spark application that writes the load, as a process of its own: it is there to be killed.

    python -m tests.exactly_once.load_driver --master local[2,3] --name d0

It takes one command per line (JSON) on its standard input and answers each with one line on its
standard output; Spark's log goes to standard error. What it promises to its user it writes to the
truth file, line by line and durably, before it goes on (``truth.py``).

``batch``: one ``df.write`` of rows ``first .. first + rows``, after a ``shuffle`` if there is one.
``stream``: micro-batches of ``rows`` rows each until batch ``until`` is in the checkpoint's commit
log, or the file ``stop`` is there;
Spark's rate-micro-batch source makes the same rows again after a restart. ``foreach``: the same
with ``foreach_batch(name)``, called on the stream's own thread or from a thread pool (``where``:
own, pool). ``streams``: several streams beside each other. ``backfill``: a backfill. ``twice``:
writer.commit and writer.abort called by hand, in any order.

The load misbehaves when asked (``misbehave``), for a task and for attempts of it: it is Spark's
input that throws, sleeps or waits for a file, so the sink has no hook for it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError

from tests.exactly_once import records
from tests.exactly_once.records import Fate
from tests.exactly_once.truth import Result, TruthWriter, classify
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

SCHEMA = "key binary, value binary, headers array<struct<key: string, value: binary>>"
#: What rows that can't be sent need besides.
MORE_COLUMNS = ", partition int, timestamp long"
#: Rows that the load hands on at once, so that a task can misbehave between two of them.
CHUNK = 50

CONFS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "700m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(CHUNK),
    # Shorter pauses around what is tested; none of them is between the steps of a commit.
    "spark.sql.streaming.pollingDelay": "5ms",
    "spark.python.task.killTimeout": "500ms",
}


def misbehaving(
    batches: Iterator[pa.RecordBatch], spec: dict[str, Any], task: int, attempt: int, batch: int
) -> Iterator[pa.RecordBatch]:
    """``spec``: task, attempts (None: all), batch (None: any), after (rows, -1: at the end), how.

    how: ``mark`` (go on), ``raise``, ``exit`` (the Python process that reads the input dies),
    ``sleep`` (``seconds``), ``wait`` (until the file ``until`` is there). Each first makes the file
    ``{marks}/{how}-{task}-{attempt}``: a test sees by it that the fault fired.
    """
    wanted = spec.get("task") in (None, task) and spec.get("batch") in (None, batch)
    attempts = spec.get("attempts")
    if not wanted or (attempts is not None and attempt not in attempts):
        yield from batches
        return
    after, done, how = int(spec.get("after", -1)), 0, spec["how"]

    def now() -> None:
        Path(spec["marks"], f"{how}-{task}-{attempt}").touch()
        if how == "raise":
            raise RuntimeError("planned: the load throws")
        if how == "exit":
            os._exit(3)
        if how == "sleep":
            time.sleep(float(spec["seconds"]))
        deadline = time.monotonic() + 60 * PATIENCE
        while how == "wait" and not Path(spec["until"]).exists():
            assert time.monotonic() < deadline, f"{spec['until']} never came"
            time.sleep(0.01)

    fired = False
    for batch_of_rows in batches:
        if not fired and 0 <= after <= done:
            fired = True
            now()
        yield batch_of_rows
        done += batch_of_rows.num_rows
    if not fired:
        now()


def label(
    command: dict[str, Any], driver: str, batch: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow: the column ``seq`` becomes key, value and headers of the task that runs.

    ``batch`` -1: the micro-batch's. Of the command: ``fates``, task to {attempt to fate}, where ""
    is every task or attempt; ``empty``, batches that get no row; ``bad``, of so many rows one of
    each kind of those that can't be sent.
    """
    run, size, bad = command["run"], int(command.get("size", 64)), int(command.get("bad", 0))
    fates, specs = command.get("fates", {}), command.get("misbehave", [])
    empty = frozenset(command.get("empty", []))

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task, attempt_number = context.partitionId(), context.attemptNumber()
        number = batch
        if number < 0:
            number = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        attempt = f"{driver}.{attempt_number}"
        of_task = fates.get(str(task), fates.get("", {}))
        fate = Fate[of_task.get(str(attempt_number), of_task.get("", "OPEN"))]
        header = [{"key": k, "value": v} for k, v in records.headers(fate, attempt)]
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

        def labelled() -> Iterator[pa.RecordBatch]:
            for rows in batches:
                if number in empty:
                    continue
                key, seqs = records.key(run, number, task, attempt), rows.column(0).to_pylist()
                kinds = [records.bad_kind(seq, bad) for seq in seqs]
                values = [
                    records.value(key, seq, records.TOO_LARGE if one == 4 else size)
                    for seq, one in zip(seqs, kinds, strict=True)
                ]
                named = [[*header, None] if one == 3 else header for one in kinds]
                columns = {
                    "key": pa.array([key] * rows.num_rows, pa.binary()),
                    "value": pa.array(values, pa.binary()),
                    "headers": pa.array(named, kind),
                }
                if bad:
                    partitions = [{0: -7, 1: 99}.get(one) for one in kinds]
                    times = [-1 if one == 2 else None for one in kinds]
                    columns["partition"] = pa.array(partitions, pa.int32())
                    columns["timestamp"] = pa.array(times, pa.int64())
                yield pa.record_batch(columns)

        found = labelled()
        for spec in specs:
            found = misbehaving(found, spec, task, attempt_number, number)
        yield from found

    return rows


def columns_of(command: dict[str, Any]) -> str:
    return SCHEMA + (MORE_COLUMNS if command.get("bad") else "")


def use_session(spark: SparkSession) -> None:
    """A thread has no active session, and finds no Python source, before it has used one."""
    spark.createDataFrame([(0,)], "nothing int")


def for_each(command: dict[str, Any], driver: str) -> Callable[[DataFrame, int], None]:
    """What ``writeStream.foreachBatch`` takes. It has no session in it, so that Connect may send
    it.
    """
    from spark_kafka_sink import foreach_batch

    write = foreach_batch(command["name"], **command["options"])

    def function(batch: DataFrame, number: int) -> None:
        frame = batch.mapInArrow(label(command, driver, number), columns_of(command))

        def in_pool() -> None:
            use_session(batch.sparkSession)
            write(frame, number)

        if command.get("where") == "pool":
            with ThreadPoolExecutor(1) as pool:
                pool.submit(in_pool).result()
        else:
            write(frame, number)

    return function


class LoadDriver:
    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark = spark
        self.name = name

    def labelled(self, rows: DataFrame, command: dict[str, Any], batch: int) -> DataFrame:
        return rows.mapInArrow(label(command, self.name, batch), columns_of(command))

    def batch(self, command: dict[str, Any]) -> dict[str, Any]:
        truth = TruthWriter(command["truth"])
        number, first, rows = int(command["batch"]), int(command["first"]), int(command["rows"])
        tasks = int(command.get("tasks", 2))
        source = self.spark.range(first, first + rows, 1, tasks)
        if command.get("shuffle"):
            # A task of the load writes its rows in the order of their numbers.
            source = source.repartition(tasks).sortWithinPartitions("id")
        frame = self.labelled(source, command, number)
        truth.invoke(number, first, rows)
        try:
            frame.write.format("kprod").options(**command["options"]).mode("append").save()
        except Exception as error:
            truth.failed(number, str(error))
            return {"result": classify(str(error)).name, "error": str(error)}
        else:
            truth.ok(number)
            return {"result": "OK"}
        finally:
            truth.close()

    def stream(self, command: dict[str, Any]) -> dict[str, Any]:
        frame = self.labelled(self._source(command), command, -1)
        return self._watched(
            frame.writeStream.format("kprod").options(**command["options"]), command
        )

    def backfill(self, command: dict[str, Any]) -> dict[str, Any]:
        from tests.exactly_once import backfill_load

        return backfill_load.run(self.spark, command)

    def foreach(self, command: dict[str, Any]) -> dict[str, Any]:
        writer = self._source(command).writeStream.foreachBatch(for_each(command, self.name))
        return self._watched(writer, command)

    def streams(self, command: dict[str, Any]) -> dict[str, Any]:
        """``each`` is a command of ``stream``; ``behind`` in it is a file that it waits for."""

        def one(command: dict[str, Any]) -> dict[str, Any]:
            use_session(self.spark)
            while not Path(command.get("behind", ".")).exists():
                time.sleep(0.01)
            try:
                return self.stream(command)
            except Exception as error:
                return {"result": "BROKEN", "error": f"{type(error).__name__}: {error}"}

        with ThreadPoolExecutor(len(command["each"])) as pool:
            return {"result": "OK", "answers": list(pool.map(one, command["each"]))}

    def _source(self, command: dict[str, Any]) -> DataFrame:
        """With ``source`` the offsets are those of a Kafka topic of that name."""
        if "source" in command:
            from tests.exactly_once.counted_source import CountedSource

            self.spark.dataSource.register(CountedSource)
            reader = self.spark.readStream.format("counted").option("topic", command["source"])
            reader = reader.option("rows", command["rows"])
            return reader.option("tasks", command.get("tasks", 2)).load()
        return (
            self.spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", int(command["rows"]))
            .option("numPartitions", command.get("tasks", 2))
            .load()
            .selectExpr("value as seq")
        )

    def _watched(self, writer: DataStreamWriter, command: dict[str, Any]) -> dict[str, Any]:
        """Started, and watched until it ends, or is to end."""
        truth = TruthWriter(command["truth"])
        checkpoint = Path(command["checkpoint"])
        until = command.get("until")
        stop = Path(command.get("stop", checkpoint / "never"))
        query = (
            writer.option("checkpointLocation", str(checkpoint))
            .trigger(processingTime=command.get("trigger", "0 seconds"))
            .start()
        )
        watch = CheckpointWatch(
            checkpoint, truth, int(command["rows"]), frozenset(command.get("empty", []))
        )
        try:
            while query.isActive and not stop.exists():
                if until is not None and watch.done(int(until)):
                    break
                watch.look()
                time.sleep(0.005)
            if query.isActive:
                query.stop()
            query.awaitTermination(60)
            error = query.exception()
        except Exception as raised:  # awaitTermination throws what ended the query
            if java_is_gone(raised):
                # Nobody said anything of the batch, so it is not over.
                truth.close()
                return {"result": Result.KILLED.name, "error": str(raised)}
            error = raised
        watch.look()
        if error is None:
            truth.close()
            return {"result": "OK", "batches": watch.committed}
        watch.failed(str(error))
        truth.close()
        return {"result": classify(str(error)).name, "error": str(error)}

    def twice(self, command: dict[str, Any]) -> dict[str, Any]:
        """Plan, write in a real task, then call ``steps`` (commit, abort) on the writer by hand."""
        from pyspark import cloudpickle
        from pyspark.sql.types import _parse_datatype_string

        from spark_kafka_sink.datasource.source import KprodDataSource

        truth = TruthWriter(command["truth"])
        number, first, rows = int(command["batch"]), int(command["first"]), int(command["rows"])
        tasks = int(command.get("tasks", 2))
        schema = _parse_datatype_string(SCHEMA)
        options = {str(k): str(v) for k, v in command["options"].items()}
        source = KprodDataSource(_options(options))
        pickled = cloudpickle.dumps(source.writer(schema, False))
        make = label(command, self.name, number)

        def write(task: int, part: Iterator[int]) -> Iterator[bytes]:
            import pyarrow as pa

            seqs = pa.record_batch({"seq": pa.array(list(part), pa.int64())})
            writer = cloudpickle.loads(pickled)
            yield cloudpickle.dumps(writer.write(make(iter([seqs]))))

        truth.invoke(number, first, rows)
        context = self.spark.sparkContext
        parts = context.parallelize(range(first, first + rows), tasks)
        messages = [cloudpickle.loads(m) for m in parts.mapPartitionsWithIndex(write).collect()]
        answers: list[str] = []
        for step in command["steps"]:
            # Spark calls each in a process that unpickled the planned writer.
            writer = cloudpickle.loads(pickled)
            try:
                getattr(writer, step)(messages)
                answers.append("OK")
            except Exception as error:
                answers.append(f"{type(error).__name__}: {error}")
        done = [a for s, a in zip(command["steps"], answers, strict=True) if s == "commit"]
        if "OK" in done:
            truth.ok(number)
        else:
            truth.failed(number, next(iter(done), "only aborted"))
        truth.close()
        return {"result": "OK", "answers": answers}


def _options(options: dict[str, str]) -> Any:
    from pyspark.sql.datasource import CaseInsensitiveDict

    return CaseInsensitiveDict(options)


def java_is_gone(error: Exception) -> bool:
    """It is Py4J's own, of a connection that is lost; what Java throws is another class."""
    return isinstance(error, (OSError, Py4JError)) and not isinstance(error, Py4JJavaError)


class CheckpointWatch:
    """Writes into the truth file what Spark's checkpoint says: the one promise that a stream makes.

    A batch is begun when ``offsets/N`` is there, OK when ``commits/N`` is. Both are made by a
    rename, so a name is a whole file.
    """

    def __init__(
        self, checkpoint: Path, truth: TruthWriter, rows: int, empty: frozenset[int]
    ) -> None:
        self._checkpoint = checkpoint
        self._truth = truth
        self._rows = rows
        self._empty = empty
        self.begun = -1
        self.committed = -1
        # What was before this start: an earlier driver may not have come to tell it.
        self.look()

    def look(self) -> None:
        for kind in ("offsets", "commits"):
            try:
                names = [path.name for path in (self._checkpoint / kind).iterdir()]
            except OSError:
                continue
            newest = max((int(name) for name in names if name.isdigit()), default=-1)
            if kind == "offsets":
                for number in range(self.begun + 1, newest + 1):
                    self._begin(number)
                self.begun = max(self.begun, newest)
            else:
                for number in range(self.committed + 1, newest + 1):
                    if number > self.begun:
                        self._begin(number)
                        self.begun = number
                    self._truth.ok(number, self._made(number))
                self.committed = max(self.committed, newest)

    def _made(self, number: int) -> float | None:
        """When Spark made commits/N: the next batch begins behind that, and we look later."""
        try:
            return (self._checkpoint / "commits" / str(number)).stat().st_mtime
        except OSError:
            return None

    def _begin(self, number: int) -> None:
        rows = 0 if number in self._empty else self._rows
        self._truth.invoke(number, number * self._rows, rows)

    def done(self, until: int) -> bool:
        return self.committed >= until

    def failed(self, error: str) -> None:
        if self.begun > self.committed:
            self._truth.failed(self.begun, error)


def session(master: str, name: str, confs: dict[str, str], *, connect: bool) -> SparkSession:
    """``connect``: the session is a client of a Spark Connect server, in this process's JVM."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    import spark_kafka_sink

    builder = SparkSession.builder.appName(f"load {name}")
    builder = builder.remote(master) if connect else builder.master(master)
    for conf, value in {**CONFS, **confs}.items():
        builder = builder.config(conf, value)
    spark = builder.getOrCreate()
    context = SparkContext._active_spark_context
    assert context is not None
    context.setLogLevel("WARN")
    spark_kafka_sink.register(spark)
    return spark


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", default="local[2,3]")
    parser.add_argument("--name", required=True)
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("--connect", action="store_true")
    arguments = parser.parse_args()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever Spark prints goes to the log
    commands = os.fdopen(os.dup(0), "r")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # no child holds our standard input
    os.close(null)
    confs = dict(text.split("=", 1) for text in arguments.conf)
    spark = session(arguments.master, arguments.name, confs, connect=arguments.connect)
    from pyspark import SparkContext

    java = SparkContext._gateway.proc.pid  # type: ignore[union-attr]
    print(json.dumps({"ready": True, "pid": os.getpid(), "java": java}), file=out)
    driver = LoadDriver(spark, arguments.name)
    for line in commands:
        command = json.loads(line)
        start = time.monotonic()
        try:
            answer = getattr(driver, command["do"])(command)
        except Exception as error:
            answer = {"result": "BROKEN", "error": f"{type(error).__name__}: {error}"}
        answer["ms"] = round((time.monotonic() - start) * 1000)
        print(json.dumps(answer), file=out)
    spark.stop()


if __name__ == "__main__":
    # A killed JVM must not leave this process waiting for it.
    threading.excepthook = lambda _: os._exit(1)
    sys.exit(main())
