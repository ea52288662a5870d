"""The load of the fault tests, and the checker that reads it back.

Every record's key is its row number, so that a reader can tell lost, doubled and out of order.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable

import pyarrow as pa

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from spark_kafka_sink.records.record_columns import ColumnPlan, from_record_batch
from tests.real_kafka import consume_topic
from tests.waiting import with_patience

ROWS_PER_BATCH = 500
VALUE_SIZE = 200


def config(bootstrap: str, **options: str) -> ProducerConfig:
    """A producer config with short timers; ``options`` in Java's names with ``_`` for dots."""
    limits = {"request.timeout.ms": 5_000, "delivery.timeout.ms": 60_000, "max.block.ms": 30_000}
    merged = {"bootstrap.servers": bootstrap}
    merged |= with_patience(limits)
    merged.update({name.replace("_", "."): value for name, value in options.items()})
    return parse_producer_config(merged)


def arrow_batch(first: int, rows: int) -> pa.RecordBatch:
    keys = [b"%d" % i for i in range(first, first + rows)]
    values = [key.rjust(VALUE_SIZE, b".") for key in keys]
    return pa.record_batch(
        {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    )


def write(
    producer: KafkaProducer,
    topic: str,
    rows: int,
    *,
    at: Callable[[int], None] = lambda _sent: None,
    until: threading.Event | None = None,
) -> ProduceReport:
    """Write rows 0..rows in Arrow batches, as a task does; ``at(sent)`` runs before each batch.

    With ``until``, goes on slowly after ``rows`` until it is set, so that the load outlives a
    fault on a fast machine; the report says how many rows it became.
    """
    plan = ColumnPlan(topic=topic, key_column=0, value_column=1)
    clock = SystemClock()
    producer.start_attempt()
    sent = 0
    while sent < rows or (until is not None and not until.wait(0.02)):
        at(sent)
        count = ROWS_PER_BATCH if sent >= rows else min(ROWS_PER_BATCH, rows - sent)
        batch = arrow_batch(sent, count)
        producer.send_columns(from_record_batch(batch, plan, clock.wall_ms()))
        sent += count
    report = producer.finish_attempt()
    assert report.rows == sent
    return report


def check(bootstrap: str, topic: str, rows: int) -> None:
    """An independent reader finds each of rows 0..rows whole, once and in its partition's order."""
    found = consume_topic(bootstrap, topic)
    seen: dict[int, list[int]] = defaultdict(list)
    for partition, key, value in zip(found.partitions, found.keys, found.values, strict=True):
        assert key is not None
        assert value == key.rjust(VALUE_SIZE, b"."), key
        seen[partition].append(int(key))
    counts = Counter(row for of_partition in seen.values() for row in of_partition)
    lost = [row for row in range(rows) if row not in counts]
    doubled = [row for row, count in counts.items() if count > 1]
    assert not lost, f"lost: {len(lost)} {lost[:5]}"
    assert not doubled, f"doubled: {len(doubled)} {doubled[:5]}"
    for of_partition in seen.values():
        assert of_partition == sorted(of_partition)
