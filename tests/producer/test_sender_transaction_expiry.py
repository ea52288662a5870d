"""Batches of a transaction that expire or are lost: what may still come, and the abort then."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import (
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    TransactionAbortableError,
)
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.transaction.transaction_states import State
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from spark_kafka_sink.protocol.messages.end_txn import EndTxnRequest
from spark_kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.fakes.kafka_messages import init_request
from tests.fakes.sender_world import PRODUCER_ID
from tests.fakes.transaction_world import BACKOFF, BOTH, SHORT, TransactionWorld, is_completed


def expire_in_flight(world: TransactionWorld) -> ProducerBatch:
    """A transaction's second batch, which is on the wire when delivery.timeout.ms is over."""
    world.begin_and_write()
    batch = world.send()
    world.round(1)
    world.round(1, ms=1_001)
    assert isinstance(batch.error, KafkaTimeoutError)
    return batch


@BOTH
def test_an_expired_unsent_batch_makes_the_transaction_abortable(version: int) -> None:
    """SenderTest#testExpiryOfUnsentBatchesShouldNotCauseUnresolvedSequences,
    TransactionManagerTest#testTransitionToAbortableErrorOnBatchExpiry,
    TransactionManagerTest#testDropCommitOnBatchExpiry: no sequence was used, nothing is unresolved.
    """
    with TransactionWorld(version, written=True, **SHORT) as world:
        world.client.unready = {1: NEVER}
        batch = world.send()
        commit = world.manager.begin_commit()
        world.round(2, ms=600)
        assert isinstance(batch.error, KafkaTimeoutError)
        with pytest.raises(TransactionAbortableError, match="after exhausting retries"):
            world.await_(commit)
        assert not world.manager._sequences.has_unresolved
        world.client.unready = {}
        world.abort()
        assert world.state is State.READY


@BOTH
@pytest.mark.parametrize("lost", [False, True], ids=["in flight", "lost"])
def test_a_send_that_fails_behind_a_sent_commit_does_not_undo_it(version: int, lost: bool) -> None:
    """Another thread's send was waiting, and its record is not in the transaction. An abort could
    not be distinguished from the commit: the first may be in effect.
    """
    with TransactionWorld(version, written=True) as world:
        commit = world.manager.begin_commit()
        if lost:
            world.cut(EndTxnRequest)
        world.round(2 if lost else 1)
        assert world.client.sent(EndTxnRequest), "the commit was not sent"
        world.manager.transition_to_abortable_error(KafkaError("another thread's record"))
        assert world.state is State.COMMITTING_TRANSACTION
        if lost:
            world.find()
        world.end()
        world.round(3, ms=BACKOFF)
        world.await_(commit)
        assert {end.committed for end in world.client.sent(EndTxnRequest)} == {True}
        assert world.state is State.READY


@BOTH
def test_close_does_not_commit_a_transaction_that_lost_a_batch(version: int) -> None:
    """The commit waits in the queue for its batches, one expires, and before the sender fails the
    commit for it, the producer is closed: the abort clears the error that would have stopped it.
    Seed 4834 of the simulation: 25 of 26 rows were committed.
    """
    with TransactionWorld(version, written=True, **SHORT) as world:
        world.client.unready = {1: NEVER}
        batch = world.send()
        commit = world.manager.begin_commit()
        while batch.error is None:
            world.round(1, ms=600)
        assert not is_completed(commit)
        world.manager.abort_on_close()
        world.client.unready = {}
        world.end()
        world.round(3, ms=BACKOFF)
        assert [end.committed for end in world.client.sent(EndTxnRequest)] == [False]
        with pytest.raises(TransactionAbortableError, match="after exhausting retries"):
            commit.await_(world.clock, NEVER)
        assert world.state is State.READY


def test_a_batch_that_was_never_sent_is_no_lost_one() -> None:
    """TransactionManagerTest#testTransitionToAbortableErrorOnBatchExpiry: whatever the coordinator
    can do.
    """
    with TransactionWorld(1, init=2, written=True, **SHORT) as world:
        world.client.unready = {1: NEVER}
        batch = world.send()
        world.round(2, ms=600)
        assert batch.error is not None
        assert world.state is State.ABORTABLE_ERROR


def test_an_expired_batch_in_flight_delays_the_end() -> None:
    """SenderTest#testExpiryOfAllSentBatchesShouldCauseUnresolvedSequences,
    SenderTest#testInflightBatchesExpireOnDeliveryTimeout: it blocks new batches, and the abort
    waits for what is on the wire.
    """
    with TransactionWorld(2, **SHORT) as world:
        batch = expire_in_flight(world)
        assert isinstance(batch.error, KafkaTimeoutError)
        assert world.manager._sequences.has_unresolved
        assert world.memory_in_use > 0
        abort = world.manager.begin_abort()
        world.round(5, ms=BACKOFF)
        assert world.asked[-1] == "produce", "the end went while a batch was on the wire"
        world.lose()
        world.end()
        world.await_(abort)
        assert world.memory_in_use == 0
        assert world.manager.producer_id_and_epoch == (PRODUCER_ID, 1)


def test_a_batch_with_exhausted_retries_may_still_arrive() -> None:
    """So the abort fences, as it does for one that expired."""
    with TransactionWorld(1, retries=1, written=True) as world:
        batch = world.send()
        for _ in range(2):
            world.lose()
            world.round(2, ms=200)
        assert batch.error is not None
        assert "no retries are left" in str(batch.error)
        assert world.manager._sequences.has_unresolved
        world.client.requests.clear()
        abort = world.manager.begin_abort()
        world.init()
        world.await_(abort)
        assert world.asked == ["init"]


def test_version_1_fences_itself_when_a_batch_may_still_come() -> None:
    """EndTxn(abort) of version 1 leaves the epoch as it is: a late batch would open a transaction
    that is never ended.
    """
    with TransactionWorld(1, **SHORT) as world:
        expire_in_flight(world)
        world.lose()
        world.round(2)
        world.client.requests.clear()
        abort = world.manager.begin_abort()
        world.init(ErrorCode.CONCURRENT_TRANSACTIONS)
        world.round(2)
        assert not is_completed(abort)
        world.epoch += 1  # the one that the coordinator fenced with
        world.init()
        world.await_(abort)
        assert world.asked == ["init", "init"]
        unknown = init_request("orders", 60_000, -1, -1)
        assert world.client.sent(InitProducerIdRequest) == [unknown] * 2
        assert world.state is State.READY
        world.manager.begin_transaction()
        assert world.manager.producer_id_and_epoch == (PRODUCER_ID, 2)
        world.write(offset=9)
        assert (world.produced[-1].epoch, world.produced[-1].sequence) == (2, 0)


def test_a_late_ack_resolves_an_expired_batch() -> None:
    """SenderTest#testUnresolvedSequencesAreNotFatal."""
    with TransactionWorld(1, **SHORT) as world:
        expire_in_flight(world)
        assert world.manager._sequences.has_unresolved
        world.acknowledge(offset=1)
        world.round(1)
        assert not world.manager._sequences.has_unresolved
        world.abort()
        assert world.asked[-1] == "end"


def test_a_later_acknowledgement_resolves_an_expired_batch_too() -> None:
    """SenderTest#testExpiryOfFirstBatchShouldNotCauseUnresolvedSequencesIfFutureBatchesSucceed."""
    with TransactionWorld(1, written=True, **SHORT) as world:
        world.send()
        world.round(1)
        world.clock.advance(700)
        later = world.send()
        world.round(1)
        world.round(1, ms=301)
        assert world.manager._sequences.has_unresolved
        world.lose()
        world.acknowledge(offset=2)
        world.round(2)
        assert later.error is None
        assert not world.manager._sequences.has_unresolved


def test_a_late_refusal_settles_a_batch_sent_once_only() -> None:
    """SenderTest#testReceiveFailedBatchTwiceWithTransactions: an attempt before it may still be on
    its way.
    """
    for retried in (False, True):
        with TransactionWorld(1, written=True, **SHORT) as world:
            world.send()
            world.round(1)
            if retried:
                world.lose()
                world.round(1)
                world.round(1, ms=BACKOFF)
                assert world.asked[-2:] == ["produce", "produce"]
            world.round(1, ms=1_001)
            assert world.manager._sequences.has_unresolved
            world.refuse(ErrorCode.INVALID_RECORD)
            world.round(1)
            assert world.manager._sequences.has_unresolved is retried


def test_version_1_fences_itself_after_unanswered_partitions() -> None:
    """The coordinator may have opened the transaction; EndTxn would be refused if it has not."""
    with TransactionWorld(1, begun=True) as world:
        world.send()
        world.cut(AddPartitionsToTxnRequest)
        world.round(2)
        world.manager.transition_to_abortable_error(KafkaError("another row was too large"))
        world.find()
        world.round(3, ms=BACKOFF)
        abort = world.manager.begin_abort()
        world.init()
        world.await_(abort)
        assert world.asked == ["add", "find", "init"]
        assert world.manager.producer_id_and_epoch == (PRODUCER_ID, 1)


@pytest.mark.parametrize(("version", "init", "fatal"), [(1, 2, True), (1, 3, False), (2, 2, False)])
def test_a_lost_batch_is_fatal_where_no_epoch_can_be_raised(
    version: int, init: int, fatal: bool
) -> None:
    """TransactionManagerTest#testTransitionToFatalErrorWhenRetriedBatchIsExpired."""
    with TransactionWorld(version, init=init, **SHORT) as world:
        batch = expire_in_flight(world)
        assert isinstance(batch.error, KafkaTimeoutError)
        assert (world.state is State.FATAL_ERROR) is fatal
        if fatal:
            with pytest.raises(KafkaError, match="it is not safe to continue"):
                world.manager.begin_abort()


def test_a_fence_that_is_refused_is_fatal() -> None:
    """What aborts can't be aborted."""
    with TransactionWorld(1, **SHORT) as world:
        expire_in_flight(world)
        world.lose()
        world.round(1)
        abort = world.manager.begin_abort()
        world.init(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        world.finish(abort)
        assert world.state is State.FATAL_ERROR


def test_a_batch_appended_outside_a_transaction_fails_alone() -> None:
    with TransactionWorld(2, **SHORT) as world:
        world.initialize()
        batch = world.append()
        world.round(3)
        assert world.asked == []
        world.round(1, ms=1_001)
        assert isinstance(batch.error, KafkaTimeoutError)
        assert world.state is State.READY
        world.manager.begin_transaction()
        world.write()
