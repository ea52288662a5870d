"""The load of the fault tests, and the checker that reads it back.

Every record's key is its row number, so that a reader can tell lost, doubled and out of order.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from spark_kafka_sink.records.record_columns import ColumnPlan, from_record_batch
from tests.real_kafka import watermarks

ROWS_PER_BATCH = 500


def config(bootstrap: str, **options: str) -> ProducerConfig:
    """A producer config with short timers; ``options`` in Java's names with ``_`` for dots."""
    merged = {
        "bootstrap.servers": bootstrap,
        "request.timeout.ms": "5000",
        "delivery.timeout.ms": "60000",
        "max.block.ms": "30000",
    }
    merged.update({name.replace("_", "."): value for name, value in options.items()})
    return ProducerConfig.parse(merged)


def arrow_batch(first: int, rows: int, value_size: int) -> pa.RecordBatch:
    keys = [b"%d" % i for i in range(first, first + rows)]
    values = [key.rjust(value_size, b".") for key in keys]
    return pa.record_batch(
        {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    )


def write(
    producer: KafkaProducer,
    topic: str,
    rows: int,
    *,
    value_size: int = 200,
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
        batch = arrow_batch(sent, count, value_size)
        producer.send_columns(from_record_batch(batch, plan, clock.wall_ms()))
        sent += count
    report = producer.finish_attempt()
    assert report.rows == sent
    return report


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an independent reader found. ``clean`` is the only good one."""

    lost: list[int]
    doubled: list[int]
    out_of_order: list[int]
    corrupt: list[int]

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.out_of_order or self.corrupt)

    def __str__(self) -> str:
        return ", ".join(
            f"{name}: {len(rows)} {rows[:5]}"
            for name, rows in (
                ("lost", self.lost),
                ("doubled", self.doubled),
                ("out of order", self.out_of_order),
                ("corrupt", self.corrupt),
            )
        )


def verdict(bootstrap: str, topic: str, rows: int, *, value_size: int = 200) -> Verdict:
    """Read the whole topic with confluent-kafka and judge it against rows 0..rows."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "verdict", "enable.auto.commit": False}
    )
    partitions = consumer.list_topics(topic, 20).topics[topic].partitions
    ends: dict[int, int] = {}
    assignment = []
    for number in partitions:
        low, high = watermarks(consumer, TopicPartition(topic, number))
        if high > low:
            ends[number] = high
            assignment.append(TopicPartition(topic, number, low))
    consumer.assign(assignment)
    seen: Counter[int] = Counter()
    last: dict[int, int] = {}
    out_of_order, corrupt = [], []
    idle = 0
    while ends:
        messages = consumer.consume(5000, timeout=1.0)
        idle = 0 if messages else idle + 1
        assert idle < 30, f"the reader gets no more from {ends}"
        for message in messages:
            assert message.error() is None, message.error()
            number, row = message.partition(), int(message.key())
            seen[row] += 1
            if row <= last.get(number, -1):
                out_of_order.append(row)
            last[number] = row
            if message.value() != message.key().rjust(value_size, b"."):
                corrupt.append(row)
            if message.offset() + 1 >= ends.get(number, 0):
                ends.pop(number, None)
    consumer.close()
    return Verdict(
        lost=[row for row in range(rows) if row not in seen],
        doubled=[row for row, count in seen.items() if count > 1],
        out_of_order=out_of_order,
        corrupt=corrupt,
    )
