"""What rows that can't be sent cost a task: the CPU of its worker process, in turn.

python -m bench.dead_letters --commit 524d4df     the commit before there were dead letters

A broker of its own, and a worker process for each contender, warm: each round one task writes the
same number of rows (keys of 12 bytes, values of 100, a timestamp) as Spark's Arrow batches. Prints
a line for each contender: rows per second of wall time and of CPU time, and its CPU as a ratio of
that of errors.tolerance=none, round by round. It is the task alone: what Spark costs is the same
with and without.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic

from bench.engine_ours import ARROW_ROWS, arrow_batches
from bench.engines import ROOT, PacedChild, package_of
from bench.rounds import Rounds
from bench.statistics import median, ratio
from spark_kafka_sink.local_kafka import KafkaCluster

PARTITIONS = 12
#: Of each contender: whether there are dead letters, and how many rows of a thousand are bad.
CONTENDERS = {
    "tolerance none": (False, 0),
    "no bad rows": (True, 0),
    "0.1 % bad rows": (True, 1),
    "all rows bad": (True, 1000),
}
BEFORE = "before"
MEMORY = "/dev/shm"
#: Full segments go at once: brokers look for them as often as this.
QUICKLY = {"log.retention.check.interval.ms": "1000"}


def batches_of(bad_rows: int) -> list[pa.RecordBatch]:
    """Some Arrow batches, of whose rows ``bad_rows`` of a thousand have a negative timestamp."""
    found = []
    rng = np.random.default_rng(7)
    for one in arrow_batches(100, 50, 7):
        times = np.arange(ARROW_ROWS) + 1_700_000_000_000_000
        times[rng.permutation(ARROW_ROWS)[: ARROW_ROWS * bad_rows // 1000]] = -1000
        time_column = pa.array(times).cast(pa.timestamp("us", "UTC"))
        found.append(one.append_column("timestamp", time_column))
    return found


def worker(bootstrap: str, name: str, rows: int) -> None:
    """A task for each line of standard input; answers with its seconds."""
    from spark_kafka_sink.config.parsing import parse_sink_config
    from spark_kafka_sink.datasource.write.producer_cache import CachedProducers, ProducerCache
    from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
    from spark_kafka_sink.datasource.write.write_task import WriteTask
    from spark_kafka_sink.records.column_plan import ColumnPlan

    tolerant, bad_rows = CONTENDERS.get(name, (False, 0))
    topic = name.replace(" ", "-").replace("%", "percent")
    given = {"kafka.bootstrap.servers": bootstrap}
    if tolerant:
        given |= {
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"{topic}.dlq",
            "errors.log.enable": "false",
        }
    config = parse_sink_config(given)
    producers = CachedProducers(ProducerCache(), config.producer, None)
    plan = ColumnPlan(topic=topic, key_column=0, value_column=1, timestamp_column=2)
    identity = TaskIdentity(
        partition_id=0, attempt=0, task_attempt_id=0, host="h", query_id="", run_id="", batch_id=-1
    )
    batches = batches_of(bad_rows)
    new_task: Callable[..., WriteTask] = WriteTask  # the commit before has no dead_letters
    for _ in sys.stdin:
        more: dict[str, object] = {}
        if tolerant:
            from spark_kafka_sink.admin.admin_client import AdminClient
            from spark_kafka_sink.datasource.checks.topic_checks import TopicsNow
            from spark_kafka_sink.datasource.write.dead_letters import DeadLetters
            from spark_kafka_sink.records.bad_rows.topic_limits import TopicLimits
            from spark_kafka_sink.records.letters.letter_writer import LetterWriter
            from spark_kafka_sink.records.letters.row_limits import RowLimits

            options, limits = config.dead_letters, RowLimits(config.producer, TopicLimits())
            assert options is not None
            letters = LetterWriter(options, limits, "kprod", 0, -1)
            more["dead_letters"] = DeadLetters(
                letters,
                topic,
                limits,
                lambda _: {},
                TopicsNow(lambda: AdminClient(config.producer)),
            )
        task = new_task(plan, producers, identity, **more)
        some = itertools.islice(itertools.cycle(batches), rows // ARROW_ROWS)
        cpu, start = time.process_time(), time.perf_counter()
        message = task.run(some)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        assert message.produced.rows == rows
        bad = sum(one.rows for one in getattr(message, "letters", ()))
        assert bad == rows * bad_rows // 1000
        print(json.dumps({"cpu": cpu, "seconds": seconds}), flush=True)


def run(commit: str, rows: int, rounds: int) -> None:
    tempfile.tempdir = MEMORY if Path(MEMORY).is_dir() else None  # of brokers' logs
    with (
        tempfile.TemporaryDirectory() as directory,
        KafkaCluster(full_jvm=True, heap="1g", overrides=QUICKLY) as kafka,
    ):
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        trees = dict.fromkeys(CONTENDERS, ROOT)
        if commit:
            trees[BEFORE] = package_of(commit, Path(directory))
        children = {}
        for name, tree in trees.items():
            topic = name.replace(" ", "-").replace("%", "percent")
            keep = {"retention.bytes": str(2**24), "segment.bytes": str(2**24)}
            # A queue has one partition, as planning creates it.
            new = [
                NewTopic(topic, PARTITIONS, 1, config=keep),
                NewTopic(f"{topic}.dlq", 1, 1, config=keep),
            ]
            for future in admin.create_topics(new).values():
                future.result(30)
            children[name] = PacedChild(
                "bench.dead_letters", "--worker", name, "--bootstrap", kafka.bootstrap,
                "--rows", str(rows), tree=tree,
            )  # fmt: skip
        machine = Rounds(rounds, lambda text: print(text, file=sys.stderr))
        found = machine.interleaved([partial(child.round) for child in children.values()])
        for child in children.values():
            child.__exit__()
    print(f"{rows:,} rows, {rounds} rounds; {machine.conditions()}")
    cpu = {
        name: [float(str(one["cpu"])) for one in results]
        for name, results in zip(children, found, strict=True)
    }
    for name, results in zip(children, found, strict=True):
        seconds = median([float(str(one["seconds"])) for one in results])
        print(
            f"{name}: {rows / seconds:,.0f} rows/s, {rows / median(cpu[name]):,.0f} rows/s of CPU "
            f"time ({rows / min(cpu[name]):,.0f} at best), CPU "
            f"{ratio(cpu[name], cpu['tolerance none'])} of tolerance none"
            + (f", {ratio(cpu[name], cpu[BEFORE])} of {commit}" if commit else "")
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", default="", help="beside the package of this commit, too")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.bootstrap, args.worker, args.rows)
    else:
        run(args.commit, args.rows, args.rounds)


if __name__ == "__main__":
    main()
