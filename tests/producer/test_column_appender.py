"""How many rows the ColumnAppender encodes at once, and how many it wants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.record_columns import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    ChunkSize,
    RecordColumns,
)
from tests.fakes.accumulator_world import cluster_of
from tests.producer.answered_producers import Producers

PARTITIONS = 1200
SIZES: list[ChunkSize] = []


class WatchedColumns(RecordColumns):
    """Columns that remember the sizes of chunks that they were asked for."""

    def chunks(self, size: ChunkSize) -> Iterator[RecordColumns]:
        SIZES.append(size)
        return super().chunks(size)


@pytest.fixture(autouse=True)
def _no_sizes_of_other_tests() -> None:
    SIZES.clear()


def send(producer: KafkaProducer, rows: int, size: int, partitions: int) -> None:
    """``rows`` values of ``size`` bytes for each of ``partitions`` in turn."""
    partition = np.arange(rows, dtype=np.int32) % partitions
    values = pa.array([bytes(size)] * rows, pa.binary())
    producer.send_columns(WatchedColumns(rows, "test", partition=partition, value=values))


def test_the_first_rows_are_sent_as_they_come(producers: Producers):
    """Connections open meanwhile, and where the rows go to is known only behind them."""
    producer, _ = producers()
    assert producer.chunk_size == ChunkSize(CHUNK_ROWS, CHUNK_BYTES, 1)


def test_the_wanted_rows_are_worth_a_chunk_and_its_slices(producers: Producers):
    producer, _ = producers(cluster_of([1] * PARTITIONS), linger_ms=5)
    send(producer, 100, 10, 2)
    few = producer.chunk_size
    assert CHUNK_ROWS // 2 < few.wanted_rows < CHUNK_ROWS == few.max_rows
    send(producer, 2400, 10, PARTITIONS)
    many = producer.chunk_size
    assert many.wanted_rows == 32 * PARTITIONS > CHUNK_ROWS
    assert many.max_rows == 2 * CHUNK_ROWS


def test_rows_that_fill_more_than_a_chunk_want_no_others(producers: Producers):
    """They have as many rows for each partition as memory allows."""
    producer, _ = producers(cluster_of([1] * PARTITIONS), buffer_memory=6_000_000, linger_ms=5)
    send(producer, 2000, 1000, PARTITIONS)
    assert producer.chunk_size.wanted_rows == 1


def test_chunks_are_larger_where_partitions_get_few_rows(producers: Producers):
    """Compared with the rows that a chunk had, every second one would be of the usual size."""
    producer, _ = producers(cluster_of([1] * PARTITIONS))
    for _ in range(3):
        send(producer, 12_000, 1000, PARTITIONS // 4)
    for _ in range(2):
        send(producer, 100, 1000, 2)
    usual, large = (CHUNK_ROWS, CHUNK_BYTES), (2 * CHUNK_ROWS, 2 * CHUNK_BYTES)
    found = [(size.max_rows, size.max_bytes) for size in SIZES]
    assert found == [usual, large, large, large, usual]


def test_no_chunk_takes_more_than_a_quarter_of_the_memory(producers: Producers):
    producer, _ = producers(cluster_of([1] * PARTITIONS), buffer_memory=6_000_000, linger_ms=5)
    for _ in range(2):
        send(producer, 3000, 1000, PARTITIONS)
    assert [size.max_bytes for size in SIZES] == [1_500_000, 1_500_000]
