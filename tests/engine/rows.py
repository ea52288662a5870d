"""Rows for the engine's tests, and readers of what came of them that share no code with it.

``Row`` is what a test means; ``arrow`` is how Spark would send it; ``stored`` is what
confluent-kafka finds, and ``dump_log`` what Kafka's own DumpLogSegments prints of the files on the
broker's disk.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.local_kafka import KafkaCluster
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from spark_kafka_sink.records.record_columns import ColumnPlan, from_record_batch
from tests.java_programs import run_java
from tests.real_kafka import Consumed
from tests.waiting import with_patience

Headers = list[tuple[str, bytes | None]]

SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("headers", pa.map_(pa.string(), pa.binary())),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("partition", pa.int32()),
    ]
)


@dataclass(frozen=True, slots=True)
class Row:
    """One record; ``time`` is milliseconds, None the time of sending."""

    value: bytes | None = None
    key: bytes | None = None
    headers: Headers | None = None
    time: int | None = None
    partition: int | None = 0


def arrow(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([r.value for r in rows], pa.binary()),
            pa.array([r.key for r in rows], pa.binary()),
            pa.array([r.headers for r in rows], pa.map_(pa.string(), pa.binary())),
            pa.array([r.time for r in rows], pa.timestamp("ms", "UTC")),
            pa.array([r.partition for r in rows], pa.int32()),
        ],
        schema=SCHEMA,
    )


def plan(topic: str) -> ColumnPlan:
    return ColumnPlan(
        topic,
        value_column=0,
        key_column=1,
        headers_column=2,
        timestamp_column=3,
        partition_column=4,
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def config(bootstrap: str, options: Mapping[str, object] | None = None) -> ProducerConfig:
    """Java's option names; a test that hangs should not hang for two minutes on a quick machine."""
    limits = {"request.timeout.ms": 10_000, "delivery.timeout.ms": 40_000, "max.block.ms": 20_000}
    merged = {"bootstrap.servers": bootstrap}
    merged |= with_patience(limits)
    merged |= {name: str(value) for name, value in (options or {}).items()}
    return parse_producer_config(merged)


def send(producer: KafkaProducer, columns: ColumnPlan, batches: Iterable[pa.RecordBatch]) -> None:
    for batch in batches:
        producer.send_columns(from_record_batch(batch, columns, now_ms()))


def attempt(
    producer: KafkaProducer, columns: ColumnPlan, batches: Iterable[pa.RecordBatch]
) -> ProduceReport:
    """One task's attempt, which must end with every row acknowledged."""
    producer.start_attempt()
    send(producer, columns, batches)
    return producer.finish_attempt()


def write(
    bootstrap: str,
    columns: ColumnPlan,
    batches: Iterable[pa.RecordBatch],
    options: Mapping[str, object] | None = None,
) -> ProduceReport:
    """One attempt with a producer of its own."""
    producer = KafkaProducer(config(bootstrap, options))
    try:
        return attempt(producer, columns, batches)
    finally:
        producer.close(10_000)


def in_pieces(rows: Sequence[Row], size: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(rows), size):
        yield arrow(rows[first : first + size])


def values_batch(values: Sequence[bytes] | pa.Array) -> pa.RecordBatch:
    """A batch with values only, for ``ColumnPlan(topic, value_column=0)``."""
    array = values if isinstance(values, pa.Array) else pa.array(values, pa.binary())
    return pa.RecordBatch.from_arrays([array], names=["value"])


def to_partitions(values: list[bytes], partitions: list[int]) -> pa.RecordBatch:
    """For ``ColumnPlan(topic, value_column=0, partition_column=1)``."""
    columns = [pa.array(values, pa.binary()), pa.array(partitions, pa.int32())]
    return pa.RecordBatch.from_arrays(columns, names=["value", "partition"])


def pieces(batch: pa.RecordBatch, size: int) -> list[pa.RecordBatch]:
    return [batch.slice(first, size) for first in range(0, batch.num_rows, size)]


def stored(consumed: Consumed, partition: int = 0) -> list[Row]:
    """What the reader found in one partition, as rows."""
    return [
        Row(value, key, headers, time_, found)
        for value, key, headers, time_, found in zip(
            consumed.values,
            consumed.keys,
            consumed.headers,
            consumed.timestamps,
            consumed.partitions,
            strict=True,
        )
        if found == partition
    ]


# ---- Kafka's own reader of log files -------------------------------------------------------------


@dataclass(slots=True)
class LoggedBatch:
    """One batch as DumpLogSegments prints it, and the lines of its records."""

    base_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    size: int
    codec: str
    valid: bool
    records: list[str] = field(default_factory=list)


_BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: \d+ count: (\d+) baseSequence: (-?\d+) lastSequence: (-?\d+) "
    r"producerId: (-?\d+) .* size: (\d+) magic: 2 compresscodec: (\w+) .* isvalid: (true|false)$"
)


def dump_log(cluster: KafkaCluster, topic: str) -> dict[int, list[LoggedBatch]]:
    """The batches of each partition; keys and values of records are in hexadecimal digits."""
    (node,) = cluster.nodes
    files = sorted((node.directory / "data").glob(f"{topic}-*/*.log"))
    printed = run_java("HexDump", [str(path) for path in files])
    found: dict[int, list[LoggedBatch]] = {}
    current: list[LoggedBatch] = []
    # Not splitlines(): a header's name may hold what only Python takes for the end of a line.
    for line in printed.split("\n"):
        if line.startswith("Dumping "):
            partition = int(line.rsplit("/", 2)[1].rsplit("-", 1)[1])
            current = found.setdefault(partition, [])
        elif match := _BATCH.match(line):
            *numbers, codec, valid = match.groups()
            current.append(LoggedBatch(*map(int, numbers), codec.lower(), valid == "true"))
        elif line.startswith("| offset: "):
            current[-1].records.append(line)
    return found


def check_batches(batches: Sequence[LoggedBatch]) -> None:
    """Every batch valid and whole, offsets without a gap."""
    offset = 0
    for batch in batches:
        assert batch.valid
        assert batch.base_offset == offset
        offset += batch.count
        offsets = [int(line.split(" ", 3)[2]) for line in batch.records]
        assert offsets == list(range(batch.base_offset, offset))


def check_sequences(batches: Sequence[LoggedBatch]) -> None:
    """And sequences without a gap, one producer."""
    check_batches(batches)
    sequence = 0
    for batch in batches:
        assert batch.base_sequence == sequence
        assert batch.last_sequence - batch.base_sequence + 1 == batch.count
        sequence = batch.last_sequence + 1
    assert len({batch.producer_id for batch in batches}) == 1
