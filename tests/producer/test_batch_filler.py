"""The RecordAccumulator's two threads: the writer appends while the sender closes and drains."""

from __future__ import annotations

import threading

import pytest

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.producer.accumulator.producer_batch import BatchState
from tests.fakes.accumulator_world import HEADER, TP0, TP1, World


def test_the_room_of_a_partition_is_that_of_its_open_batch():
    world = World()
    assert world.filler.open_room(TP0) is None  # nothing was ever sent there
    world.append(TP0, 100)
    assert world.filler.open_room(TP0) == world.raw_limit("test") - 100
    world.append(TP0, 50, last=True)
    assert world.filler.open_room(TP0) is None


def test_a_slice_for_a_batch_closed_meanwhile_is_refused():
    """The writer encodes for generation g, the sender closes g, append refuses, and so on."""
    world = World()
    world.append(TP0, 100, records=2)
    encoded = world.slice(TP0, 50)  # the writer encodes for generation g, offset delta 2 ...
    flush = world.accumulator.begin_flush()
    (batch,) = world.drain(1)  # ... and the sender sends g
    world.accumulator.end_flush(flush)
    result = world.append_slices(encoded)
    assert result.refused == (encoded,)
    assert result.taken == 0
    assert batch.record_count == 2
    again = world.slice(TP0, 50)
    assert (again.generation, again.first_offset_delta) == (0, 0)
    assert world.append_slices(again).refused == ()


def test_slices_after_a_refused_one_of_a_partition_are_refused():
    """Else the rows of a partition would change their order."""
    world = World()
    world.append(TP0)
    first = world.slice(TP0, 50, last=True)
    second = world.slice(TP0, 60, generation=0, first_offset_delta=0)
    other = world.slice(TP1, 70)
    world.accumulator.begin_flush()
    world.drain(1)
    result = world.append_slices(first, second, other)
    assert result.refused == (first, second)
    assert result.taken == 70 + HEADER


def test_a_slice_that_overlaps_another_writers_is_refused():
    world = World()
    world.append(TP0)
    encoded = world.slice(TP0, 50)
    world.append(TP0)
    assert world.append_slices(encoded).refused == (encoded,)


class PausingCodec:
    """Compresses when asked to, so that a test can look at a batch that is CLOSING."""

    is_none = False

    def __init__(self, world: World) -> None:
        self.codec = world.filler.codec
        world.filler.codec = self  # type: ignore[assignment]
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def compress(self, buffers: object) -> bytes:
        self.entered.set()
        assert self.go_on.wait(60)
        return self.codec.compress(buffers)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self.codec, name)


def test_a_batch_being_compressed_is_left_alone_until_ready():
    """CLOSING: the sender skips it, and is woken when the closer is done."""
    world = World(compression_type="gzip")
    pausing = PausingCodec(world)
    writer = threading.Thread(target=lambda: world.append(TP0, 500, last=True), daemon=True)
    writer.start()
    assert pausing.entered.wait(60)
    assert world.accumulator.has_undrained
    world.accumulator.begin_flush()
    assert world.ready_nodes() == set()
    assert world.drain(1) == []
    woken = world.wakeups
    pausing.go_on.set()
    writer.join(60)
    assert world.wakeups > woken
    assert world.ready_nodes() == {1}
    assert len(world.drain(1)) == 1


def test_a_batch_aborted_while_compressed_frees_its_memory_once():
    """Force close during the writer's compression."""
    world = World(compression_type="gzip")
    pausing = PausingCodec(world)
    ended: list[str] = []

    def write() -> None:
        world.append(TP0, 500, last=True)
        ended.append("well")

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    assert pausing.entered.wait(60)
    world.accumulator.abort_incomplete_batches(KafkaError("closed"))
    pausing.go_on.set()
    writer.join(60)
    assert ended == ["well"]
    assert world.memory_in_use == 0
    assert [b.state for b in world.listener.done] == [BatchState.DONE]


class InterruptedCodec(PausingCodec):
    def compress(self, buffers: object) -> bytes:
        raise KeyboardInterrupt


def test_an_interrupted_compression_leaves_its_batch_intact():
    """KeyboardInterrupt in a notebook: nothing hangs, nothing is lost."""
    world = World(compression_type="gzip")
    codec = InterruptedCodec(world).codec
    piece = world.slice(TP0, 500, last=True)
    with pytest.raises(KeyboardInterrupt):
        world.append_slices(piece)
    world.filler.codec = codec
    world.append_slices(world.slice(TP0, 100))
    assert world.ready_nodes() == {1}
    assert [b.raw_size for b in world.drain(1)] == [500]


def test_an_interrupted_compression_gives_no_memory_away():
    """The writer does not learn what its batches took, and returns all; then they return it again.
    A transactional producer goes on after an abort.
    """
    world = World(compression_type="gzip")
    codec = InterruptedCodec(world).codec
    size = 500 + HEADER
    world.pool.allocate(size, world.now)
    with pytest.raises(KeyboardInterrupt):
        world.append_slices(world.slice(TP0, 500, last=True))
    world.pool.adjust(size, 0)
    assert world.memory_in_use == size
    world.filler.codec = codec
    world.complete(*world.drain(1))
    assert world.memory_in_use == 0
