"""Where a row's CPU goes, by stage: ``python -m bench.stages``.

Each stage is the functions that begin it, wrapped for this; what these call belongs to the stage,
but for what is another's. CPU is the thread's own. The producer, its sockets and its two threads
are real; the broker is a process of its own that reads no record (``scale.py``). A stage that runs
once for each batch costs half a microsecond of measuring more; most run for each chunk or request.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import ParamSpec, TypeVar

from bench import scale
from bench.engine_ours import ARROW_ROWS, arrow_batches
from bench.engines import ROOT, child
from bench.statistics import median
from spark_kafka_sink.network.channel.kafka_channel import KafkaChannel
from spark_kafka_sink.network.channel.selector import Selector
from spark_kafka_sink.network.client.network_client import NetworkClient
from spark_kafka_sink.producer import column_appender, kafka_producer
from spark_kafka_sink.producer.accumulator.batch_drainer import BatchDrainer
from spark_kafka_sink.producer.accumulator.batch_filler import BatchFiller
from spark_kafka_sink.producer.column_appender import ColumnAppender
from spark_kafka_sink.producer.sender.sender import Sender
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager
from spark_kafka_sink.records import record_encoder
from spark_kafka_sink.records.batch_joiner import BatchJoiner
from spark_kafka_sink.records.gather import ViewGather
from spark_kafka_sink.records.partitioning.partitioners import BuiltInPartitioner

P = ParamSpec("P")
R = TypeVar("R")

#: Name, partitions, bytes of a value, rows.
CASES = (
    ("100 B x 12", 12, 100, 3_000_000),
    ("1 KB x 12", 12, 1024, 400_000),
    ("100 B x 1000", 1000, 100, 2_000_000),
)

#: What begins each stage, in a row's order: a class or module, and its function's name. The last
#: rows of a thread are what is left of it.
STAGES: dict[str, tuple[tuple[type | ModuleType, str], ...]] = {
    "small Arrow batches are joined": ((BatchJoiner, "next"),),
    "columns of an Arrow batch": ((kafka_producer.KafkaProducer, "send_batch"),),
    "partitions of keys (murmur2)": ((BuiltInPartitioner, "assign"),),
    "rows in groups (radix sort)": ((column_appender, "group_rows"),),
    "sizes and cuts": ((column_appender, "encode_groups"), (record_encoder, "cut")),
    "heads and views": ((record_encoder, "_encode"),),
    "gather: the copy of keys and values": ((ViewGather, "join"),),
    "positions of open batches": ((BatchFiller, "positions"),),
    "copies of slices": ((BatchFiller, "_chunks"),),
    "slices into batches": ((BatchFiller, "append"),),
    "writer's rest": ((ColumnAppender, "append"),),
    "ready and drain": ((BatchDrainer, "ready"), (BatchDrainer, "drain")),
    "sequences, headers, CRC-32C": ((TransactionManager, "batches_sent"),),
    "Produce requests": ((Sender, "_send_produce_request"),),
    "sendmsg": ((KafkaChannel, "write"),),
    "recv": ((KafkaChannel, "read"),),
    "responses": ((NetworkClient, "_handle_completed_receives"),),
    "completion": ((Sender, "_handle_produce_response"),),
    "selector": ((Selector, "poll"),),
    "sender's rest": ((Sender, "run"),),
}


class Stopwatch:
    """CPU by stage, exclusive of stages within it."""

    def __init__(self) -> None:
        self.cpu_ns: Counter[str] = Counter()
        self._within: dict[int, list[int]] = defaultdict(lambda: [0])

    def wrap(self, stage: str, owner: type | ModuleType, name: str) -> None:
        setattr(owner, name, self._timed(stage, getattr(owner, name)))

    def _timed(self, stage: str, function: Callable[P, R]) -> Callable[P, R]:
        now, cpu_ns, within = time.thread_time_ns, self.cpu_ns, self._within

        def timed(*given: P.args, **named: P.kwargs) -> R:
            inner = within[threading.get_ident()]
            inner.append(0)
            start = now()
            try:
                return function(*given, **named)
            finally:
                took = now() - start
                cpu_ns[stage] += took - inner.pop()
                inner[-1] += took

        return timed


def write(bootstrap: str, value_size: int, rows: int) -> None:
    """The producer; the CPU of its stages, in us a row, is one line of JSON."""
    watch = Stopwatch()
    for stage, functions in STAGES.items():
        for owner, name in functions:
            watch.wrap(stage, owner, name)
    batches = arrow_batches(value_size, 4, 7)
    with kafka_producer.KafkaProducer({"bootstrap.servers": bootstrap}) as producer:
        for _ in range(2):  # the first warms up
            watch.cpu_ns.clear()
            before = time.process_time()
            producer.start_attempt()
            some = itertools.islice(itertools.cycle(batches), rows // ARROW_ROWS)
            producer.send_batches(some, scale.TOPIC)
            report = producer.finish_attempt()
            used = time.process_time() - before
        figures = {stage: watch.cpu_ns[stage] / 1000 / rows for stage in STAGES}
        # Its loop has not ended, so it has not been counted.
        figures["sender's rest"] = max(0.0, 1e6 * used / rows - sum(figures.values()))
    print(json.dumps({"rows_a_batch": rows / report.batches, **figures}))


def measure(partitions: int, value_size: int, rows: int) -> dict[str, float]:
    """A run in processes of its own."""
    command = (sys.executable, "-m", "bench.scale", "serve", "1", str(partitions))
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        bootstrap = server.stdout.readline().strip()
        found = child("bench.stages", "write", bootstrap, str(value_size), str(rows))
        server.stdin.close()  # which ends it
        server.stdout.read()
    return {name: float(str(value)) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["table", "write"], nargs="?", default="table")
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.part == "write":
        bootstrap, value_size, rows = args.arguments
        write(bootstrap, int(value_size), int(rows))
        return
    found = [[measure(*case) for _ in range(args.rounds)] for _, *case in CASES]
    print(
        f"| us of CPU a row, medians of {args.rounds} | {' | '.join(name for name, *_ in CASES)} |"
    )
    print("|---" * (1 + len(CASES)) + "|")
    totals = [median([sum(run[stage] for stage in STAGES) for run in runs]) for runs in found]
    for stage in STAGES:
        _print_row(stage, [median([run[stage] for run in runs]) for runs in found])
    _print_row("all", totals)
    batches = [median([run["rows_a_batch"] for run in runs]) for runs in found]
    _print_row("rows a batch", batches, ".0f")
    _print_row("us a batch", [us * rows for us, rows in zip(totals, batches, strict=True)], ".0f")


def _print_row(name: str, values: Iterable[float], form: str = ".3f") -> None:
    print(f"| {name} | {' | '.join(format(value, form) for value in values)} |")


if __name__ == "__main__":
    main()
