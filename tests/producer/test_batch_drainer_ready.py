"""Which batches of the RecordAccumulator are ready: full, lingering, aged, of which leader."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.producer.accumulator.batch_filler import MAX_OPEN_MS
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from tests.fakes.accumulator_world import (
    CLUSTER,
    HEADER,
    TP0,
    TP1,
    TP2,
    Sequences,
    World,
    cluster_of,
)
from tests.fakes.clock import FakeClock


def test_a_full_batch_makes_its_leader_ready_at_once():
    """RecordAccumulatorTest#testFull."""
    world = World()
    world.append(TP0, 100)
    assert world.ready_nodes() == set()
    world.append(TP0, 800, last=True)
    assert world.ready_nodes() == {1}


def test_a_batch_that_another_follows_is_full():
    """RecordAccumulatorTest#testFull: the planner found no room for the next record and opened a
    new batch.
    """
    world = World()
    world.append(TP0, 100)
    world.append(TP0, 900, generation=0, first_offset_delta=0)
    assert world.ready_nodes() == {1}
    assert [b.raw_size for b in world.drain(1)] == [100]
    assert world.drain(1) == []  # the second one is open and not due


def test_a_record_larger_than_batch_size_has_its_own_batch():
    """RecordAccumulatorTest#testAppendLargeNonCompressed."""
    world = World()
    world.append(TP0, 100)
    world.append(TP0, 5000, generation=0, first_offset_delta=0, last=True)
    world.append(TP0, 100)
    assert world.ready_nodes() == {1}
    assert [b.raw_size for b in world.drain(1)] == [100]
    assert [b.raw_size for b in world.drain(1)] == [5000]


def test_an_open_batch_is_ready_after_linger_of_the_writers_wait():
    """RecordAccumulatorTest#testLinger, and linger runs while the writer waits for input."""
    world = World()
    world.append(TP0)
    world.clock.advance(500)
    assert world.ready_nodes() == set()  # the writer works: no linger
    assert world.accumulator.set_writer_waiting_since(world.now) is True
    world.clock.advance(9)
    assert world.ready_nodes() == set()
    world.clock.advance(1)
    assert world.ready_nodes() == {1}
    world.accumulator.set_writer_waiting_since(None)
    assert world.ready_nodes() == set()


def test_linger_of_zero_sends_as_soon_as_the_writer_waits():
    world = World(linger_ms=0)
    world.append(TP0)
    assert world.ready_nodes() == set()
    world.accumulator.set_writer_waiting_since(world.now)
    assert world.ready_nodes() == {1}


def test_a_trickling_writer_cannot_age_a_batch_beyond_one_second():
    """Rows come every 9 ms with linger 10: the wait never lasts, the age does."""
    world = World()
    world.append(TP0)
    opened = world.now
    while world.now - opened < MAX_OPEN_MS - 9:
        world.accumulator.set_writer_waiting_since(world.now)
        world.clock.advance(9)
        assert world.ready_nodes() == set()
        world.accumulator.set_writer_waiting_since(None)
    delay = world.ready().next_ready_check_delay_ms
    assert delay == MAX_OPEN_MS - (world.now - opened)
    world.clock.advance(delay)
    assert world.ready_nodes() == {1}
    assert len(world.drain(1)) == 1


def test_an_aged_batch_does_not_drag_the_young_ones_along():
    world = World()
    world.append(TP0)
    world.clock.advance(MAX_OPEN_MS - 1)
    world.append(TP1)
    world.clock.advance(1)
    assert [b.tp for b in world.drain(1)] == [TP0]
    assert world.ready().next_ready_check_delay_ms == MAX_OPEN_MS - 1


def test_an_aged_batch_waits_for_slices_being_encoded_for_it():
    """Else the writer of many partitions would encode a part of every chunk twice."""
    world = World()
    world.append(TP0)
    world.clock.advance(MAX_OPEN_MS - 1)
    encoded = world.slice(TP0, 50)
    world.clock.advance(1)
    assert world.ready_nodes() == set()
    assert world.drain(1) == []
    woken = world.wakeups
    assert world.append_slices(encoded).refused == ()
    assert world.wakeups == woken + 1
    assert [b.record_count for b in world.drain(1)] == [2]
    # A writer that failed while it encoded can't hold a batch for ever.
    world.append(TP0)
    world.slice(TP0, 50)
    world.clock.advance(2 * MAX_OPEN_MS)
    assert world.ready_nodes() == {1}


def test_the_next_ready_check_is_the_smallest_remaining_wait():
    """RecordAccumulatorTest#testNextReadyCheckDelay."""
    world = World(retry_backoff_ms=40, retry_backoff_max_ms=40)
    assert world.ready().next_ready_check_delay_ms == NEVER
    world.append(TP0)
    assert world.ready().next_ready_check_delay_ms == MAX_OPEN_MS
    world.clock.advance(100)
    assert world.ready().next_ready_check_delay_ms == MAX_OPEN_MS - 100
    world.accumulator.set_writer_waiting_since(world.now)
    assert world.ready().next_ready_check_delay_ms == 10
    world.accumulator.set_writer_waiting_since(None)
    world.fill(TP2)
    (batch,) = world.drain(2)
    world.returns.reenqueue(batch, world.now)
    assert world.ready().next_ready_check_delay_ms == 40


def test_the_sender_is_woken_for_ready_and_first_open_batches():
    world = World()
    world.append(TP0)
    assert world.wakeups == 1  # its age must be watched
    world.append(TP0)
    world.append(TP1)
    assert world.wakeups == 1
    world.append(TP1, last=True)
    assert world.wakeups == 2


def test_flush_and_close_make_every_batch_sendable():
    """RecordAccumulatorTest#testFlush."""
    world = World()
    world.append(TP0)
    world.append(TP2)
    flush = world.accumulator.begin_flush()
    assert world.ready_nodes() == {1, 2}
    world.accumulator.end_flush(flush)
    assert world.ready_nodes() == set()
    world.accumulator.close()
    assert world.ready_nodes() == {1, 2}
    assert len(world.drain()) == 2
    with pytest.raises(IllegalStateError):
        world.append(TP0)


def test_a_transaction_that_completes_makes_every_batch_sendable():
    """RecordAccumulatorTest#testRecordsDrainedWhenTransactionCompleting."""
    manager = Sequences()
    world = World(manager)
    world.append(TP0)
    assert world.ready_nodes() == set()
    manager.is_completing = True
    assert world.ready_nodes() == {1}


def test_waiters_in_the_pool_make_open_batches_sendable():
    """RecordAccumulatorTest#testFlush: all memory sits in the writer's own open batches, and only
    sending frees it.
    """
    clock = FakeClock(threads=9)
    world = World(clock=clock, buffer_memory=1000, batch_size=1000)
    world.append(TP0, 900 - HEADER)
    assert world.ready_nodes() == set()
    woken = threading.Event()
    pool = world.accumulator.pool
    waiter = threading.Thread(target=lambda: pool.allocate(500, NEVER, woken.set), daemon=True)
    waiter.start()
    clock.await_waiters(1)
    assert woken.is_set()
    assert world.ready_nodes() == {1}
    (batch,) = world.drain(1)
    world.complete(batch)
    waiter.join(60)
    assert pool.waiters == 0
    assert world.memory_in_use == 500


def test_a_partition_held_back_by_its_sequences_is_not_ready():
    """Rule R3: the first batch travels alone. The node must not look ready meanwhile, or the
    sender would spin until the answer comes."""
    manager = Sequences()
    world = World(manager)
    world.fill(TP0)
    manager.blocked.add(TP0)
    assert world.ready_nodes() == set()
    assert world.drain(1) == []
    manager.blocked.clear()
    assert world.ready_nodes() == {1}
    manager.has_producer_id = False
    assert world.ready_nodes() == set()


# ---- leaders -------------------------------------------------------------------------------------


@pytest.mark.parametrize("full", [True, False])
def test_a_broker_with_the_id_0_is_ready_like_any_other(full: bool):
    cluster = replace(cluster_of([0]), nodes={0: Node(0, "localhost", 1110)})
    world = World()
    if full:
        world.fill(TP0)
    else:
        world.append(TP0)
        world.accumulator.set_writer_waiting_since(world.now - world.config.linger_ms)
    assert world.ready_nodes(cluster) == {0}
    assert [b.tp for b in world.drain(0, cluster=cluster)] == [TP0]


def test_only_a_leaderless_partition_with_data_is_reported():
    """RecordAccumulator#ready."""
    world = World()
    cluster = cluster_of([-1, -1, 2])
    world.ready(cluster)
    assert world.ready(cluster).unknown_leader_topics == set()
    world.append(TP0)
    result = world.ready(cluster)
    assert result.unknown_leader_topics == {"test"}
    assert result.ready_nodes == set()
    assert world.drain(1, cluster=cluster) == []


def test_a_partition_missing_in_metadata_is_leaderless():
    world = World()
    world.ready(CLUSTER)
    world.fill(TopicPartition("gone", 3))
    assert world.ready(CLUSTER).unknown_leader_topics == {"gone"}
    found = cluster_of([1, 1, 1, 2], topic="gone")
    assert world.ready(found).unknown_leader_topics == set()
    assert world.ready_nodes(found) == {2}


def test_a_leader_that_moves_takes_its_queue_along():
    world = World()
    world.fill(TP0)
    assert world.ready_nodes(cluster_of([1])) == {1}
    assert world.ready_nodes(cluster_of([2], epoch=2)) == {2}
    assert len(world.drain(2, cluster=cluster_of([2], epoch=2))) == 1
