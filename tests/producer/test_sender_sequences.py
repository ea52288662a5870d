"""The sender of an idempotent producer: its producer id, and answers in and out of sequence."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import (
    ApiError,
    AuthenticationError,
    AuthorizationError,
    ErrorCode,
    OutOfOrderSequenceError,
    TransactionAbortableError,
    UnsupportedVersionError,
)
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.fakes.sender_world import BACKOFF, SenderWorld, acknowledged, error_of


def test_nothing_leaves_before_the_producer_id_is_there() -> None:
    """SenderTest#testInitProducerIdRequest,
    SenderTest#testSenderShouldRetryWithBackoffOnRetriableError.
    """
    with SenderWorld(with_id=False) as world:
        batch = world.append()
        world.prepare_id(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        world.round(2)
        world.client.prepare(InitProducerIdRequest, disconnected=True)
        world.round(2, ms=BACKOFF)
        assert world.client.produced == []
        assert not batch.is_done
        world.prepare_id()
        world.round(1, ms=BACKOFF)
        world.acknowledge()
        world.round(2)
        assert acknowledged(batch)
        assert len(world.client.sent(InitProducerIdRequest)) == 3


def test_the_producer_id_is_asked_of_any_node() -> None:
    with SenderWorld(with_id=False) as world:
        world.client.unready = {1: NEVER}
        world.prepare_id()
        world.round(1)
        assert world.client.requests[0].destination == 2
        assert world.manager is not None
        assert world.manager.has_producer_id


def test_no_node_for_the_producer_id_means_waiting_not_spinning() -> None:
    with SenderWorld(with_id=False) as world:
        world.client.unready = {1: NEVER, 2: NEVER}
        world.round(1)
        assert world.client.poll_timeouts[-1] == world.config.retry_backoff_ms


@pytest.mark.parametrize(
    ("prepared", "kind"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortableError),
        (UnsupportedVersionError("no common version"), UnsupportedVersionError),
        (AuthenticationError("wrong password"), AuthenticationError),
    ],
)
def test_an_identity_that_is_refused_for_good_fails_the_producer(
    prepared: ErrorCode | ApiError, kind: type[ApiError]
) -> None:
    with SenderWorld(with_id=False) as world:
        batch = world.append()
        if isinstance(prepared, ErrorCode):
            world.prepare_id(prepared)
        else:
            world.client.prepare(InitProducerIdRequest, error=prepared)
        world.sender.run()
        assert isinstance(world.lifecycle.fatal, kind)
        assert isinstance(error_of(batch), kind)


# ---- sequences -----------------------------------------------------------------------------------


def test_a_partitions_first_batch_goes_alone_until_acknowledged() -> None:
    with SenderWorld() as world:
        batches = [world.append() for _ in range(3)]
        world.round(3)
        assert world.sequences == [0]
        assert world.client.poll_timeouts[-1] > 1_000, "it spins while it waits"
        for offset in range(3):
            world.acknowledge(offset=offset)
        world.round(4)
        assert all(acknowledged(batch) for batch in batches)
        assert world.sequences == [0, 1, 2]


def test_a_new_topics_first_batch_is_resent_alone() -> None:
    """The NOT_LEADER of a topic that is milliseconds old, where kafka-clients 3.9 loops on 45."""
    with SenderWorld() as world:
        batches = [world.append(records=2) for _ in range(3)]
        for _ in range(4):
            world.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            world.round(1, ms=BACKOFF)
        assert world.sequences == [0] * 4
        for offset in (0, 2, 4):
            world.acknowledge(offset=offset)
        world.round(5, ms=BACKOFF)
        assert all(acknowledged(batch) for batch in batches)
        assert world.sequences == [0] * 5 + [2, 4]


def test_a_partition_idle_for_a_minute_sends_one_batch_alone() -> None:
    with SenderWorld(established=True) as world:
        world.clock.advance(61_000)
        world.append()
        world.append()
        world.round(3)
        assert world.sequences == [1]
        world.acknowledge(offset=1)
        world.acknowledge(offset=2)
        world.round(3)


def test_five_are_in_flight_and_a_sixth_waits() -> None:
    """SenderTest#testIdempotenceWithMultipleInflights."""
    with SenderWorld(established=True) as world:
        batches = [world.append() for _ in range(6)]
        world.round(7)
        assert world.sequences == [1, 2, 3, 4, 5]
        for offset in range(1, 7):
            world.acknowledge(offset=offset)
        world.round(3)
        assert all(acknowledged(batch) for batch in batches)
        assert world.sequences == [1, 2, 3, 4, 5, 6]


def test_batches_after_a_refused_one_are_resent_before_new_ones() -> None:
    """SenderTest#testIdempotenceWithMultipleInflightsRetriedInOrder."""
    with SenderWorld(established=True) as world:
        batches = [world.append() for _ in range(3)]
        world.round(3)
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        world.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        world.round(1)
        batches.append(world.append())
        for sequence in (1, 2, 3):
            world.round(3, ms=BACKOFF)
            assert world.sequences[-1] == sequence
            world.acknowledge(offset=sequence)
            world.round(1)
        world.acknowledge(offset=4)
        world.round(2)
        assert all(acknowledged(batch) for batch in batches)
        assert world.sequences == [1, 2, 3, 1, 2, 3, 4]


def test_a_later_ack_settles_an_earlier_batch_awaiting_its_retry() -> None:
    """SenderTest#testCorrectHandlingOfOutOfOrderResponsesWhenSecondSucceeds."""
    with SenderWorld(established=True) as world:
        first, second = world.append(records=5), world.append()
        world.round(2)
        world.refuse(ErrorCode.REQUEST_TIMED_OUT)
        world.acknowledge(offset=6)
        world.round(5, ms=BACKOFF)
        assert acknowledged(first)
        assert first.base_offset == -1
        assert acknowledged(second)
        assert world.sequences == [1, 6]
        assert world.memory_in_use == 0
        assert world.recorder.report().duplicates == 1
        assert world.manager is not None
        assert world.manager.reusable


def resend_a_proven_batch(world: SenderWorld) -> tuple[ProducerBatch, ProducerBatch]:
    """The first of two batches is on the wire again when the second's acknowledgement proves it."""
    world.establish()
    first, second = world.append(), world.append()
    world.round(1)
    world.refuse(ErrorCode.REQUEST_TIMED_OUT)
    world.round(1)
    world.round(1, ms=BACKOFF)
    # The client hands prepared answers out in the order of sending: the second is the elder now.
    assert world.sequences == [1, 2, 1]
    world.acknowledge(offset=2)
    world.lose(after_ms=50)
    world.round(1)
    assert acknowledged(first)
    assert acknowledged(second)
    assert world.memory_in_use > 0
    return first, second


def test_memory_of_a_proven_batch_is_held_until_its_answer() -> None:
    """SenderTest#testNoDoubleDeallocation: its bytes may still be in the socket's hands."""
    with SenderWorld() as world:
        resend_a_proven_batch(world)
        world.round(1, ms=50)
        assert world.memory_in_use == 0
        assert world.recorder.report().rows == 3


def test_a_forced_close_with_a_proven_batch_in_flight_is_clean() -> None:
    """The network thread died of it: "the batch was already acknowledged"."""
    with SenderWorld() as world:
        first, second = resend_a_proven_batch(world)
        queued = world.append()
        world.sender.force_close()
        world.sender.run()
        assert acknowledged(first)
        assert acknowledged(second)
        assert "closed before" in str(queued.error)
        assert world.client.closed
        assert world.memory_in_use == 0


def test_duplicate_sequence_number_is_success_without_offset() -> None:
    """SenderTest#testCorrectHandlingOfDuplicateSequenceError."""
    with SenderWorld() as world:
        batch = world.append()
        world.refuse(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        world.round(2)
        assert acknowledged(batch)
        assert batch.base_offset == -1
        assert world.recorder.report().duplicates == 1


def test_out_of_order_before_any_ack_fails_the_attempt() -> None:
    with SenderWorld() as world:
        batch = world.append()
        world.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        world.sender.run()
        error = error_of(batch)
        assert isinstance(error, OutOfOrderSequenceError)
        assert "no batch of this producer was acknowledged" in error.message
        assert world.lifecycle.fatal is error


def test_out_of_order_on_the_first_is_settled_by_those_after_it() -> None:
    """Hazard H3: the answers that a real broker gave to four resent batches after a restart."""
    with SenderWorld(established=True) as world:
        batches = [world.append(records=10) for _ in range(4)]
        world.round(4)
        for _ in batches:
            world.lose()
        world.round(1)
        late = world.append()
        for code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,) * 2:
            world.refuse(code)
            world.round(2, ms=BACKOFF)
        assert not any(batch.is_done for batch in batches)
        world.acknowledge(offset=21)
        world.round(2, ms=BACKOFF)
        assert [acknowledged(batch) for batch in batches] == [True, True, True, False]
        world.acknowledge(offset=31)
        world.acknowledge(offset=41)
        world.round(3, ms=BACKOFF)
        assert all(acknowledged(batch) for batch in (*batches, late))
        assert world.memory_in_use == 0


def test_the_attempt_fails_when_none_after_it_is_accepted() -> None:
    with SenderWorld(established=True) as world:
        first, second = world.append(), world.append()
        world.round(2)
        for _ in range(3):
            world.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        while world.lifecycle.fatal is None:
            world.round(1, ms=BACKOFF)
        world.sender.run()
        assert isinstance(error_of(first), OutOfOrderSequenceError)
        assert "no later batch was accepted" in error_of(second).message


def test_unknown_producer_id_fails_the_attempt() -> None:
    """SenderTest#testIdempotentUnknownProducerHandlingWhenRetentionLimitReached, with rule R2."""
    with SenderWorld(established=True) as world:
        batch = world.append()
        world.refuse(ErrorCode.UNKNOWN_PRODUCER_ID)
        world.round(2)
        assert isinstance(error_of(batch), OutOfOrderSequenceError)
        assert world.lifecycle.fatal is not None
