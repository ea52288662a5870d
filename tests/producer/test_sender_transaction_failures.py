"""A batch that fails in a transaction: what becomes of the transaction and of the other batches.

What rule R2 puts in the place of Java's: behind a batch that failed for good nothing of its
partition is renumbered; it fails with its next answer, and the transaction can only be aborted.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import (
    ErrorCode,
    KafkaError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RecordTooLargeError,
)
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.transaction.transaction_states import State
from spark_kafka_sink.protocol.messages.end_txn import EndTxnRequest
from tests.fakes.sender_world import TP0, TP1, TP2, acknowledged
from tests.fakes.transaction_world import BACKOFF, BOTH, SHORT, TransactionWorld


@BOTH
def test_a_failed_batch_forbids_the_commit_and_allows_the_abort(version: int) -> None:
    """TransactionManagerTest#testDisallowCommitOnProduceFailure,
    TransactionManagerTest#testAllowAbortOnProduceFailure.
    """
    with TransactionWorld(version, written=True) as world:
        batch = world.send()
        world.refuse(ErrorCode.MESSAGE_TOO_LARGE)
        world.round(3)
        assert isinstance(batch.error, RecordTooLargeError)
        assert world.state is State.ABORTABLE_ERROR
        assert world.lifecycle.fatal is None
        for call in (
            world.manager.begin_commit,
            world.manager.prepare,
            lambda: world.manager.maybe_add_partition(TP0),
            world.manager.ensure_in_transaction,
        ):
            with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                call()
        world.abort()
        assert world.state is State.READY
        assert world.memory_in_use == 0
        assert not world.client.sent(EndTxnRequest)[0].committed


class StateAtTheEnd:
    """A batch listener: the transaction's state when a batch ends."""

    def __init__(self, world: TransactionWorld, seen: list[State]) -> None:
        self._world, self._seen = world, seen

    def batches_done(self, batches: Sequence[ProducerBatch]) -> None:
        self._seen += [self._world.state] * len(batches)


def test_the_transaction_fails_before_the_batch_is_reported() -> None:
    """A writer's flush ends with its last batch. It asks for prepare() at once: were the
    transaction still whole, it would be committed without that batch.
    """
    with TransactionWorld(2, written=True, **SHORT) as world:
        seen: list[State] = []
        world.filler._listener = StateAtTheEnd(world, seen)
        world.client.unready = {1: NEVER}
        world.send()
        world.round(2, ms=600)
        assert seen == [State.ABORTABLE_ERROR]
        world.end()
        world.client.unready = {}
        world.await_(world.manager.begin_abort())


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, State.ABORTABLE_ERROR),
        (ErrorCode.INVALID_TXN_STATE, State.ABORTABLE_ERROR),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, State.ABORTABLE_ERROR),
        (ErrorCode.UNKNOWN_PRODUCER_ID, State.ABORTABLE_ERROR),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, State.FATAL_ERROR),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, State.FATAL_ERROR),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, State.FATAL_ERROR),
        (ErrorCode.PRODUCER_FENCED, State.FATAL_ERROR),
        (ErrorCode.UNSUPPORTED_VERSION, State.FATAL_ERROR),
    ],
)
def test_answers_end_the_transaction_or_the_producer_by_a_table(
    code: ErrorCode, state: State
) -> None:
    """SenderTest#testTransactionalUnknownProducerHandlingWhenRetentionLimitReached,
    TransactionManagerTest#testInvalidProducerEpochFromProduce,
    SenderTest#testClusterAuthorizationExceptionInProduceRequest.
    """
    with TransactionWorld(written=True) as world:
        batch = world.send()
        world.refuse(code)
        world.round(2)
        assert batch.error is not None
        assert world.state is state
        assert (world.lifecycle.fatal is not None) is (state is State.FATAL_ERROR)


def test_behind_a_hole_nothing_is_renumbered_and_nothing_follows() -> None:
    """SenderTest#testIdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOfFutureBatchesIsAdjusted,
    SenderTest#testBumpEpochWhenOutOfOrderSequenceReceived: in their place.
    """
    with TransactionWorld(written=True) as world:
        batches = [world.send() for _ in range(3)]
        world.round(3)
        world.refuse(ErrorCode.INVALID_RECORD)
        world.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        world.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        world.round(2, ms=BACKOFF)
        assert [batch.error is not None for batch in batches] == [True] * 3
        assert isinstance(batches[1].error, OutOfOrderSequenceError)
        assert world.sequences == [0, 1, 2, 3]
        never_sent = world.append()
        world.round()
        assert world.client.poll_timeouts[-1] == 0, "a close may wait for just this batch"
        world.round(2, ms=BACKOFF)
        assert never_sent.error is world.manager.last_error
        world.abort()
        world.manager.begin_transaction()
        world.write(offset=9)
        assert [(b.epoch, b.sequence) for b in world.produced][-1] == (1, 0)


def test_behind_a_hole_an_acknowledgement_is_an_acknowledgement() -> None:
    """The failed batch was in the log all the same; the transaction is aborted as a whole."""
    with TransactionWorld(written=True) as world:
        first, second = world.send(), world.send()
        world.round(2)
        world.refuse(ErrorCode.INVALID_RECORD)
        world.acknowledge(offset=2)
        world.round(2)
        assert first.error is not None
        assert second.error is None
        assert world.state is State.ABORTABLE_ERROR


def test_what_is_in_doubt_fails_with_the_transaction() -> None:
    """Nothing can prove it any more, and the abort must not wait for a proof."""
    with TransactionWorld(written=True) as world:
        doubted, refused = world.send(), world.send()
        world.round(2)
        world.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        world.round(1)
        assert not doubted.is_done
        world.refuse(ErrorCode.INVALID_RECORD)
        world.round(1)
        assert doubted.error is refused.error
        assert world.memory_in_use == 0
        world.abort()


def test_other_partitions_go_on_when_one_has_failed() -> None:
    with TransactionWorld(begun=True) as world:
        world.write(TP0)
        world.write(TP2)
        bad, good = world.send(TP0), world.send(TP2)
        world.round()
        world.refuse(ErrorCode.INVALID_RECORD, TP0)
        world.acknowledge(TP2, 1)
        world.round(2)
        assert bad.error is not None
        assert good.error is None


def test_a_split_in_a_transaction_keeps_it_alive() -> None:
    """SenderTest#testTransactionalSplitBatchAndSend."""
    with TransactionWorld(written=True) as world:
        world.send(records=4)
        world.refuse(ErrorCode.MESSAGE_TOO_LARGE)
        world.round(2)
        world.acknowledge(offset=1)
        world.round(2)
        world.acknowledge(offset=3)
        world.round(2)
        assert world.sequences == [0, 1, 1, 3]
        world.commit()


def test_concurrent_transactions_of_a_produce_are_waited_out() -> None:
    """Version 2: the leader adds the partition while the transaction before is being ended."""
    with TransactionWorld(2, begun=True) as world:
        batch = world.send()
        world.refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
        world.round(2)
        world.acknowledge()
        world.round(2, ms=BACKOFF)
        assert batch.error is None
        assert world.asked == ["produce", "produce"]


def test_after_a_fatal_error_nothing_is_sent() -> None:
    """SenderTest#testCancelInFlightRequestAfterFatalError."""
    world = TransactionWorld(written=True)
    in_flight, queued = world.send(TP0), world.send(TP2)
    world.client.unready = {2: NEVER}
    world.round(1)
    commit = world.manager.begin_commit()
    world.refuse(ErrorCode.PRODUCER_FENCED)
    sent = len(world.client.requests)
    world.sender.run()
    for batch in (in_flight, queued):
        assert isinstance(batch.error, ProducerFencedError)
    world.check_failed(commit, ProducerFencedError)
    assert len(world.client.requests) == sent
    assert world.client.closed
    assert world.memory_in_use == 0


@BOTH
def test_a_transaction_after_an_abort_begins_at_sequence_0(version: int) -> None:
    """SenderTest#testAbortTransactionAndReuseSequenceNumberOnError: its epoch is another, so no
    number of the aborted one is in the way. Of a second partition, too.
    """
    with TransactionWorld(version, written=True) as world:
        world.write(TP1)
        world.send()
        world.refuse(ErrorCode.MESSAGE_TOO_LARGE)
        world.round(3)
        world.abort()
        before = len(world.produced)
        if version == 1:
            world.init()
        world.manager.begin_transaction()
        world.round(2)
        world.write()
        world.write(TP1)
        again = world.produced[before:]
        assert [(sent.tp, sent.sequence) for sent in again] == [(TP0, 0), (TP1, 0)]
        assert {sent.epoch for sent in again} == {world.epoch}
        assert world.produced[0].epoch < world.epoch


def test_a_concurrent_transaction_is_tried_again_after_20_ms() -> None:
    """The broker had asked the coordinator for 100 ms before it returned the code."""
    with TransactionWorld(written=True) as world:
        batch, waits = world.send(), []
        for tries in range(2, 5):
            world.refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
            world.round(2)
            begun = world.clock.now_ms()
            while len(world.produced) == tries:
                world.round(1, ms=1)
            waits.append(world.clock.now_ms() - begun)
        assert waits == [20, 40, 80]
        world.acknowledge(offset=1)
        world.round(1)
        assert acknowledged(batch)
