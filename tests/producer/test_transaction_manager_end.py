"""Commit and abort: what EndTxn waits for, and what is dropped."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode, KafkaError, TransactionAbortedError
from spark_kafka_sink.producer.transaction.transaction_states import State
from spark_kafka_sink.protocol.messages.end_txn import EndTxnRequest
from tests.fakes.sender_world import PRODUCER_ID, TP0, TP1, TP2
from tests.fakes.transaction_world import BACKOFF, BOTH, TransactionWorld


@BOTH
def test_a_transaction_without_partitions_ends_without_a_request(version: int) -> None:
    """TransactionManager#nextRequest."""
    with TransactionWorld(version, begun=True) as world:
        world.await_(world.manager.begin_commit())
        world.manager.begin_transaction()
        world.await_(world.manager.begin_abort())
        world.manager.begin_transaction()
        assert world.asked == []
        assert world.manager.producer_id_and_epoch == (PRODUCER_ID, 0)


@BOTH
def test_the_end_waits_for_every_batch_and_new_partitions(version: int) -> None:
    """TransactionManagerTest#testEndTxnNotSentIfIncompleteBatches,
    TransactionManagerTest#testFlushPendingPartitionsOnCommit,
    TransactionManagerTest#testCommitTransactionWithUnsentProduceRequest.
    """
    with TransactionWorld(version, written=True) as world:
        batch = world.send(TP1)
        commit = world.manager.begin_commit()
        if version == 1:
            world.add(TP1)
        world.round(5)
        assert world.asked[-1] == "produce"
        assert not batch.is_done
        world.acknowledge(TP1, offset=1)
        world.end()
        world.await_(commit)
        assert world.asked[-2:] == ["produce", "end"]


def test_an_abort_drops_what_was_never_sent() -> None:
    """SenderTest#testTransactionAbortedExceptionOnAbortWithoutError."""
    with TransactionWorld(written=True) as world:
        batches = [world.send(tp) for tp in (TP0, TP1, TP2)]
        abort = world.manager.begin_abort()
        world.end()
        world.await_(abort)
        for batch in batches:
            assert isinstance(batch.error, TransactionAbortedError)
            assert "Failing batch since transaction was aborted" in batch.error.message
        assert world.memory_in_use == 0
        assert world.asked == ["produce", "end"]


def test_an_abort_repeats_pending_partitions_and_retries_first() -> None:
    """TransactionManagerTest#testAbortResendsAddPartitionErrorIfRetried,
    TransactionManagerTest#testAbortResendsProduceRequestIfRetried.
    """
    with TransactionWorld(1, written=True) as world:
        retried = world.send(TP0)
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.round(2)
        world.send(TP1)
        world.add(TP1, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        world.round(2)
        world.client.requests.clear()
        abort = world.manager.begin_abort()
        world.round(2)
        assert world.asked == []
        world.round(1, ms=BACKOFF)
        world.add(TP1)
        world.acknowledge(offset=1)
        world.end()
        world.await_(abort)
        assert sorted(world.asked) == ["add", "end", "produce"]
        assert world.asked[-1] == "end"
        assert not world.client.sent(EndTxnRequest)[0].committed
        assert retried.error is None


def test_after_an_abortable_error_sent_batches_finish() -> None:
    """TransactionManagerTest#testRecoveryFromAbortableErrorTransactionStarted."""
    with TransactionWorld(1, written=True) as world:
        sent = world.send(TP0)
        world.round()
        dropped = world.send(TP2)
        world.manager.transition_to_abortable_error(KafkaError("too large a record"))
        world.round(2)
        assert not sent.is_done
        assert dropped.is_done
        assert dropped.error is world.manager.last_error
        world.acknowledge(offset=1)
        abort = world.manager.begin_abort()
        world.cut(EndTxnRequest)
        world.find()
        world.end()
        world.await_(abort)
        assert sent.error is None
        assert world.state is State.READY
        assert world.manager.last_error is None
        world.manager.begin_transaction()


def test_closing_fails_every_waiter_for_a_request() -> None:
    """KafkaProducerTest#testCloseIsForcedOnPendingFindCoordinator."""
    world = TransactionWorld()
    result = world.manager.initialize_transactions()
    world.round(2)
    world.sender.force_close()
    world.sender.run()
    with pytest.raises(KafkaError, match="closed"):
        result.await_(world.clock, NEVER)


@BOTH
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_transaction_is_ongoing_until_its_end_is_answered(version: int, *, committed: bool):
    """TransactionManagerTest#testHasOngoingTransactionSuccessfulCommit and SuccessfulAbort."""
    with TransactionWorld(version) as world:
        assert not world.manager.has_ongoing_transaction
        world.initialize()
        assert not world.manager.has_ongoing_transaction
        world.manager.begin_transaction()
        assert world.manager.has_ongoing_transaction
        world.write()
        end = world.manager.begin_commit() if committed else world.manager.begin_abort()
        assert world.manager.has_ongoing_transaction
        world.end()
        world.finish(end)
        assert not world.manager.has_ongoing_transaction


def test_only_an_abortable_error_leaves_a_transaction_ongoing():
    """TransactionManagerTest#testHasOngoingTransactionAbortableError and FatalError."""
    with TransactionWorld(written=True) as world:
        world.manager.transition_to_abortable_error(KafkaError("too large"))
        assert world.manager.has_ongoing_transaction
        world.abort()
        assert not world.manager.has_ongoing_transaction
        world.manager.begin_transaction()
        world.manager.transition_to_fatal_error(KafkaError("fenced"))
        assert not world.manager.has_ongoing_transaction
