"""The RecordAccumulator's memory, flush and abort."""

from __future__ import annotations

import threading

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from tests.fakes.accumulator_world import HEADER, TP0, TP1, TP2, Sequences, World
from tests.fakes.clock import FakeClock


def test_memory_goes_back_once_whatever_happens():
    """SenderTest#testNoDoubleDeallocation."""
    world = World()
    world.append(TP0, 100)
    world.append(TP0, 200, last=True)
    assert world.memory_in_use == 300 + HEADER
    (batch,) = world.drain(1)
    batch.complete(5, -1)
    world.accumulator.deallocate(batch)
    world.accumulator.deallocate(batch)
    assert world.memory_in_use == 0
    assert not world.accumulator.incomplete


def test_the_raw_limit_follows_the_seen_compression_in_bounds():
    """Full means estimated compressed bytes; raw bytes are what lies in memory."""
    plain, gzip = World(), World(compression_type="gzip")
    assert plain.raw_limit("test") == 1000 - HEADER
    first = gzip.raw_limit("test")
    assert first < 1000
    for _ in range(300):
        gzip.append(TP0, 9000, last=True)
        gzip.complete(*gzip.drain(1))
    assert gzip.raw_limit("test") == 8 * 1000
    assert gzip.raw_limit("other") == first


def test_flush_waits_for_earlier_batches_only():
    """RecordAccumulatorTest#testAwaitFlushComplete."""
    world = World()
    world.append(TP0)
    flush = world.accumulator.begin_flush()
    (early,) = world.drain(1)
    world.append(TP2)
    (late,) = world.drain(2)
    world.complete(late)
    assert world.accumulator.await_flush_completion(flush, world.now + 50) is False
    world.complete(early)
    assert world.accumulator.await_flush_completion(flush, world.now) is True


def test_flush_of_nothing_returns_at_once():
    world = World()
    flush = world.accumulator.begin_flush()
    assert world.accumulator.await_flush_completion(flush, NEVER) is True


class Flush:
    """A flush of what is in the world, waited for on a thread of its own."""

    def __init__(self, world: World) -> None:
        self.complete: bool | None = None
        flush = world.accumulator.begin_flush()

        def wait() -> None:
            self.complete = world.accumulator.await_flush_completion(flush, NEVER)

        self.thread = threading.Thread(target=wait, daemon=True)
        self.thread.start()
        world.clock.await_waiters(1)

    def end(self) -> bool | None:
        self.thread.join(60)
        return self.complete


def test_a_failed_accumulator_wakes_flush_and_refuses_appends():
    """RecordAccumulatorTest#testAbortIncompleteBatches: every batch fails once, memory is back, who
    waits is woken.
    """
    world = World(clock=FakeClock(threads=9))
    world.fill(TP0)
    (in_flight,) = world.drain(1)
    world.append(TP0)
    world.append(TP2)
    flush = Flush(world)
    error = KafkaError("gone")
    world.accumulator.lifecycle.stop(error)
    world.accumulator.abort_incomplete_batches(error)
    assert flush.end() is True
    assert [b.error for b in world.listener.done] == [error] * 3
    assert world.memory_in_use == 0
    assert in_flight.complete(0, -1) is False  # the late answer is ignored
    with pytest.raises(KafkaError, match="gone"):
        world.append_slices(world.slice(TP0, 10))
    with pytest.raises(IllegalStateError):
        world.accumulator.pool.allocate(1, NEVER)


def test_a_failure_ends_a_flush_with_a_batch_still_in_flight():
    """The writer must hear of the failure at once, not when the last answer came."""
    world = World(clock=FakeClock(threads=9))
    world.fill(TP0)
    world.drain(1)
    world.append(TP2)
    flush = Flush(world)
    world.accumulator.fail(KafkaError("another batch failed"))
    assert flush.end() is True
    assert [b.tp for b in world.listener.done] == [TP2]  # what was never sent is dropped
    assert world.accumulator.incomplete


def test_a_batch_sent_once_is_spared_without_sequences_too():
    """RecordAccumulatorTest#testAbortUnsentBatches: only its response says whether its records are
    in the log.
    """
    world = World()
    world.fill(TP0)
    (batch,) = world.drain(1)
    world.returns.reenqueue(batch, world.now)
    world.accumulator.abort_undrained_batches(KafkaTimeoutError("lost"))
    assert world.listener.done == []


def test_aborting_undrained_batches_spares_those_that_were_sent():
    """RecordAccumulatorTest#testAbortUnsentBatches."""
    manager = Sequences()
    world = World(manager)
    for size in (901, 902, 903):
        world.fill(TP0, size)
    (sent,) = world.drain(1)
    (retried,) = world.drain(1)
    world.returns.reenqueue(retried, world.now)
    world.append(TP1)
    world.accumulator.abort_undrained_batches(KafkaTimeoutError("lost"))
    assert sorted(b.raw_size for b in world.listener.done) == [100, 903]
    assert not sent.is_done
    assert not retried.is_done
    assert world.memory_in_use == sent.pool_size + retried.pool_size
