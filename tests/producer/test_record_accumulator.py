"""RecordAccumulator, and the two threads (Java: RecordAccumulatorTest)."""

import threading
from dataclasses import replace

import pytest

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from spark_kafka_sink.producer.accumulator.batch_drainer import MAX_OPEN_MS
from spark_kafka_sink.producer.accumulator.producer_batch import BatchState
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.records.compression import Codec
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

# ---- full, linger, age -----------------------------------------------------------------------


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


def test_an_open_batch_is_ready_exactly_when_the_writer_has_waited_linger_ms():
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


def test_an_aged_batch_waits_for_the_slices_that_are_encoded_for_it():
    """Else the writer of many partitions would encode a part of every chunk twice."""
    world = World()
    world.append(TP0)
    world.clock.advance(MAX_OPEN_MS - 1)
    encoded = world.slice(TP0, 50)
    world.clock.advance(1)
    assert world.ready_nodes() == set()
    assert world.drain(1) == []
    woken = world.wakeups
    assert world.accumulator.append([encoded], world.now).refused == ()
    assert world.wakeups == woken + 1
    assert [b.record_count for b in world.drain(1)] == [2]
    # A writer that failed while it encoded can't hold a batch for ever.
    world.append(TP0)
    world.slice(TP0, 50)
    world.clock.advance(2 * MAX_OPEN_MS)
    assert world.ready_nodes() == {1}


def test_the_next_ready_check_is_the_smallest_wait_of_those_not_ready():
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
    world.accumulator.reenqueue(batch, world.now)
    assert world.ready().next_ready_check_delay_ms == 40


def test_a_record_larger_than_batch_size_has_a_batch_of_its_own_and_is_ready():
    """RecordAccumulatorTest#testAppendLargeNonCompressed."""
    world = World()
    world.append(TP0, 100)
    world.append(TP0, 5000, generation=0, first_offset_delta=0, last=True)
    world.append(TP0, 100)
    assert world.ready_nodes() == {1}
    assert [b.raw_size for b in world.drain(1)] == [100]
    assert [b.raw_size for b in world.drain(1)] == [5000]


def test_the_sender_is_woken_for_a_ready_batch_and_for_the_first_open_one_only():
    world = World()
    world.append(TP0)
    assert world.wakeups == 1  # its age must be watched
    world.append(TP0)
    world.append(TP1)
    assert world.wakeups == 1
    world.append(TP1, last=True)
    assert world.wakeups == 2


# ---- drain -----------------------------------------------------------------------------------


def test_drain_takes_one_batch_of_a_partition_for_each_call():
    """RecordAccumulator#drainBatchesForOneNode."""
    world = World()
    for _ in range(3):
        world.fill(TP0)
    world.fill(TP1)
    assert [b.tp for b in world.drain(1)] == [TP0, TP1]
    assert [b.tp for b in world.drain(1)] == [TP0]


def test_drain_stops_at_max_size_but_takes_one_oversize_batch_alone():
    """RecordAccumulatorTest#testPartialDrain."""
    world = World()
    world.fill(TP0, 900)
    world.fill(TP1, 900)
    size = 900 + HEADER
    assert [b.tp for b in world.drain(1, max_size=2 * size - 1)] == [TP0]
    assert [b.tp for b in world.drain(1, max_size=10)] == [TP1]
    assert world.drain(1) == []


def test_the_next_drain_starts_after_the_partition_drained_last():
    """RecordAccumulatorTest#testDrainBatches: no partition starves."""
    world = World()
    for _ in range(3):
        for tp in (TP0, TP1):
            world.fill(tp)
    taken = [world.drain(1, max_size=1)[0].tp for _ in range(6)]
    assert taken == [TP0, TP1, TP0, TP1, TP0, TP1]
    world.fill(TP0)
    assert [b.tp for b in world.drain(1)] == [TP0]
    world.fill(TP0)
    world.fill(TP1)
    assert [b.tp for b in world.drain(1, max_size=1)] == [TP1]


def test_the_next_drain_starts_behind_the_last_one_although_everything_fitted():
    world = World()
    world.fill(TP1)
    world.drain(1)
    world.fill(TP0)
    assert [b.tp for b in world.drain(1)] == [TP0]
    world.fill(TP0)
    world.fill(TP1)
    assert [b.tp for b in world.drain(1)] == [TP1, TP0]


def test_what_did_not_fit_goes_first_in_the_next_drain():
    """Before a partition that had nothing then, though that one comes earlier."""
    world, cluster = World(), cluster_of([1, 1, 1])
    for tp in (TP0, TP1, TP2):
        world.fill(tp)
    assert len(world.drain(1, cluster=cluster)) == 3
    world.fill(TP0)
    world.fill(TP2)
    assert [b.tp for b in world.drain(1, cluster=cluster, max_size=1)] == [TP0]
    world.fill(TP1)
    assert [b.tp for b in world.drain(1, cluster=cluster, max_size=1)] == [TP2]


def test_a_partition_held_back_does_not_end_the_drain_of_its_node():
    world, cluster = World(), cluster_of([1, 1, 1])
    for tp in (TP0, TP1, TP2):
        world.fill(tp)
    world.accumulator.mute_partition(TP1)
    assert [b.tp for b in world.drain(1, cluster=cluster)] == [TP0, TP2]


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


def test_a_muted_partition_is_neither_ready_nor_drained_but_expires():
    """RecordAccumulatorTest#testMutedPartitions."""
    world = World()
    world.fill(TP0)
    world.accumulator.mute_partition(TP0)
    assert world.ready_nodes() == set()
    assert world.drain(1) == []
    world.accumulator.unmute_partition(TP0)
    assert world.ready_nodes() == {1}
    world.accumulator.mute_partition(TP0)
    world.clock.advance(world.config.delivery_timeout_ms)
    assert len(world.accumulator.expired_batches(world.now)) == 1


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
    """RecordAccumulatorTest#testFlush."""
    manager = Sequences()
    world = World(manager)
    world.append(TP0)
    assert world.ready_nodes() == set()
    manager.is_completing = True
    assert world.ready_nodes() == {1}


# ---- retries ---------------------------------------------------------------------------------


def test_backoff_doubles_from_the_last_attempt_and_delays_no_other_partition():
    """RecordAccumulatorTest#testRetryBackoff (the spread is switched off: random gives one
    half).
    """
    world = World(retry_backoff_ms=100, retry_backoff_max_ms=1000, delivery_timeout_ms=3_600_000)
    world.fill(TP0)
    world.fill(TP1)
    waits = []
    for _ in range(5):
        batch = next(b for b in world.drain(1) if b.tp == TP0)
        world.accumulator.reenqueue(batch, world.now)
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
    world.accumulator.reenqueue(batch, world.now)
    world.accumulator.begin_flush()
    assert world.ready_nodes() == set()


def test_a_newer_leader_epoch_cancels_the_backoff_of_that_attempt_only():
    """RecordAccumulatorTest#testExponentialRetryBackoffLeaderChange,
    ProducerBatchTest#testWithLeaderChangesAcrossRetries.
    """
    world = World()
    old, new = cluster_of([1], epoch=1), cluster_of([2], epoch=2)
    world.fill(TP0)
    (batch,) = world.drain(cluster=old)
    world.accumulator.reenqueue(batch, world.now)
    assert world.ready_nodes(old) == set()
    assert world.ready_nodes(cluster_of([1], epoch=1)) == set()  # same epoch: backoff goes on
    assert world.ready_nodes(new) == {2}
    (batch,) = world.drain(cluster=new)
    world.accumulator.reenqueue(batch, world.now)
    assert world.ready_nodes(new) == set()  # the next attempt backs off again


def test_a_batch_that_was_closed_by_its_drain_backs_off_before_its_first_retry_too():
    """An epoch that was the leader's all along is no new leader's."""
    world = World()
    world.append(TP0)  # open: nothing but the flush sends it
    world.accumulator.begin_flush()
    (batch,) = world.drain(1)
    world.accumulator.reenqueue(batch, world.now)
    assert world.ready_nodes() == set()
    assert world.ready_nodes(cluster_of([2], epoch=2)) == {2}


def test_a_batch_put_back_goes_to_the_head():
    """RecordAccumulator#insertInSequenceOrder."""
    world = World()
    world.fill(TP0, 901)
    world.fill(TP0, 902)
    (first,) = world.drain(1)
    world.accumulator.reenqueue(first, world.now)
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
        world.accumulator.reenqueue(batch, world.now)
    world.clock.advance(1000)
    assert world.drain(1) == [first]
    assert world.drain(1) == []  # the second waits until the first is settled
    manager.first_in_flight_sequence = lambda tp: 0
    assert world.drain(1) == [second]


def test_a_retry_keeps_its_sequence_and_its_bytes():
    """Rule 5.1: the very same objects."""
    manager = Sequences()
    world = World(manager)
    world.fill(TP0)
    (batch,) = world.drain(1)
    sent = batch.buffers
    world.accumulator.reenqueue(batch, world.now)
    world.clock.advance(1000)
    assert world.drain(1) == [batch]
    assert all(a is b for a, b in zip(sent, batch.buffers, strict=True))
    assert manager.next[TP0] == 1


def test_a_batch_without_sequence_or_not_in_flight_cannot_come_back_under_idempotence():
    """RecordAccumulator#insertInSequenceOrder."""
    manager = Sequences()
    world = World(manager)
    world.fill(TP0)
    (batch,) = world.drain(1)
    manager.in_flight.clear()
    with pytest.raises(IllegalStateError, match="not tracked"):
        world.accumulator.reenqueue(batch, world.now)
    batch.base_sequence = -1
    with pytest.raises(IllegalStateError, match="without sequence"):
        world.accumulator.reenqueue(batch, world.now)


def test_a_partition_held_back_by_its_sequences_is_not_ready():
    """Rule 5.3: the first batch travels alone. The node must not look ready meanwhile, or the
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


# ---- expiry ----------------------------------------------------------------------------------


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
    assert world.accumulator.expired_batches(world.now) == []
    world.clock.advance(1)
    assert [b.tp for b in world.accumulator.expired_batches(world.now)] == [TP1]
    world.clock.advance(100)
    expired = world.accumulator.expired_batches(world.now)
    assert [b.tp for b in expired] == [TP0, TP0]
    assert world.accumulator.next_expiry_time_ms() == world.now + 100
    world.clock.advance(100)
    assert len(world.accumulator.expired_batches(world.now)) == 1  # the open one
    assert not world.accumulator.has_undrained
    assert world.accumulator.next_expiry_time_ms() == NEVER


def test_batches_that_expire_together_come_oldest_first():
    """RecordAccumulatorTest#testExpiredBatches: over partitions, too."""
    world = World(delivery_timeout_ms=1000, request_timeout_ms=100)
    world.ready()
    for tp in (TP2, TP0, TP1):
        world.fill(tp)
        world.clock.advance(1)
    world.clock.advance(1000)
    assert [b.tp for b in world.accumulator.expired_batches(world.now)] == [TP2, TP0, TP1]


def test_an_old_batch_that_comes_back_is_seen_by_the_next_expiry():
    """RecordAccumulatorTest#testSoonToExpireBatchesArePickedUpForExpiry: the time is right after
    every pass.
    """
    world = World(delivery_timeout_ms=1000, request_timeout_ms=100)
    world.fill(TP0)
    created = world.now
    (batch,) = world.drain(1)
    world.clock.advance(1500)
    assert world.accumulator.expired_batches(world.now) == []  # in flight: not in a queue
    world.accumulator.reenqueue(batch, world.now)
    assert world.accumulator.next_expiry_time_ms() == created + 1000
    assert world.accumulator.expired_batches(world.now) == [batch]


# ---- memory, flush, abort --------------------------------------------------------------------


def test_memory_goes_back_once_whatever_happens():
    """SenderTest#testInflightBatchesExpireOnDeliveryTimeout (memory is never freed twice)."""
    world = World()
    world.append(TP0, 100)
    world.append(TP0, 200, last=True)
    assert world.memory_in_use == 300 + HEADER
    (batch,) = world.drain(1)
    batch.complete(5, -1)
    world.accumulator.deallocate(batch)
    world.accumulator.deallocate(batch)
    assert world.memory_in_use == 0
    assert not world.accumulator.has_incomplete


def test_compression_recounts_the_pool():
    world = World(compression_type="gzip")
    world.append(TP0, 5000, last=True)
    (batch,) = world.drain(1)
    assert batch.size_in_bytes < 200
    assert world.memory_in_use == batch.size_in_bytes
    world.complete(batch)
    assert world.memory_in_use == 0


def test_the_raw_limit_follows_the_compression_that_was_seen_and_stays_bounded():
    """Full means estimated compressed bytes; raw bytes are what lies in memory."""
    plain, gzip = World(), World(compression_type="gzip")
    assert plain.accumulator.raw_limit("test") == 1000 - HEADER
    first = gzip.accumulator.raw_limit("test")
    assert first < 1000
    for _ in range(300):
        gzip.append(TP0, 9000, last=True)
        gzip.complete(*gzip.drain(1))
    assert gzip.accumulator.raw_limit("test") == 8 * 1000
    assert gzip.accumulator.raw_limit("other") == first


def test_flush_waits_for_what_existed_and_not_for_what_came_later():
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


def test_a_failed_accumulator_wakes_flush_and_refuses_appends():
    """RecordAccumulatorTest#testAbortIncompleteBatches: every batch fails once, memory is back, who
    waits is woken.
    """
    clock = FakeClock(threads=9)
    world = World(clock=clock)
    world.fill(TP0)
    (in_flight,) = world.drain(1)
    world.append(TP0)
    world.append(TP2)
    flush = world.accumulator.begin_flush()
    result: list[bool] = []
    waiter = threading.Thread(
        target=lambda: result.append(world.accumulator.await_flush_completion(flush, NEVER)),
        daemon=True,
    )
    waiter.start()
    clock.await_waiters(1)
    error = KafkaError("gone")
    world.accumulator.abort_incomplete_batches(error)
    waiter.join(60)
    assert result == [True]
    assert [b.error for b in world.listener.done] == [error] * 3
    assert world.memory_in_use == 0
    assert in_flight.complete(0, -1) is False  # the late answer is ignored
    with pytest.raises(KafkaError, match="gone"):
        world.accumulator.append([world.slice(TP0, 10)], world.now)
    with pytest.raises(IllegalStateError):
        world.accumulator.pool.allocate(1, NEVER)


def test_a_failure_ends_a_flush_although_a_batch_is_still_in_flight():
    """The writer must hear of the failure at once, not when the last answer came."""
    clock = FakeClock(threads=9)
    world = World(clock=clock)
    world.fill(TP0)
    world.drain(1)
    world.append(TP2)
    flush = world.accumulator.begin_flush()
    result: list[bool] = []
    waiter = threading.Thread(
        target=lambda: result.append(world.accumulator.await_flush_completion(flush, NEVER)),
        daemon=True,
    )
    waiter.start()
    clock.await_waiters(1)
    world.accumulator.fail(KafkaError("another batch failed"))
    waiter.join(60)
    assert result == [True]
    assert [b.tp for b in world.listener.done] == [TP2]  # what was never sent is dropped
    assert world.accumulator.has_incomplete


def test_a_batch_that_was_sent_once_is_spared_without_sequences_too():
    """RecordAccumulatorTest#testAbortIncompleteBatches: only its answer tells whether its records
    are in the log.
    """
    world = World()
    world.fill(TP0)
    (batch,) = world.drain(1)
    world.accumulator.reenqueue(batch, world.now)
    world.accumulator.abort_undrained_batches(KafkaTimeoutError("lost"))
    assert world.listener.done == []


def test_aborting_undrained_batches_spares_those_that_were_sent():
    """RecordAccumulatorTest#testAbortIncompleteBatches."""
    manager = Sequences()
    world = World(manager)
    for size in (901, 902, 903):
        world.fill(TP0, size)
    (sent,) = world.drain(1)
    (retried,) = world.drain(1)
    world.accumulator.reenqueue(retried, world.now)
    world.append(TP1)
    world.accumulator.abort_undrained_batches(KafkaTimeoutError("lost"))
    assert sorted(b.raw_size for b in world.listener.done) == [100, 903]
    assert not sent.is_done
    assert not retried.is_done
    assert world.memory_in_use == sent.pool_size + retried.pool_size


# ---- leaders ---------------------------------------------------------------------------------


def test_a_leaderless_partition_with_data_is_reported_and_one_without_is_not():
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


def test_a_partition_that_metadata_lost_is_leaderless_and_comes_back():
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


# ---- the two threads -------------------------------------------------------------------------


def test_the_room_of_a_partition_is_that_of_its_open_batch():
    world = World()
    assert world.accumulator.open_room(TP0) is None  # nothing was ever sent there
    world.append(TP0, 100)
    assert world.accumulator.open_room(TP0) == world.accumulator.raw_limit("test") - 100
    world.append(TP0, 50, last=True)
    assert world.accumulator.open_room(TP0) is None


def test_a_slice_for_a_batch_that_the_sender_closed_meanwhile_is_refused():
    """The writer encodes for generation g, the sender closes g, append refuses, and so on."""
    world = World()
    world.append(TP0, 100, records=2)
    encoded = world.slice(TP0, 50)  # the writer encodes for generation g, offset delta 2 ...
    flush = world.accumulator.begin_flush()
    (batch,) = world.drain(1)  # ... and the sender sends g
    world.accumulator.end_flush(flush)
    assert world.accumulator.refused_slices == 0
    result = world.accumulator.append([encoded], world.now)
    assert result.refused == (encoded,)
    assert world.accumulator.refused_slices == 1
    assert result.taken == 0
    assert batch.record_count == 2
    again = world.slice(TP0, 50)
    assert (again.generation, again.first_offset_delta) == (0, 0)
    assert world.accumulator.append([again], world.now).refused == ()


def test_what_follows_a_refused_slice_in_its_partition_is_refused_too():
    """Else the rows of a partition would change their order."""
    world = World()
    world.append(TP0)
    first = world.slice(TP0, 50, last=True)
    second = world.slice(TP0, 60, generation=0, first_offset_delta=0)
    other = world.slice(TP1, 70)
    world.accumulator.begin_flush()
    world.drain(1)
    result = world.accumulator.append([first, second, other], world.now)
    assert result.refused == (first, second)
    assert result.taken == 70 + HEADER


def test_a_slice_that_overlaps_another_writers_is_refused():
    world = World()
    world.append(TP0)
    encoded = world.slice(TP0, 50)
    world.append(TP0)
    assert world.accumulator.append([encoded], world.now).refused == (encoded,)


class PausingCodec:
    """Compresses when it is told to, so that a test can look at a batch that is CLOSING."""

    is_none = False

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def compress(self, buffers: object) -> bytes:
        self.entered.set()
        assert self.go_on.wait(60)
        return self.codec.compress(buffers)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self.codec, name)


def test_a_batch_that_the_writer_compresses_is_left_alone_until_it_is_ready():
    """CLOSING: the sender skips it, and is woken when the closer is done."""
    world = World(compression_type="gzip")
    pausing = PausingCodec(world.accumulator._closer._codec)
    world.accumulator._closer._codec = pausing  # type: ignore[assignment]
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


def test_a_batch_aborted_while_it_is_compressed_gives_its_memory_back_once():
    """Force close during the writer's compression."""
    world = World(compression_type="gzip")
    pausing = PausingCodec(world.accumulator._closer._codec)
    world.accumulator._closer._codec = pausing  # type: ignore[assignment]
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


def test_a_writer_interrupted_while_it_compresses_leaves_the_batch_to_the_sender():
    """KeyboardInterrupt in a notebook: nothing hangs, nothing is lost."""
    world = World(compression_type="gzip")
    codec = world.accumulator._closer._codec
    world.accumulator._closer._codec = InterruptedCodec(codec)  # type: ignore[assignment]
    piece = world.slice(TP0, 500, last=True)
    with pytest.raises(KeyboardInterrupt):
        world.accumulator.append([piece], world.now)
    world.accumulator._closer._codec = codec
    world.accumulator.append([world.slice(TP0, 100)], world.now)
    assert world.ready_nodes() == {1}
    assert [b.raw_size for b in world.drain(1)] == [500]


def test_five_writers_and_a_sender_lose_nothing():
    """RecordAccumulatorTest#testStressfulSituation: 5 threads on a small pool; every record is
    drained, in order.
    """
    from spark_kafka_sink.clock import SystemClock

    world = World(clock=SystemClock(), buffer_memory=10_240, batch_size=1024)  # type: ignore[arg-type]
    accumulator = world.accumulator
    cluster = cluster_of([1] * 5)
    per_writer = 2_000

    def write(partition: int) -> None:
        tp = TopicPartition("test", partition)
        for number in range(per_writer):
            data = memoryview(number.to_bytes(4, "big") * 5)
            accumulator.pool.allocate(20 + HEADER, NEVER)
            taken = 0
            while True:
                piece = world.slice(tp, 20, data=data)
                if accumulator.positions([tp])[0].room < 20:
                    piece = world.slice(tp, 20, data=data, generation=0, first_offset_delta=0)
                result = accumulator.append([piece], world.now)
                taken += result.taken
                if not result.refused:
                    break
            accumulator.pool.adjust(20 + HEADER, taken)

    writers = [threading.Thread(target=write, args=(p,), daemon=True) for p in range(5)]
    for writer in writers:
        writer.start()
    seen: dict[int, bytes] = dict.fromkeys(range(5), b"")
    flush = None
    while accumulator.has_incomplete or any(w.is_alive() for w in writers):
        if flush is None and not any(w.is_alive() for w in writers):
            flush = accumulator.begin_flush()
        for batch in world.drain(1, cluster=cluster):
            seen[batch.tp.partition] += b"".join(batch.buffers[1:])
            world.complete(batch)
    assert world.memory_in_use == 0
    expected = b"".join(n.to_bytes(4, "big") * 5 for n in range(per_writer))
    assert all(data == expected for data in seen.values())
