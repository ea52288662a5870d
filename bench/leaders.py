"""Tasks beside many brokers, with and without ``maxLeadersPerTask``: ``python -m bench.leaders``.

Two parts, both without a socket. The machine's speed does not change the figures:

* each task of a job chooses partitions for its rows by the producer's partitioner: connections
  and shares of brokers, also with skew of leaders and of tasks;
* some of these tasks as whole producers before a simulated cluster (``tests/fakes``): connections,
  requests, rows a batch; time to the first acknowledged record in the simulated time of the
  network; memory, as tracemalloc counts it (the buffers of numpy, but not those of Arrow).

The table is printed and put at the head of bench/HISTORY.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gc
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.__main__ import commit
from bench.history import HISTORY, Line, with_section
from spark_kafka_sink.protocol.cluster import PartitionInfo, PartitionInfos, TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.records.partitioning.few_leaders import FewLeaders
from spark_kafka_sink.records.partitioning.partitioners import BuiltInPartitioner
from spark_kafka_sink.records.partitioning.topic_view import Candidates, TopicView
from spark_kafka_sink.records.record_columns import RecordColumns, from_record_batch
from tests.fakes.fake_cluster import FakeConnection
from tests.fakes.producer_world import ProducerWorld

Leaders = Sequence[int]

#: Batches of a task: 64 MB in batches of 512 KiB.
RUNS, ROWS_A_RUN = 128, 10
#: Whole producers of each setting, and their rows.
SAMPLE, ROWS = 8, 40_000
#: Milliseconds of a request's way, and of an answer's.
LATENCY_MS = 5
_TOPIC = "many"


@dataclass(frozen=True, slots=True)
class Job:
    """Tasks that write to a topic; ``sizes`` are relative, of each task in turn."""

    name: str
    tasks: int
    leaders: Leaders
    sizes: Sequence[int] = (1,)


def even(brokers: int, partitions: int) -> Leaders:
    return [number % brokers + 1 for number in range(partitions)]


def zipf(brokers: int, partitions: int) -> Leaders:
    """The first broker leads most partitions, the next one half of that, a third, and so on."""
    weights = [1 / (rank + 1) for rank in range(brokers)]
    return random.Random(7).choices(range(1, brokers + 1), weights, k=partitions)


_LARGE = "2000 tasks, 200 brokers, 10,000 partitions"

JOBS = (
    Job("200 tasks, 12 brokers, 120 partitions", 200, even(12, 120)),
    Job("2000 tasks, 30 brokers, 3000 partitions", 2000, even(30, 3000)),
    Job(_LARGE, 2000, even(200, 10_000)),
    Job(f"{_LARGE}, leaders by Zipf's law", 2000, zipf(200, 10_000)),
    Job(f"{_LARGE}, each tenth task has ten times the rows", 2000, even(200, 10_000),
        (10, 1, 1, 1, 1, 1, 1, 1, 1, 1)),
    Job("2000 tasks, 200 brokers, 50 partitions", 2000, even(200, 50)),
)  # fmt: skip


def infos_of(leaders: Leaders) -> PartitionInfos:
    numbered = enumerate(leaders)
    return PartitionInfos.of(
        _TOPIC, (PartitionInfo(TopicPartition(_TOPIC, n), leader, 1) for n, leader in numbered)
    )


def chosen(job: Job, infos: PartitionInfos, task: int, most: int | None) -> npt.NDArray[np.int32]:
    """The partition of each batch of ``task``, by the producer's partitioner."""
    few = None if most is None else FewLeaders(most, task)

    def candidates(topic: str, available: Sequence[int]) -> Candidates:
        del topic
        return (available, None) if few is None else few.candidates(infos, available, frozenset())

    built_in = BuiltInPartitioner(candidates=candidates, rng=random.Random(task))
    count = RUNS * ROWS_A_RUN * job.sizes[task % len(job.sizes)]
    columns = RecordColumns(count, _TOPIC, value=pa.array([b"v" * 90] * count))
    view = TopicView(len(infos), infos.available, ROWS_A_RUN * 100)
    return built_in.assign(columns, {_TOPIC: view}, lambda _: None)


def choices(job: Job, most: int | None) -> list[Line]:
    """Connections and shares of a whole job."""
    infos, leaders = infos_of(job.leaders), np.array(job.leaders)
    rows, connected = np.zeros(len(leaders)), Counter[int]()
    for task in range(job.tasks):
        mine = chosen(job, infos, task, most)
        rows += np.bincount(mine, minlength=len(leaders))
        connected.update(set(leaders[np.unique(mine)].tolist()))
    fair = rows.sum() / len(leaders)
    shares = [rows[leaders == node].mean() / fair for node in np.unique(leaders).tolist()]
    counts = sorted(connected.values())
    what = f"{job.name}, {said(most)}"
    spread = f"{np.percentile(shares, 5):.2f} to {np.percentile(shares, 95):.2f}"
    return [
        (what, f"{sum(counts):,} connections to leaders", "-", f"{counts[0]} to {counts[-1]} each"),
        (what, "share of a broker by its partitions", "-",
         f"{min(shares):.2f} to {max(shares):.2f}, nine of ten {spread}"),
    ]  # fmt: skip


def said(most: int | None) -> str:
    return "all leaders" if most is None else f"maxLeadersPerTask={most}"


def producers(brokers: int, partitions: int, tasks: int, most: int | None) -> list[Line]:
    """Some tasks as whole producers, each with the cluster of the driver's preflight."""
    world = ProducerWorld(nodes=brokers)
    world.cluster.create_topic(_TOPIC, partitions)
    opened: list[int] = []
    connect = world.cluster.connect

    def counted(node_id: int) -> FakeConnection | None:
        opened.append(node_id)
        return connect(node_id)

    vars(world.cluster)["connect"] = counted  # the producer's own count is of real sockets
    plan = ColumnPlan(topic=_TOPIC, value_column=0)
    found: list[tuple[int, int, int, int]] = []

    def body() -> None:
        first = world.of(world.config)
        first.start_attempt()
        chunk = pa.record_batch([pa.array([b"v" * 100] * 1000)], ["value"])
        first.send_columns(from_record_batch(chunk, ColumnPlan(topic="t", value_column=0), 0))
        first.send_columns(from_record_batch(chunk, plan, 0))
        first.finish_attempt()
        cluster = first._metadata.cluster  # noqa: SLF001 - Spark's tasks get the driver's
        for sample in range(SAMPLE):
            opened.clear()
            producer = world.of(
                replace(world.config, max_leaders_per_task=most, linger_ms=5, batch_size=16_384),
                cluster,
            )
            producer.start_attempt(sample * tasks // SAMPLE)
            for _ in range(ROWS // 1000):
                producer.send_columns(from_record_batch(chunk, plan, 1_700_000_000_000))
                world.scheduler.sleep(1)
            report = producer.finish_attempt()
            requests = sum(node.requests for node in report.nodes.values())
            found.append((len(opened), requests, report.batches, report.rows))

    world.run(body)
    connections, requests, batches, rows = (sum(one) / SAMPLE for one in zip(*found, strict=True))
    what = (
        f"a producer of {tasks} tasks, {brokers} brokers, {partitions:,} partitions, {said(most)}"
    )
    return [
        (what, f"{connections:.1f} connections", "-", f"n={SAMPLE}"),
        (what, f"{requests:.0f} requests of {batches / requests:.2f} batches", "-",
         f"{rows / batches:.0f} rows a batch"),
    ]  # fmt: skip


def memory_and_time(brokers: int, partitions: int, tasks: int, most: int | None) -> list[Line]:
    """One producer: the time from its attempt's begin to the first acknowledgement, and the memory
    that it needs beside the driver's cluster, and keeps when its attempt is over.
    """
    world = ProducerWorld(nodes=brokers, latency_ms=LATENCY_MS)
    world.cluster.create_topic(_TOPIC, partitions)
    plan = ColumnPlan(topic=_TOPIC, value_column=0)
    chunk = pa.record_batch([pa.array([b"v" * 100] * 1000)], ["value"])
    columns = from_record_batch(chunk, plan, 1_700_000_000_000)
    sizes: list[int] = []
    first_ms: list[int] = []

    def body() -> None:
        first = world.of(world.config)
        first.start_attempt()
        first.send_columns(columns)
        first.finish_attempt()
        cluster = first._metadata.cluster  # noqa: SLF001 - Spark's tasks get the driver's
        world.cluster.arrived.clear()
        tracemalloc.start()
        begun = world.scheduler.now
        producer = world.of(
            replace(world.config, max_leaders_per_task=most, linger_ms=5, batch_size=16_384),
            cluster,
        )
        producer.start_attempt(tasks // 2)
        for number in range(ROWS // 1000):
            producer.send_columns(columns)
            if number % 4 == 0:
                sizes.append(_allocated())
            world.scheduler.sleep(1)
        producer.finish_attempt()
        sizes.append(_allocated())
        tracemalloc.stop()
        arrived = min(at for at, api in world.cluster.arrived if api == ApiKey.PRODUCE.name)
        first_ms.append(arrived + LATENCY_MS - begun)

    world.run(body)
    what = f"a producer beside {brokers} brokers, {partitions:,} partitions, {said(most)}"
    (took,) = first_ms
    return [
        (what, f"{took} ms to the first acknowledgement", "-", f"each way takes {LATENCY_MS} ms"),
        (what, f"{max(sizes) / 1e6:.1f} MB at most", "-", f"{sizes[-1] / 1e6:.1f} MB kept"),
    ]  # fmt: skip


def _allocated() -> int:
    """Bytes that code of the package has allocated since the start, and not freed."""
    gc.collect()
    ours = tracemalloc.Filter(inclusive=True, filename_pattern="*/spark_kafka_sink/*")
    found = tracemalloc.take_snapshot().filter_traces([ours])
    return sum(trace.size for trace in found.traces)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="choices, producers, memory; all by default")
    wanted = parser.parse_args().parts or ["choices", "producers", "memory"]
    parts: dict[str, list[Callable[[int | None], list[Line]]]] = {
        "choices": [partial(choices, job) for job in JOBS],
        "producers": [partial(producers, 200, 10_000, 2000)],
        "memory": [partial(memory_and_time, 200, 10_000, 2000)],
    }
    lines: list[Line] = []
    for measure in [one for part in wanted for one in parts[part]]:
        for most in (None, 1, 2):
            lines += measure(most)
            print(*lines[-2:], sep="\n", flush=True)
    title = f"{dt.datetime.now(tz=dt.UTC).date().isoformat()}, commit {commit()} (leaders)"
    conditions = "Calculated, and simulated: no broker and no clock; see bench/leaders.py."
    page = with_section(HISTORY.read_text(encoding="utf-8"), title, conditions, lines)
    HISTORY.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
