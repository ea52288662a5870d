"""Batches that come back to the RecordAccumulator, their backoff, and batches that expire."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import IllegalStateError
from tests.fakes.accumulator_world import TP0, TP1, TP2, Sequences, World, cluster_of


def test_backoff_doubles_and_delays_no_other_partition():
    """RecordAccumulatorTest#testRetryBackoff, RecordAccumulatorTest#testExponentialRetryBackoff:
    the spread is switched off (random gives one half).
    """
    world = World(retry_backoff_ms=100, retry_backoff_max_ms=1000, delivery_timeout_ms=3_600_000)
    world.fill(TP0)
    world.fill(TP1)
    waits = []
    for _ in range(5):
        batch = next(b for b in world.drain(1) if b.tp == TP0)
        world.returns.reenqueue(batch, world.now)
        waits.append(world.ready().next_ready_check_delay_ms)
        assert world.drain(1) == []
        world.clock.advance(waits[-1] - 1)
        assert world.ready_nodes() == set()
        world.clock.advance(1)
        assert world.ready_nodes() == {1}
    # The other partition left with the first drain.
    assert waits == [100, 200, 400, 800, 1000]


def test_a_flush_does_not_shorten_a_backoff():
    """RecordAccumulatorTest#testFlush: every batch that does not back off."""
    world = World()
    world.fill(TP0)
    (batch,) = world.drain(1)
    world.returns.reenqueue(batch, world.now)
    world.accumulator.begin_flush()
    assert world.ready_nodes() == set()


def test_a_newer_leader_epoch_cancels_only_that_backoff():
    """RecordAccumulatorTest#testExponentialRetryBackoffLeaderChange,
    RecordAccumulatorTest#testReadyAndDrainWhenABatchIsBeingRetried,
    ProducerBatchTest#testWithLeaderChangesAcrossRetries.
    """
    world = World()
    old, new = cluster_of([1], epoch=1), cluster_of([2], epoch=2)
    world.fill(TP0)
    (batch,) = world.drain(cluster=old)
    world.returns.reenqueue(batch, world.now)
    assert world.ready_nodes(old) == set()
    assert world.ready_nodes(cluster_of([1], epoch=1)) == set()  # same epoch: backoff goes on
    assert world.ready_nodes(new) == {2}
    (batch,) = world.drain(cluster=new)
    world.returns.reenqueue(batch, world.now)
    assert world.ready_nodes(new) == set()  # the next attempt backs off again


def test_a_batch_closed_by_its_drain_backs_off_too():
    """An epoch that was the leader's all along is no new leader's."""
    world = World()
    world.append(TP0)  # open: nothing but the flush sends it
    world.accumulator.begin_flush()
    (batch,) = world.drain(1)
    world.returns.reenqueue(batch, world.now)
    assert world.ready_nodes() == set()
    assert world.ready_nodes(cluster_of([2], epoch=2)) == {2}


def test_a_batch_put_back_goes_to_the_head():
    """RecordAccumulator#insertInSequenceOrder."""
    world = World()
    world.fill(TP0, 901)
    world.fill(TP0, 902)
    (first,) = world.drain(1)
    world.returns.reenqueue(first, world.now)
    world.clock.advance(1000)
    assert world.drain(1) == [first]
    assert first.attempts == 1


def test_retries_come_back_in_sequence_order_even_over_the_wrap():
    """RecordAccumulator#insertInSequenceOrder,
    SenderTest#testIdempotenceWithMultipleInflightsRetriedInOrder: answers of two requests may
    come in any order.
    """
    manager = Sequences()
    world = World(manager)
    manager.next[TP0] = 2**31 - 1
    batches = []
    for index in range(3):
        world.fill(TP0, 900 + index)
        batches += world.drain(1)
        manager.next[TP0] %= 2**31
    first, second, third = batches
    assert [b.base_sequence for b in batches] == [2**31 - 1, 0, 1]
    manager.first_in_flight_sequence = lambda tp: 2**31 - 1  # as the real one orders them
    for batch in (third, first, second):
        world.returns.reenqueue(batch, world.now)
    world.clock.advance(1000)
    assert world.drain(1) == [first]
    assert world.drain(1) == []  # the second waits until the first is settled
    manager.first_in_flight_sequence = lambda tp: 0
    assert world.drain(1) == [second]


def test_a_retry_keeps_its_sequence_and_its_bytes():
    """Rule R1: the very same objects."""
    manager = Sequences()
    world = World(manager)
    world.fill(TP0)
    (batch,) = world.drain(1)
    sent = batch.buffers
    world.returns.reenqueue(batch, world.now)
    world.clock.advance(1000)
    assert world.drain(1) == [batch]
    assert all(a is b for a, b in zip(sent, batch.buffers, strict=True))
    assert manager.next[TP0] == 1


def test_a_batch_without_sequence_can_not_be_given_back():
    """RecordAccumulator#insertInSequenceOrder."""
    manager = Sequences()
    world = World(manager)
    world.fill(TP0)
    (batch,) = world.drain(1)
    manager.in_flight.clear()
    with pytest.raises(IllegalStateError, match="not tracked"):
        world.returns.reenqueue(batch, world.now)
    batch.base_sequence = -1
    with pytest.raises(IllegalStateError, match="without sequence"):
        world.returns.reenqueue(batch, world.now)


# ---- expiry --------------------------------------------------------------------------------------


def test_batches_expire_oldest_first_and_only_the_dead_ones():
    """RecordAccumulatorTest#testExpiredBatches."""
    world = World(delivery_timeout_ms=1000, request_timeout_ms=100)
    world.fill(TP1)
    world.clock.advance(100)
    world.fill(TP0)
    world.fill(TP0)
    world.clock.advance(100)
    world.append(TP0)
    assert world.accumulator.next_expiry_time_ms() == world.now + 800
    world.clock.advance(799)
    assert world.returns.expired(world.now) == []
    world.clock.advance(1)
    assert [b.tp for b in world.returns.expired(world.now)] == [TP1]
    world.clock.advance(100)
    expired = world.returns.expired(world.now)
    assert [b.tp for b in expired] == [TP0, TP0]
    assert world.accumulator.next_expiry_time_ms() == world.now + 100
    world.clock.advance(100)
    assert len(world.returns.expired(world.now)) == 1  # the open one
    assert not world.accumulator.has_undrained
    assert world.accumulator.next_expiry_time_ms() == NEVER


def test_batches_that_expire_together_come_oldest_first():
    """SenderTest#testExpiredBatchesInMultiplePartitions."""
    world = World(delivery_timeout_ms=1000, request_timeout_ms=100)
    world.ready()
    for tp in (TP2, TP0, TP1):
        world.fill(tp)
        world.clock.advance(1)
    world.clock.advance(1000)
    assert [b.tp for b in world.returns.expired(world.now)] == [TP2, TP0, TP1]


def test_an_old_batch_that_comes_back_is_seen_by_the_next_expiry():
    """RecordAccumulatorTest#testSoonToExpireBatchesArePickedUpForExpiry: the time is right after
    every pass.
    """
    world = World(delivery_timeout_ms=1000, request_timeout_ms=100)
    world.fill(TP0)
    created = world.now
    (batch,) = world.drain(1)
    world.clock.advance(1500)
    assert world.returns.expired(world.now) == []  # in flight: not in a queue
    world.returns.reenqueue(batch, world.now)
    assert world.accumulator.next_expiry_time_ms() == created + 1000
    assert world.returns.expired(world.now) == [batch]


def test_a_batch_that_begins_again_is_in_its_queue_once():
    """Whether it waited there to be sent again, or was in flight."""
    world = World()
    for size in (901, 902, 903):
        world.fill(TP0, size)
    (first,) = world.drain(1)
    (second,) = world.drain(1)
    world.returns.reenqueue(first, world.now)
    world.returns.begin_again([first, second], world.now)
    assert (first.has_sequence, second.has_sequence) == (False, False)
    world.clock.advance(1000)
    again = [batch for _ in range(4) for batch in world.drain(1)]
    assert [batch.raw_size for batch in again] == [901, 902, 903]
