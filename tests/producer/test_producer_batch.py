"""ProducerBatch, and frozen bytes (Java: ProducerBatchTest)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import IllegalStateError, KafkaTimeoutError, RecordTooLargeError
from spark_kafka_sink.producer.accumulator.producer_batch import (
    TRANSITIONS,
    BatchState,
    ProducerBatch,
)
from spark_kafka_sink.records.compression import Codec, CompressionType
from spark_kafka_sink.records.record_batch import sequence_before
from spark_kafka_sink.records.single_record import record_bytes
from tests.fakes.accumulator_world import HEADER, TP0, Listener, Sequences, World
from tests.fakes.record_reader import Record, parse_batch

NONE, GZIP = Codec(), Codec(CompressionType.GZIP, -1)
BASE = 1_700_000_000_000


def encoded(records: list[tuple[bytes | None, int]], first: int = 0) -> bytes:
    """Values and timestamps as record bytes, written record by record."""
    return b"".join(
        record_bytes(delta, timestamp - BASE, None, value)
        for delta, (value, timestamp) in enumerate(records, start=first)
    )


def batch_of(
    records: list[tuple[bytes | None, int]], listener: Listener | None = None
) -> ProducerBatch:
    batch = ProducerBatch(TP0, 100, 1, BASE, listener or Listener())
    if records:
        batch.append(encoded(records), len(records), max(t for _, t in records))
    return batch


def read(batch: ProducerBatch) -> tuple[Record, ...]:
    data = b"".join(batch.buffers)
    assert len(data) == batch.size_in_bytes
    return parse_batch(data).records


ROWS: list[tuple[bytes | None, int]] = [(b"a", BASE), (b"bb", BASE + 5), (None, BASE - 7)]


@pytest.mark.parametrize("codec", [NONE, GZIP], ids=["none", "gzip"])
def test_what_is_sent_reads_back_with_the_producers_state(codec: Codec):
    batch = batch_of(ROWS)
    batch.append(encoded([(b"d", BASE + 1)], first=3), 1, BASE + 1)
    batch.close(codec)
    batch.set_producer_state(1000, 3, 7, transactional=True)
    header = parse_batch(b"".join(batch.buffers)).header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1000, 3, 7)
    assert header.transactional
    assert header.max_timestamp == BASE + 5
    assert header.codec is codec.type
    assert [(r.offset, r.value, r.timestamp) for r in read(batch)] == [
        (0, b"a", BASE),
        (1, b"bb", BASE + 5),
        (2, None, BASE - 7),
        (3, b"d", BASE + 1),
    ]


def test_bytes_are_frozen_at_close_and_retries_send_the_same():
    """Rule R1."""
    batch = batch_of(ROWS)
    batch.close(GZIP)
    batch.set_producer_state(1, 0, 0, transactional=False)
    first = batch.buffers
    with pytest.raises(IllegalStateError, match="only once"):
        batch.set_producer_state(1, 1, 0, transactional=False)
    with pytest.raises(IllegalStateError):
        batch.append(b"x", 1, BASE)
    batch.drained(10)
    batch.reenqueued(30)
    assert all(a is b for a, b in zip(first, batch.buffers, strict=True))


@pytest.mark.parametrize(
    ("origin", "target", "move"),
    [
        (BatchState.OPEN, BatchState.CLOSING, lambda batch: batch.move(BatchState.CLOSING)),
        (BatchState.OPEN, BatchState.READY, lambda batch: batch.finish_close(None, Codec())),
        (BatchState.CLOSING, BatchState.READY, lambda batch: batch.finish_close(None, Codec())),
        (BatchState.READY, BatchState.IN_FLIGHT, lambda batch: batch.drained(0)),
        (BatchState.IN_FLIGHT, BatchState.READY, lambda batch: batch.reenqueued(0)),
    ],
)
def test_each_transition_starts_from_its_state_only(origin, target, move):
    """MemoryRecordsBuilderTest#shouldThrowIllegalStateExceptionOnAppendWhenClosed."""
    assert target in TRANSITIONS[origin]
    for state in BatchState:
        batch = ProducerBatch(TP0, 0, 1, 0, Listener())
        batch.state = state
        if state is origin:
            move(batch)
            assert batch.state is target
        elif target not in TRANSITIONS[state]:
            with pytest.raises(IllegalStateError):
                move(batch)
            assert batch.state is state


SENDABLE = (BatchState.READY, BatchState.IN_FLIGHT)


def closed_batch(state: BatchState) -> ProducerBatch:
    batch = batch_of(ROWS)
    batch.close(NONE)
    batch.state = state
    return batch


@pytest.mark.parametrize("state", SENDABLE)
def test_a_batch_with_a_header_can_be_split(state: BatchState):
    batch = closed_batch(state)
    batch.set_producer_state(1, 0, 0, transactional=False)
    assert sum(one.record_count for one in batch.split(2)) == len(ROWS)


@pytest.mark.parametrize("state", [one for one in BatchState if one not in SENDABLE])
def test_only_a_ready_or_sent_batch_gets_a_header_or_is_split(state: BatchState):
    batch = closed_batch(state)
    with pytest.raises(IllegalStateError, match=state.value):
        batch.set_producer_state(1, 0, 0, transactional=False)
    assert not batch.buffers
    with pytest.raises(IllegalStateError, match=state.value):
        batch.split(2)
    assert batch.state is state


def test_a_batch_ends_once():
    """ProducerBatchTest#testBatchCannotCompleteTwice."""
    listener = Listener()
    batch = batch_of(ROWS, listener)
    batch.close(NONE)
    assert batch.complete(500, BASE) is True
    with pytest.raises(IllegalStateError):
        batch.complete(500, BASE)
    with pytest.raises(IllegalStateError):
        batch.complete_exceptionally(KafkaTimeoutError("late"))
    assert listener.done == []  # by the caller, with others of its response
    assert (batch.base_offset, batch.log_append_time_ms, batch.error) == (500, BASE, None)


def test_a_batch_that_ended_keeps_no_bytes():
    """Its memory is given back to the pool then; a send in progress has its own references."""
    batch = batch_of(ROWS)
    batch.close(NONE)
    batch.set_producer_state(-1, -1, -1, transactional=False)
    sent = batch.buffers
    batch.complete(0, -1)
    assert not batch.buffers
    assert sum(map(len, sent)) == batch.size_in_bytes


def test_a_late_answer_to_an_aborted_batch_is_ignored():
    """ProducerBatchTest#testBatchCannotCompleteTwice."""
    listener = Listener()
    batch = batch_of(ROWS, listener)
    batch.close(NONE)
    first = KafkaTimeoutError("first")
    assert batch.complete_exceptionally(first) is True
    assert batch.complete(0, -1) is False
    assert batch.complete_exceptionally(RecordTooLargeError("second")) is False
    assert batch.error is first
    assert listener.done == [batch]


def test_a_batch_expires_at_the_exact_time_and_not_before():
    """ProducerBatchTest#testBatchExpiration."""
    batch = batch_of(ROWS)
    assert not batch.has_reached_delivery_timeout(50, 99)
    assert not batch.has_reached_delivery_timeout(50, 149)
    assert batch.has_reached_delivery_timeout(50, 150)
    assert not batch.has_reached_delivery_timeout(2**63 - 1, 150)


def test_a_leader_change_counts_for_the_attempt_that_saw_it_only():
    """ProducerBatchTest#testWithLeaderChangesAcrossRetries."""
    batch = batch_of(ROWS)
    batch.close(NONE)
    batch.maybe_update_leader_epoch(100)
    assert not batch.has_leader_changed_for_the_ongoing_retry  # not a retry
    for attempt, (epoch, changed) in enumerate(
        [(100, False), (101, True), (101, False), (100, False), (-1, False), (102, True)], start=1
    ):
        batch.drained(attempt)
        batch.reenqueued(attempt)
        batch.maybe_update_leader_epoch(epoch)
        assert batch.has_leader_changed_for_the_ongoing_retry is changed, attempt


@pytest.mark.parametrize("codec", [NONE, GZIP], ids=["none", "gzip"])
def test_the_halves_keep_age_attempts_order_and_sequences(codec: Codec):
    """RecordAccumulatorTest#testSplitAndReenqueue and rule R7, over the wrap of sequences."""
    listener = Listener()
    rows: list[tuple[bytes | None, int]] = [(b"v%d" % i, BASE + i) for i in range(7)]
    batch = batch_of(rows, listener)
    batch.close(codec)
    batch.set_producer_state(9, 2, 2**31 - 2, transactional=True)
    batch.drained(10)
    batch.reenqueued(120)
    batch.drained(130)
    first, second = batch.split(50)
    assert batch.is_done
    assert listener.done == []
    assert (first.base_sequence, first.record_count) == (2**31 - 2, 3)
    assert (second.base_sequence, second.record_count) == (1, 4)
    for piece in (first, second):
        assert piece.state is BatchState.READY
        assert (piece.created_ms, piece.attempts, piece.lineage) == (100, 1, 1)
        assert (piece.producer_id, piece.producer_epoch, piece.transactional) == (9, 2, True)
    assert [r.value for r in read(first) + read(second)] == [v for v, _ in rows]
    assert [r.timestamp for r in read(second)] == [t for _, t in rows[3:]]
    assert [r.offset for r in read(second)] == [0, 1, 2, 3]


def test_splitting_ends_in_single_records_which_cannot_be_split():
    """RecordAccumulatorTest#testSplitBatchOffAccumulator: no infinite loop."""
    pieces = [batch_of([(b"x" * 50, BASE)] * 13)]
    pieces[0].close(NONE)
    generation = 2
    singles = []
    while pieces:
        piece = pieces.pop()
        if piece.record_count == 1:
            singles.append(piece)
            continue
        pieces += piece.split(generation)
        generation += 2
    assert len(singles) == 13
    with pytest.raises(IllegalStateError, match="single record"):
        singles[0].split(generation)


@given(st.lists(st.tuples(st.none() | st.binary(max_size=80), st.integers(0, 2**40)), min_size=2))
def test_any_records_survive_a_split(rows: list[tuple[bytes | None, int]]):
    batch = batch_of(rows)
    batch.close(NONE)
    pieces = batch.split(2)
    for piece in pieces:
        piece.set_producer_state(-1, -1, -1, transactional=False)
    found = [(r.value, r.timestamp) for piece in pieces for r in read(piece)]
    assert found == rows


def test_split_pieces_replace_the_whole_in_queue_pool_and_flush():
    """RecordAccumulatorTest#testSplitAndReenqueue, RecordAccumulatorTest#testAwaitFlushComplete,
    SenderTest#testIdempotentSplitBatchAndSend: at the head, in order, tracked, waited for by the
    same flush.
    """
    manager = Sequences()
    world = World(manager)
    rows: list[tuple[bytes | None, int]] = [(b"x" * 50, BASE)] * 8
    data = encoded(rows)
    world.append(TP0, len(data), 8, data=memoryview(data), base_timestamp=BASE, last=True)
    world.fill(TP0, 300)
    flush = world.accumulator.begin_flush()
    (big,) = world.drain(1)
    limit = world.raw_limit("test")
    assert world.returns.split_and_reenqueue(big) == 2
    world.accumulator.deallocate(big)
    # Half of what was refused is the topic's limit from here on.
    assert world.raw_limit("test") == min(limit, big.size_in_bytes // 2 - HEADER)
    assert world.raw_limit("other") == limit
    drained = []
    while batches := world.drain(1):
        drained += batches
        assert world.accumulator.await_flush_completion(flush, world.now) is False
        world.complete(*batches)
    assert [(b.base_sequence, b.record_count) for b in drained] == [(0, 4), (4, 4), (8, 1)]
    assert world.accumulator.await_flush_completion(flush, world.now) is True
    assert manager.next[TP0] == 9
    assert world.memory_in_use == 0


def test_without_sequences_too_the_pieces_go_in_order():
    world = World()
    data = encoded([(b"%d" % n, BASE) for n in range(4)])
    world.append(TP0, len(data), 4, data=memoryview(data), base_timestamp=BASE, last=True)
    (big,) = world.drain(1)
    world.returns.split_and_reenqueue(big)
    pieces = world.drain(1) + world.drain(1)
    assert [r.value for piece in pieces for r in read(piece)] == [b"0", b"1", b"2", b"3"]


def test_pieces_never_sent_alone_count_as_sent():
    """RecordAccumulatorTest#testAbortUnsentBatches: their sequences are taken, and what the
    broker did with the whole is known to the sequences alone.
    """
    world = World(Sequences())
    data = encoded([(b"x", BASE)] * 4)
    world.append(TP0, len(data), 4, data=memoryview(data), base_timestamp=BASE, last=True)
    (big,) = world.drain(1)
    world.returns.split_and_reenqueue(big)
    world.accumulator.abort_undrained_batches(KafkaTimeoutError("lost"))
    assert world.listener.done == []


@pytest.mark.parametrize(
    ("one", "other", "before"),
    [(0, 1, True), (1, 0, False), (5, 5, False), (2**31 - 1, 0, True), (0, 2**31 - 1, False)],
)
def test_sequences_keep_their_order_over_the_wrap(one: int, other: int, *, before: bool):
    assert sequence_before(one, other) is before


def test_pieces_know_the_leader_that_the_whole_was_sent_to():
    """ProducerBatchTest#testWithLeaderChangesAcrossRetries: no second attempt without backoff for a
    leader that is known already.
    """
    batch = batch_of(ROWS)
    batch.close(NONE)
    batch.maybe_update_leader_epoch(100)
    for attempt in (1, 2):
        batch.drained(attempt)
        batch.reenqueued(attempt)
    batch.maybe_update_leader_epoch(101)
    assert batch.has_leader_changed_for_the_ongoing_retry
    batch.drained(3)
    for piece in batch.split(2):
        assert piece.has_leader_changed_for_the_ongoing_retry
        piece.drained(4)
        piece.reenqueued(4)
        piece.maybe_update_leader_epoch(101)
        assert not piece.has_leader_changed_for_the_ongoing_retry
