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
from pathlib import Path

import pyarrow as pa

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.local_kafka import KafkaCluster
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from spark_kafka_sink.records.record_columns import ColumnPlan, from_record_batch
from tests.java_programs import java
from tests.real_kafka import Consumed

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
    """Java's option names; a test that hangs should not hang for two minutes."""
    merged: dict[str, str] = {
        "bootstrap.servers": bootstrap,
        "request.timeout.ms": "10000",
        "delivery.timeout.ms": "40000",
        "max.block.ms": "20000",
    }
    merged |= {name: str(value) for name, value in (options or {}).items()}
    return ProducerConfig.parse(merged)


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
    """One batch as DumpLogSegments prints it; each record is (offset, time, key, value size)."""

    base_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    size: int
    codec: str
    valid: bool
    records: list[tuple[int, int, int, int]] = field(default_factory=list)


_BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: \d+ count: (\d+) baseSequence: (-?\d+) lastSequence: (-?\d+) "
    r"producerId: (-?\d+) .* size: (\d+) magic: 2 compresscodec: (\w+) .* isvalid: (true|false)"
)
_RECORD = re.compile(
    r"^\| offset: (\d+) CreateTime: (\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: (-?\d+)"
)


def dump_log(cluster: KafkaCluster, topics: Sequence[str]) -> dict[str, list[LoggedBatch]]:
    """Partition 0 of every topic, read by ``kafka-dump-log --deep-iteration`` in one JVM."""
    (node,) = cluster.nodes
    files = {topic: _segments(node.directory / "data" / f"{topic}-0") for topic in topics}
    listed = ",".join(str(path) for paths in files.values() for path in paths)
    told = java("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", listed)
    found: dict[str, list[LoggedBatch]] = {topic: [] for topic in topics}
    current = ""
    for line in told.splitlines():
        if line.startswith("Dumping "):
            current = Path(line.removeprefix("Dumping ")).parent.name.removesuffix("-0")
        elif match := _BATCH.match(line):
            offset, count, first, last, producer, size, codec, valid = match.groups()
            found[current].append(
                LoggedBatch(
                    int(offset),
                    int(count),
                    int(first),
                    int(last),
                    int(producer),
                    int(size),
                    codec.lower(),
                    valid == "true",
                )
            )
        elif match := _RECORD.match(line):
            offset, time_, key, value, _ = (int(part) for part in match.groups())
            found[current][-1].records.append((offset, time_, key, value))
    return found


def _segments(directory: Path) -> list[Path]:
    paths = sorted(directory.glob("*.log"))
    assert paths, directory
    return paths


def check_sequences(batches: Sequence[LoggedBatch]) -> None:
    """Every batch valid, offsets and sequences without a gap, one producer."""
    offset = sequence = 0
    for batch in batches:
        assert batch.valid
        assert (batch.base_offset, batch.base_sequence) == (offset, sequence)
        assert batch.last_sequence - batch.base_sequence + 1 == batch.count
        assert [record[0] for record in batch.records] == list(range(offset, offset + batch.count))
        offset += batch.count
        sequence = batch.last_sequence + 1
    assert len({batch.producer_id for batch in batches}) == 1
