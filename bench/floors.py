"""Where a micro-batch's milliseconds go: Spark alone, a Python sink that does nothing, and sinks of
Kafka, in turn in one session.

A round runs each contender once, as a query of its own that takes ``--batches`` micro-batches of
1000 rows, after some that start workers and connect. Prints one JSON line with, for each contender
and round, the milliseconds of each trigger and of its addBatch (the query's progress), and the CPU
milliseconds of a micro-batch, in the mean: of Spark's JVM and all Python workers, and of the
workers alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.microbatch import micro_batches
from bench.rounds import Rounds
from bench.spark_job import children, cpu_seconds, create, delete, session
from spark_kafka_sink import foreach_batch, transaction

#: The first ones start workers and connect.
WARM = 6
TOPIC = "bench-floors"
NOTHING = "Python sink that does nothing"
AT_LEAST_ONCE = "kprod, at-least-once"

Options = dict[str, str]
Figures = dict[str, list[float]]
Writer = Callable[[DataStreamWriter], DataStreamWriter]


def to(sink: str, options: Options | None = None) -> Writer:
    return lambda writer: writer.format(sink).options(**(options or {}))


def by(write: Callable[[DataFrame, int], None]) -> Writer:
    return lambda writer: writer.foreachBatch(write)


def saved(sink: str, options: Options | None = None) -> Writer:
    """A foreachBatch function that saves each micro-batch as a job."""

    def save(batch: DataFrame, _: int) -> None:
        batch.write.format(sink).options(**(options or {})).mode("append").save()

    return by(save)


def read_by_python() -> Writer:
    """Goes round Spark's planning of a Python sink."""

    def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

    def read(batch: DataFrame, _: int) -> None:
        batch.mapInArrow(nothing, "rows long").collect()

    return by(read)


def in_block(options: Options) -> Writer:
    def write(batch: DataFrame, number: int) -> None:
        with transaction("block", number, **options) as block:
            block.write(batch)

    return by(write)


def contenders(bootstrap: str, jars: str, run: str) -> dict[str, Writer]:
    """Each by its name; ``run`` makes the keys of exactly-once new ones."""
    kafka = {"kafka.bootstrap.servers": bootstrap, "topic": TOPIC}
    at_least = kafka | {"deliveryGuarantee": "at-least-once"}
    exactly = kafka | {"transactionalIdPrefix": f"floors-{run}"}
    stream = exactly | {"deliveryGuarantee": "exactly-once"}
    found = {
        "Spark, noop": to("noop"),
        NOTHING: to("nothing"),
        "foreachBatch, noop": saved("noop"),
        "foreachBatch, a Python sink that does nothing": saved("nothing"),
        "foreachBatch, mapInArrow and collect": read_by_python(),
        "Spark's Kafka sink": to("kafka", kafka),
        AT_LEAST_ONCE: to("kprod", at_least),
        "kprod, exactly-once": to("kprod", stream),
        "foreachBatch, kprod at-least-once": saved("kprod", at_least),
        "foreach_batch, exactly-once": by(foreach_batch("floors", **exactly)),
        "transaction of one write": in_block(exactly),
    }
    return found if jars else {n: one for n, one in found.items() if n != "Spark's Kafka sink"}


def run(spark: SparkSession, writer_of: Callable[[], Writer], batches: int) -> Figures:
    """One query."""
    checkpoint = tempfile.mkdtemp(prefix="bench-checkpoint-")
    writer = writer_of()(micro_batches(spark).writeStream).option("checkpointLocation", checkpoint)
    query = writer.queryName(f"floor-{checkpoint[-8:]}").start()
    found: dict[int, tuple[float, float]] = {}
    begun: tuple[int, float, float] | None = None
    try:
        while len(found) < WARM + batches:
            query.awaitTermination(1)
            if query.exception() is not None:
                raise SystemExit(str(query.exception()))
            for progress in query.recentProgress:
                took = progress["durationMs"]
                if progress.numInputRows > 0 and "addBatch" in took:
                    times = took["triggerExecution"], took["addBatch"]
                    found[progress["batchId"]] = times
            if begun is None and len(found) >= WARM:
                begun = len(found), cpu_seconds(), cpu_seconds(python_only=True)
        assert begun is not None
        count = len(found) - begun[0]
        cpu = [cpu_seconds() - begun[1], cpu_seconds(python_only=True) - begun[2]]
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    ordered = [found[batch] for batch in sorted(found)][WARM:]
    return {
        "trigger": [trigger for trigger, _ in ordered],
        "addBatch": [add for _, add in ordered],
        "cpu": [1000 * cpu[0] / count],
        "python_cpu": [1000 * cpu[1] / count],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--jars", default="")
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connect", action="store_true", help="a session of Spark Connect")
    args = parser.parse_args()
    assert not children(), "only Spark's processes may be counted"
    spark = session(args.jars, connect=args.connect)
    admin = AdminClient({"bootstrap.servers": args.bootstrap})
    create(admin, TOPIC, 12)
    machine = Rounds(args.rounds, partial(print, file=sys.stderr))
    names = list(contenders(args.bootstrap, args.jars, ""))

    def writer(name: str) -> Writer:
        # A new key for each query: two sessions of a run have the same brokers, and so the same
        # commit log.
        return contenders(args.bootstrap, args.jars, uuid.uuid4().hex[:8])[name]

    def said(name: str) -> Figures:
        found = run(spark, partial(writer, name), args.batches)
        print(f"{name}: {sorted(found['trigger'])[len(found['trigger']) // 2]} ms", file=sys.stderr)
        return found

    runs = machine.interleaved([partial(said, name) for name in names])
    delete(admin, TOPIC)
    print(json.dumps(dict(zip(names, runs, strict=True)) | {"conditions": machine.conditions()}))
    spark.stop()


if __name__ == "__main__":
    main()
