"""Spark next to Spark: kprod, Spark's own Kafka sink (defaults and tuned), noop and a Python sink
that does nothing (what Spark itself costs with any Python sink), in turn.

One SparkSession (local[2]) with the connector's jars; each contender writes the same generated
DataFrame once to warm up, then once a round, in turn. Prints one JSON line with, for each
contender, rows per second and client CPU seconds (Spark's JVM and every Python worker).

With ``--paced`` each round, the first included, waits for a line on standard input, and ends with
such a JSON line of its own, so that the rounds of two sessions can alternate.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import string
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count

import psutil
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench import nothing
from bench.rounds import Rounds
from spark_kafka_sink import register
from tests.programs import is_python

TUNED = {"kafka.batch.size": "1048576", "kafka.linger.ms": "50"}


def session(
    jars: str,
    *,
    master: str = "local[2]",
    unix_socket: bool = False,
    tuned: bool = False,
    connect: bool = False,
) -> SparkSession:
    """``connect``: the session is a client of a Spark Connect server, which runs in this process's
    JVM.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = (
        (SparkSession.builder.remote(master) if connect else SparkSession.builder.master(master))
        .appName("bench")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", str(unix_socket).lower())
    )
    if jars:
        builder = builder.config("spark.jars", jars)
    spark = builder.getOrCreate()
    if not connect:  # A session of Spark Connect has no sparkContext.
        spark.sparkContext.setLogLevel("ERROR")
    register(spark, tune=tuned)
    cloudpickle.register_pickle_by_value(nothing)  # the workers may not find this package
    spark.dataSource.register(nothing.NothingSource)
    return spark


def rows(spark: SparkSession, count: int, value_size: int, *, partitions: int = 2) -> DataFrame:
    """Generated rows, cheap to make: else Spark's work on the rows hides the sinks' differences.

    A key of up to 12 digits; a value of ``value_size`` bytes, of which the first digits vary.
    """
    rng = random.Random(1)
    text = "".join(rng.choices(string.ascii_lowercase + string.digits, k=value_size - 12))
    number = F.lpad((F.col("id") * 7919).cast("string"), 12, "0")
    return spark.range(0, count, 1, partitions).select(
        F.col("id").cast("string").alias("key"), F.concat(number, F.lit(text)).alias("value")
    )


def children() -> frozenset[int]:
    """The processes that this one has started, and theirs."""
    return frozenset(process.pid for process in psutil.Process().children(recursive=True))


def cpu_seconds(but: frozenset[int] = frozenset(), *, python_only: bool = False) -> float:
    """User and system time of this process' children: Spark's JVM and its Python workers; ``but``:
    a broker of its own.

    Workers that ended are counted by their parent (the daemon waits for them), so both the own
    and the children's times are summed, for every living process of the tree.
    """
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        if process.pid in but:
            continue
        try:
            if python_only and not is_python(process):
                continue
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--jars", required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--value-size", type=int, default=100)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--contenders", default="", help="only these, with commas between")
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--tune", action="store_true", help="register(spark, tune=True)")
    parser.add_argument("--unix-socket", action="store_true", help="rows reach workers over one")
    parser.add_argument("--paced", action="store_true", help="wait for a line before each round")
    args = parser.parse_args()
    spark = session(args.jars, unix_socket=args.unix_socket, tuned=args.tune)
    frame = rows(spark, args.rows, args.value_size, partitions=args.tasks)
    admin = AdminClient({"bootstrap.servers": args.bootstrap})
    codec = {} if args.codec == "none" else {"kafka.compression.type": args.codec}
    contenders: dict[str, Callable[[str], None]] = {
        "noop": lambda _topic: frame.write.format("noop").mode("overwrite").save(),
        "nothing": lambda _topic: frame.write.format("nothing").mode("append").save(),
        "kprod": lambda topic: _save(frame, "kprod", args.bootstrap, topic, codec),
        "kafka": lambda topic: _save(frame, "kafka", args.bootstrap, topic, codec),
        "kafka tuned": lambda topic: _save(frame, "kafka", args.bootstrap, topic, codec | TUNED),
    }
    if args.contenders:
        contenders = {name: contenders[name] for name in args.contenders.split(",")}
    results: dict[str, dict[str, list[float]]] = {
        name: {"rows_per_second": [], "cpu": []} for name in contenders
    }
    number = count()

    def run(name: str) -> tuple[float, float]:
        topic = f"bench-{name.replace(' ', '-')}-{next(number)}-{os.getpid()}"
        create(admin, topic, args.partitions)
        # Without it Spark's own sink now and then loops on OUT_OF_ORDER until it times out.
        touch(args.bootstrap, topic, args.partitions)
        cpu, start = cpu_seconds(), time.perf_counter()
        contenders[name](topic)
        seconds = time.perf_counter() - start
        used = cpu_seconds() - cpu
        written = 0 if name in ("noop", "nothing") else args.rows
        check(args.bootstrap, topic, written + args.partitions, args.partitions)
        delete(admin, topic)
        print(f"{name}: {args.rows / seconds:,.0f} rows/s, {used:.2f} s", file=sys.stderr)
        return args.rows / seconds, used

    def keep(name: str, found: tuple[float, float]) -> None:
        for figure, value in zip(("rows_per_second", "cpu"), found, strict=True):
            results[name][figure].append(value)

    if args.paced:
        for round_number in range(args.rounds + 1):
            if not sys.stdin.readline():
                break
            for name in contenders:
                found = run(name)
                if round_number:  # the first round warms up
                    keep(name, found)
            print(json.dumps(results), flush=True)
    else:
        machine = Rounds(args.rounds, partial(print, file=sys.stderr))
        for name, runs in zip(
            contenders, machine.interleaved([partial(run, n) for n in contenders]), strict=True
        ):
            for found in runs:
                keep(name, found)
        print(json.dumps(results | {"conditions": machine.conditions()}))
    spark.stop()


def _save(frame: DataFrame, source: str, bootstrap: str, topic: str, more: dict[str, str]) -> None:
    frame.write.format(source).option("kafka.bootstrap.servers", bootstrap).option(
        "topic", topic
    ).options(**more).mode("append").save()


def create(admin: AdminClient, topic: str, partitions: int, *, replicas: int = 1) -> None:
    """A topic whose closed segments go quickly, so that long runs don't fill the disk."""
    config = {"segment.bytes": str(256 * 1024 * 1024), "file.delete.delay.ms": "1000"}
    admin.create_topics([NewTopic(topic, partitions, replicas, config=config)])[topic].result(30)
    # Leaders take a moment; a contender should not pay for it.
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        described = admin.list_topics(topic, 5).topics[topic]
        if len(described.partitions) == partitions and all(
            p.leader >= 0 for p in described.partitions.values()
        ):
            return
        time.sleep(0.05)
    raise SystemExit(f"{topic} got no leaders")


def touch(bootstrap: str, topic: str, partitions: int) -> None:
    """One record into each partition: a broker leads a new partition some time after it says so,
    up to ten seconds with a thousand of them, and opens its log at the first append."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for partition in range(partitions):
        producer.produce(topic, b"touch", partition=partition)
    if producer.flush(120) != 0:
        raise SystemExit(f"{topic} took no records")


def delete(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(30)


def check(bootstrap: str, topic: str, expected: int, partitions: int) -> None:
    """Every run is checked: a fast sink that loses rows is no sink."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    found = 0
    for partition in range(partitions):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        found += high - low
    consumer.close()
    if found != expected:
        raise SystemExit(f"{topic}: {found} records for {expected} rows")


if __name__ == "__main__":
    main()
