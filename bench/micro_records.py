"""Rates of the records room, stage by stage, on one core: ``python bench/micro_records.py``.

Rows a second by thread CPU time (best of several runs), so that other work on the machine counts
little. Batches are as Spark sends them: 10 000 rows, or as many as make 4 MiB. The last line is the
memory that one 4 MiB chunk takes on its way: numpy's peak and Arrow's buffers, besides up to 4 MiB
of views that a thread keeps.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from crc32c import crc32c
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.encoded_slice import EncodedSlices, OpenPosition
from spark_kafka_sink.records.partitioning.murmur2 import murmur2
from spark_kafka_sink.records.partitioning.partitioners import BuiltInPartitioner
from spark_kafka_sink.records.partitioning.topic_view import TopicView
from spark_kafka_sink.records.record_columns import (
    ChunkSize,
    ColumnPlan,
    RecordColumns,
    from_record_batch,
)
from spark_kafka_sink.records.record_encoder import Groups, encode_groups, group_rows

NOW = 1_700_000_000_000
BATCH_SIZE = 524_288 - 61
PLAN = ColumnPlan("t", value_column=0, key_column=1)
TIMED = ColumnPlan("t", value_column=0, key_column=1, timestamp_column=2)
NOTHING_OPEN = OpenPosition(0, 0, 0, 0)


@dataclass(frozen=True)
class Case:
    name: str
    value: tuple[int, int]
    key: tuple[int, int] | None = (8, 20)
    partitions: int = 12
    timestamps: bool = False
    max_rows: int = 32_768


CASES = (
    Case("10 B values, 8-20 B keys", (10, 10)),
    Case("100 B values, 8-20 B keys", (100, 100)),
    Case("100 B, a Spark batch of 10 000", (100, 100), max_rows=10_000),
    Case("50-150 B values, timestamps", (50, 150), timestamps=True),
    Case("100 B values, null keys", (100, 100), key=None),
    Case("1 KB values, 8-20 B keys", (1000, 1000)),
    Case("100 B values, 1000 partitions", (100, 100), partitions=1000),
)


def ragged(rng: np.random.Generator, rows: int, sizes: tuple[int, int]) -> pa.Array:
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(rng.integers(sizes[0], sizes[1] + 1, rows), out=offsets[1:])
    # Text-like bytes: a dozen symbols, so that codecs have something to do.
    data = rng.integers(97, 109, offsets[-1], dtype=np.uint8)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def batch_of(case: Case) -> pa.RecordBatch:
    rng = np.random.default_rng(1)
    mean = sum(case.value) // 2 + (0 if case.key is None else sum(case.key) // 2)
    rows = min(case.max_rows, 4 * 2**20 // mean)
    key = pa.nulls(rows, pa.binary()) if case.key is None else ragged(rng, rows, case.key)
    times = pa.array(NOW * 1000 + rng.integers(0, 10**9, rows), pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_pydict(
        {"value": ragged(rng, rows, case.value), "key": key, "timestamp": times}
    )


def best(work: Callable[[], object], runs: int = 25) -> float:
    """Seconds of CPU of the fastest run."""
    work()
    fastest = float("inf")
    for _ in range(runs):
        start = time.thread_time()
        work()
        fastest = min(fastest, time.thread_time() - start)
    return fastest


def no_batches(_: object) -> None:
    return None


def whole_way(batch: pa.RecordBatch, case: Case) -> list[bytes]:
    """All that the writer's thread does with an Arrow batch but compression and locks."""
    columns = from_record_batch(batch, TIMED if case.timestamps else PLAN, NOW)
    view = {"t": TopicView(case.partitions, tuple(range(case.partitions)), BATCH_SIZE)}
    copies = []
    for chunk in columns.chunks(ChunkSize()):
        partitions = BuiltInPartitioner().assign(chunk, view, no_batches)
        copies += [bytes(s.data) for s in encode(chunk, partitions)]
    return copies


def encode(columns: RecordColumns, partitions: np.ndarray) -> EncodedSlices:
    groups = group_rows(columns, partitions)
    positions = [NOTHING_OPEN] * len(groups.tps)
    return encode_groups(columns, groups, positions, BATCH_SIZE, NOW, max_request_size=2**20)


def millions(rows: int, seconds: float) -> str:
    return f"{rows / seconds / 1e6:.1f}"


def stages(console: Console) -> None:
    table = Table(title="Records: millions of rows a second on one core")
    table.add_column("rows as")
    for name in ("columns", "murmur2", "assign", "group", "encode", "copy", "all", "GB/s"):
        table.add_column(name, justify="right")
    for case in CASES:
        batch = batch_of(case)
        n = batch.num_rows
        plan = TIMED if case.timestamps else PLAN
        columns = from_record_batch(batch, plan, NOW)
        view = {"t": TopicView(case.partitions, tuple(range(case.partitions)), BATCH_SIZE)}
        partitions = BuiltInPartitioner().assign(columns, view, no_batches)
        groups = group_rows(columns, partitions)
        positions = [NOTHING_OPEN] * len(groups.tps)

        def encode_only(
            columns: RecordColumns = columns,
            groups: Groups = groups,
            positions: list[OpenPosition] = positions,
        ) -> EncodedSlices:
            return encode_groups(
                columns, groups, positions, BATCH_SIZE, NOW, max_request_size=2**20
            )

        slices = encode_only()
        seconds = best(lambda batch=batch, case=case: whole_way(batch, case))
        size = sum(len(s.data) for s in slices)
        key = columns.key
        table.add_row(
            case.name,
            millions(n, best(lambda batch=batch, plan=plan: from_record_batch(batch, plan, NOW))),
            "-" if key is None else millions(n, best(lambda key=key: murmur2(key))),
            millions(
                n,
                best(
                    lambda columns=columns, view=view: BuiltInPartitioner().assign(
                        columns, view, no_batches
                    )
                ),
            ),
            millions(n, best(lambda c=columns, p=partitions: group_rows(c, p))),
            millions(n, best(encode_only)),
            millions(n, best(lambda slices=slices: [bytes(s.data) for s in slices])),
            millions(n, seconds),
            f"{size / seconds / 1e9:.2f}",
        )
    console.print(table)


def codecs(console: Console) -> None:
    columns = from_record_batch(batch_of(CASES[1]), PLAN, NOW)
    section = bytes(encode(columns, np.zeros(columns.rows, np.int32))[0].data)
    table = Table(title=f"A records section of {len(section)} bytes, one core")
    for name in ("codec", "MB/s", "ratio"):
        table.add_column(name, justify="right")
    table.add_row("crc32c", f"{len(section) / best(lambda: crc32c(section)) / 1e6:.0f}", "-")
    for codec in (Codec.parse(n) for n in ("gzip", "snappy", "lz4", "zstd")):
        seconds = best(lambda codec=codec: codec.compress([section]), 5)
        ratio = len(codec.compress([section])) / len(section)
        table.add_row(codec.name, f"{len(section) / seconds / 1e6:.0f}", f"{ratio:.2f}")
    console.print(table)


def memory(console: Console) -> None:
    for case in CASES[:2] + CASES[5:6]:
        columns = from_record_batch(batch_of(case), PLAN, NOW)
        (chunk, *_) = columns.chunks(ChunkSize())
        partitions = np.arange(chunk.rows, dtype=np.int32) % 12
        encode(chunk, partitions)
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        slices = encode(chunk, partitions)
        numpy_peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        arrow = pa.total_allocated_bytes() - before
        console.print(
            f"{case.name}: {int(chunk.input_bytes().sum()) / 2**20:.1f} MiB of input, "
            f"{sum(len(s.data) for s in slices) / 2**20:.1f} MiB encoded; numpy's peak "
            f"{numpy_peak / 2**20:.1f} MiB, Arrow's buffers {arrow / 2**20:.1f} MiB"
        )
        del slices


if __name__ == "__main__":
    out = Console(width=120)
    stages(out)
    codecs(out)
    memory(out)
