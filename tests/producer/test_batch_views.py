"""Large slices stay views of their chunk's buffer, and the pool counts what they hold (rule R5)."""

from __future__ import annotations

import gc
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records.encoded_slice import EncodedSlice
from spark_kafka_sink.records.record_batch import parse_header
from spark_kafka_sink.records.record_columns import RecordColumns
from spark_kafka_sink.records.record_encoder import encode_groups, group_rows
from tests.fakes.accumulator_world import HEADER, TP0, TP1, TP2, World

KIB = 1024
#: A batch of four parts, each of which is worth a view.
OPTIONS = {"batch_size": 400 * KIB, "buffer_memory": 64 * KIB * KIB}
PART = 100 * KIB


def chunk_of(
    world: World, *sizes: tuple[TopicPartition, int], last: bool = True
) -> list[EncodedSlice]:
    """Slices of one buffer, each a batch of its own if it is the ``last`` of it."""
    buffer = pa.py_buffer(np.random.default_rng(1).bytes(sum(size for _, size in sizes)))
    view, start, slices = memoryview(buffer).cast("B"), 0, []
    for tp, size in sizes:
        slices.append(world.slice(tp, 0, data=view[start : start + size], last=last))
        start += size
    return slices


def append(world: World, slices: Iterable[EncodedSlice]) -> int:
    """As the ColumnAppender: memory first, what is not used goes back. Returns what is used."""
    slices = [*slices]
    size = sum(len(encoded.data) + HEADER for encoded in slices)
    world.pool.allocate(size, world.now)
    result = world.append_slices(*slices)
    world.pool.adjust(size, result.taken)
    return result.taken


def views(batch: ProducerBatch) -> list[memoryview]:
    return [chunk for chunk in batch.chunks if isinstance(chunk, memoryview)]


def test_a_large_slice_is_sent_as_a_view_of_its_chunk():
    world = World(**OPTIONS)
    slices = chunk_of(world, (TP0, PART), (TP1, PART))
    assert append(world, slices) == world.memory_in_use == 2 * (PART + HEADER)
    one, other = world.drain(1)
    assert [*views(one), *views(other)] == [encoded.data for encoded in slices]
    assert views(one)[0].obj is views(other)[0].obj is slices[0].data.obj
    assert parse_header(b"".join(one.buffers)).record_count == 1


def test_a_chunk_is_counted_until_its_last_batch_is_complete():
    """One view keeps the whole buffer alive."""
    world = World(**OPTIONS)
    append(world, chunk_of(world, (TP0, PART), (TP1, PART), (TP2, PART)))
    batches = {batch.tp: batch for batch in world.drain()}
    world.complete(batches[TP0], batches[TP2])
    assert world.memory_in_use == 3 * PART + HEADER
    world.accumulator.deallocate(batches[TP0])  # twice is not once too often
    assert world.memory_in_use == 3 * PART + HEADER
    world.complete(batches[TP1])
    assert world.memory_in_use == 0


def test_small_slices_beside_views_are_copied_and_counted_too():
    world = World(**OPTIONS)
    append(world, chunk_of(world, (TP0, PART), (TP1, 1000)))
    one, other = world.drain(1)
    assert [len(views(batch)) for batch in (one, other)] == [1, 0]
    assert world.memory_in_use == (PART + 1000) + 1000 + 2 * HEADER
    world.complete(one)
    assert world.memory_in_use == 1000 + HEADER
    world.complete(other)
    assert world.memory_in_use == 0


def test_a_chunk_with_little_of_its_bytes_in_large_slices_is_copied():
    """A view of 100 KiB would hold a buffer of 250."""
    world = World(**OPTIONS)
    append(world, chunk_of(world, (TP0, PART), (TP1, 75 * KIB), (TP2, 75 * KIB)))
    assert [views(batch) for batch in world.drain()] == [[], [], []]
    assert world.memory_in_use == 250 * KIB + 3 * HEADER


def test_a_batch_of_many_small_slices_is_joined_but_not_its_views():
    world = World(**OPTIONS)
    for _ in range(10):
        append(world, chunk_of(world, (TP0, 100), last=False))
    append(world, chunk_of(world, (TP0, PART), last=False))
    for _ in range(10):
        append(world, chunk_of(world, (TP0, 100), last=False))
    world.accumulator.begin_flush()
    (batch,) = world.drain(1)
    assert [len(chunk) for chunk in batch.chunks] == [1000, PART, 1000]
    assert world.memory_in_use == PART + 2000 + HEADER
    world.complete(batch)
    assert world.memory_in_use == 0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression_of_views_returns_their_chunks_memory(codec: str):
    world = World(**OPTIONS, compression_type=codec)
    slices = chunk_of(world, (TP0, PART), (TP1, PART))
    append(world, slices)
    one, other = world.drain(1)
    assert world.memory_in_use == one.size_in_bytes + other.size_in_bytes
    assert world.filler.codec.decompress(b"".join(one.chunks)) == slices[0].data
    world.complete(one, other)
    assert world.memory_in_use == 0


def test_a_refused_slice_holds_nothing():
    world = World(**OPTIONS)
    append(world, chunk_of(world, (TP0, PART), last=False))
    stale = chunk_of(world, (TP0, PART))
    flush = world.accumulator.begin_flush()
    world.complete(*world.drain(1))
    world.accumulator.end_flush(flush)
    assert append(world, stale) == 0
    assert world.memory_in_use == 0


def test_a_split_batch_holds_no_chunk_any_more():
    world = World(**OPTIONS)
    columns = RecordColumns(1000, "test", value=pa.array([bytes(120)] * 1000, pa.binary()))
    groups = group_rows(columns, np.zeros(1000, np.int32))
    limit = world.raw_limit()
    slices = encode_groups(
        columns, groups, world.filler.positions([TP0]), limit, 0, max_request_size=2**20
    )
    append(world, [slices[0]._replace(last=True)])
    (batch,) = world.drain(1)
    assert views(batch)
    world.returns.split_and_reenqueue(batch)
    halves = [*world.drain(1), *world.drain(1)]
    assert world.memory_in_use == sum(half.size_in_bytes for half in halves)
    assert [views(half) for half in halves] == [[], []]


def test_the_pool_counts_all_that_arrow_holds_for_batches():
    """The bound of a task's memory is a bound only if no buffer is larger than what is counted."""
    world = World(batch_size=256 * KIB, buffer_memory=64 * KIB * KIB)
    gc.collect()  # buffers in cycles of earlier tests would be freed meanwhile
    before = pa.total_allocated_bytes()
    values = pa.array([bytes(1000)] * 4000, pa.binary())
    input_bytes = pa.total_allocated_bytes() - before
    columns = RecordColumns(4000, "test", value=values)
    kept: list[ProducerBatch] = []
    for _ in range(4):
        groups = group_rows(columns, np.arange(4000, dtype=np.int32) % 3)
        limits = world.raw_limit()
        positions = world.filler.positions(groups.tps)
        append(
            world,
            encode_groups(columns, groups, positions, limits, 0, max_request_size=2**20),
        )
        kept += world.drain()
        held = pa.total_allocated_bytes() - before - input_bytes
        assert 0 < held <= world.memory_in_use
    world.accumulator.begin_flush()
    while drained := world.drain():
        kept += drained
    assert any(views(batch) for batch in kept)
    world.complete(*kept)
    assert world.memory_in_use == 0
    kept.clear()
    assert pa.total_allocated_bytes() - before - input_bytes == 0
