"""RecordFiller: single records in batches, their memory, their linger, beside columns."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.send.record_appender import (
    MEMORY_STEP,
    PARTITION_CHANGED,
    Memory,
    RecordFiller,
)
from spark_kafka_sink.producer.send.record_future import (
    FutureRecords,
    RecordFuture,
    UnplacedRecord,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records.single_record import EMPTY_SECTION, record_bytes, size_upper_bound
from tests.fakes.accumulator_world import HEADER, TP0, TP1, World, cluster_of
from tests.fakes.record_reader import parse_batch


def unplaced(value: bytes, timestamp: int = 1000) -> UnplacedRecord:
    return timestamp, None, value, EMPTY_SECTION, None


def filler_of(world: World) -> RecordFiller:
    return RecordFiller(world.config, world.clock, world.accumulator, world.filler, world.wake)


def futures_of(batch: ProducerBatch) -> list[RecordFuture]:
    assert isinstance(batch.records, FutureRecords)
    return batch.records.futures


def appended(world: World) -> int:
    """Records in the batches of ``world``."""
    return sum(batch.record_count for batch in world.accumulator.incomplete.all())


class Records:
    """Appends records to a world's accumulator as RecordAppender does."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.filler = filler_of(world)
        self.trips = 0

    def __call__(
        self, tp: TopicPartition = TP0, value: bytes = b"v", timestamp: int = 1000
    ) -> RecordFuture:
        memory = Memory()
        while True:
            placed = self.filler.append(tp, unplaced(value, timestamp), memory=memory)
            if isinstance(placed, RecordFuture):
                assert memory.size == 0, "it is the batch's now"
                return placed
            assert placed > memory.size
            self.world.pool.deallocate(memory.size)
            self.world.pool.allocate(placed, self.world.now)
            self.trips += 1
            memory.size, memory.allocated_ms = placed, self.world.now


def test_memory_is_taken_in_steps_and_all_of_it_comes_back():
    world = World(batch_size=100_000, buffer_memory=1_000_000)
    records = Records(world)
    for n in range(1000):
        records(value=b"%050d" % n)
    assert records.trips == -(-57_000 // MEMORY_STEP)
    assert 57_000 < world.memory_in_use <= 57_000 + MEMORY_STEP + HEADER
    flush = world.accumulator.begin_flush()
    (batch,) = world.drain()
    world.complete(batch)
    assert world.memory_in_use == 0
    world.accumulator.end_flush(flush)
    assert batch.record_count == 1000


def test_a_record_goes_into_a_batch_only_with_memory_for_it():
    world = World()
    record = unplaced(b"x" * 100)
    size = len(record_bytes(0, 0, None, b"x" * 100))

    def append(size: int) -> RecordFuture | int:
        memory = Memory()
        if size:
            world.pool.allocate(size, world.now)
            memory.size, memory.allocated_ms = size, world.now
        return filler_of(world).append(TP0, record, memory=memory)

    assert isinstance(append(HEADER + size), RecordFuture)
    assert append(0) >= size  # type: ignore[operator]  # no future
    assert append(size - 1) >= size  # type: ignore[operator]
    assert appended(world) == 1
    assert isinstance(append(size), RecordFuture)


def test_the_largest_record_of_a_batch_is_known():
    world = World()
    records = Records(world)
    for size in (50, 100, 1):
        records(value=b"x" * size)
    world.accumulator.begin_flush()
    (batch,) = world.drain()
    assert batch.largest_record == size_upper_bound(None, b"x" * 100)


class Choice:
    """A sticky partition that never changes; it keeps what it got."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []

    def changed(self, *, all_full: bool) -> bool:
        self.told.append(("asked", all_full))
        return False

    def appended(self, size: int, *, all_full: bool) -> None:
        assert size > 400
        self.told.append(("appended", all_full))


def test_the_sticky_partitioner_learns_whether_a_batch_is_full():
    world, choice = World(batch_size=1000), Choice()
    limit = world.raw_limit("test")
    for size in (460, limit - 460 - 18):  # with 9 bytes around each
        memory = Memory()
        world.pool.allocate(600, world.now)
        memory.size = 600
        record = unplaced(b"x" * size)
        placed = filler_of(world).append(TP0, record, choice, memory)
        assert isinstance(placed, RecordFuture)
    assert choice.told == [
        ("asked", True),  # nothing is open yet
        ("appended", False),
        ("asked", False),
        ("appended", True),
    ]


def test_a_record_and_columns_share_a_batch():
    """The slice that was planned before the record came is refused: its deltas are wrong now."""
    world = World()
    records = Records(world)
    world.append(TP0, 100, 2)
    planned = world.slice(TP0, 100)
    future = records()
    assert future.index == 2
    assert world.append_slices(planned).refused == (planned,)
    world.append(TP0, 100, 3)
    assert appended(world) == 6
    world.accumulator.begin_flush()
    (batch,) = world.drain()
    assert (batch.record_count, futures_of(batch)) == (6, [future])


def test_linger_runs_from_the_creation_of_a_batch():
    """RecordAccumulatorTest#testLinger, RecordAccumulatorTest#testNextReadyCheckDelay."""
    world = World(linger_ms=10)
    records = Records(world)
    records(TP0)
    world.clock.advance(4)
    records(TP1)
    assert world.ready_nodes() == set()
    assert world.ready().next_ready_check_delay_ms == 6
    world.clock.advance(5)
    assert world.ready_nodes() == set()
    world.clock.advance(1)
    assert world.ready_nodes() == {1}


def test_what_lingers_goes_along_with_a_request_to_its_broker():
    """RecordAccumulator.drainBatchesForOneNode: the first batch of every partition of the node."""
    world = World(linger_ms=5)
    records = Records(world)
    cluster = cluster_of([1] * 12)
    requests = 0
    for ms in range(2_000):
        records(TopicPartition("test", ms % 12))
        world.clock.advance(1)
        if world.ready_nodes(cluster):
            requests += 1
            assert len(world.drain(1, cluster=cluster)) == 5
    assert requests == 400


def test_columns_that_are_older_do_not_hide_a_record_that_is_due():
    """Their open batch may wait for a second, the record's for linger.ms only."""
    world = World(linger_ms=10)
    world.append(TP0, 100)
    Records(world)(TP1)
    assert world.ready().next_ready_check_delay_ms == 10
    world.clock.advance(10)
    assert {batch.tp for batch in world.drain()} == {TP1}
    assert world.ready().next_ready_check_delay_ms < NEVER


def test_a_full_batch_is_closed_and_wakes_the_sender():
    """RecordAccumulatorTest#testFull."""
    world = World(batch_size=1000)
    records = Records(world)
    records(value=b"x" * 100)
    woken = world.wakeups
    for _ in range(7):
        records(value=b"x" * 100)
    assert world.wakeups == woken
    records(value=b"x" * 100)
    assert world.wakeups > woken
    (batch,) = world.drain()
    assert batch.record_count == 8
    assert batch.size_in_bytes <= 1000
    parse_batch(b"".join(batch.buffers))


class Moved:
    """A sticky choice that another thread has changed."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    def changed(self, *, all_full: bool) -> bool:
        self.asked.append(all_full)
        return True

    def appended(self, size: int, *, all_full: bool) -> None:
        raise AssertionError


def test_nothing_is_appended_for_a_partition_that_was_given_up():
    world = World()
    moved = Moved()
    answer = filler_of(world).append(TP0, unplaced(b"v"), moved)
    assert answer == PARTITION_CHANGED
    assert moved.asked == [True]
    assert not world.accumulator.queues.open


def test_an_interrupt_within_an_append_ends_the_accumulator():
    """What half an append leaves behind is not known, so nothing more is taken, and what is there
    is not sent."""

    class Interrupting:
        def changed(self, *, all_full: bool) -> bool:
            raise KeyboardInterrupt

        def appended(self, size: int, *, all_full: bool) -> None: ...

    world = World()
    with pytest.raises(KeyboardInterrupt):
        filler_of(world).append(TP0, unplaced(b"v"), Interrupting())
    with pytest.raises(IllegalStateError, match="interrupted by KeyboardInterrupt"):
        Records(world)()


def test_a_closed_accumulator_takes_no_record():
    world = World()
    world.accumulator.close()
    with pytest.raises(IllegalStateError, match="closed"):
        Records(world)()


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_batch_filled_by_a_record_is_ready_and_one_buffer(codec):
    world = World(batch_size=500, linger_ms=10_000, compression_type=codec)
    records = Records(world)
    while not world.ready_nodes():
        assert appended(world) < 10_000
        records(value=bytes(range(50)))
    (batch,) = world.drain()
    assert batch.record_count > 3
    assert len(batch.buffers) == 2, "the header and all records: one call of the socket"
    assert len(parse_batch(b"".join(batch.buffers)).records) == batch.record_count
