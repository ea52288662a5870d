"""The sender of a transactional producer: what a batch's end does to its transaction, and closing.

What Kafka's SenderTest checks, as far as a transaction is in it. What rule R2 puts in the place of
Java's: behind a batch that failed for good nothing of its partition
is renumbered; it fails with its next answer, and the transaction can only be aborted.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.errors import (
    ErrorCode,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from spark_kafka_sink.producer.transaction.transaction_manager import State
from spark_kafka_sink.protocol.control_messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from spark_kafka_sink.protocol.produce import ProduceRequest
from tests.fakes.sender_world import PRODUCER_ID, TP0, TP1, TP2
from tests.fakes.transaction_world import BACKOFF, TransactionWorld

SHORT = {"delivery_timeout_ms": 1_000, "request_timeout_ms": 600, "linger_ms": 0}
BOTH = pytest.mark.parametrize("version", [1, 2])


# ---- a batch that fails --------------------------------------------------------------------------


@BOTH
def test_a_failed_batch_forbids_the_commit_and_allows_the_abort(version: int) -> None:
    """TransactionManagerTest#testDisallowCommitOnProduceFailure."""
    with TransactionWorld(version) as world:
        world.begin()
        world.write()
        batch = world.send()
        world.refuse(ErrorCode.MESSAGE_TOO_LARGE)
        world.round(3)
        assert isinstance(batch.error, RecordTooLargeError)
        assert world.state is State.ABORTABLE_ERROR
        assert world.sender.fatal_error is None
        for call in (
            world.manager.begin_commit,
            world.manager.prepare,
            lambda: world.manager.maybe_add_partition(TP0),
            world.manager.ensure_in_transaction,
        ):
            with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                call()
        world.end()
        world.await_(world.manager.begin_abort())
        assert world.state is State.READY
        assert world.memory_in_use == 0
        assert not world.client.sent(EndTxnRequest)[0].committed


def test_the_transaction_has_failed_before_anybody_hears_of_the_batch() -> None:
    """A writer's flush ends with its last batch. It asks for prepare() at once: were the
    transaction still whole, it would be committed without that batch.
    """
    with TransactionWorld(2, **SHORT) as world:
        world.begin()
        world.write()
        seen: list[State] = []
        world.recorder._on_failure = lambda batch: seen.append(world.state)
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
def test_which_answers_end_the_transaction_and_which_the_producer(
    code: ErrorCode, state: State
) -> None:
    """SenderTest#testIdempotentUnknownProducerHandlingWhenRetentionLimitReached,
    TransactionManagerTest#testInvalidProducerEpochFromProduce: the second half of the first.
    """
    with TransactionWorld() as world:
        world.begin()
        world.write()
        batch = world.send()
        world.refuse(code)
        world.round(2)
        assert batch.error is not None
        assert world.state is state
        assert (world.sender.fatal_error is not None) is (state is State.FATAL_ERROR)


def test_behind_a_hole_nothing_is_renumbered_and_nothing_follows() -> None:
    """SenderTest#testIdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOfFutureBatchesIsAdjusted,
    SenderTest#testBumpEpochWhenOutOfOrderSequenceReceived: in their place.
    """
    with TransactionWorld() as world:
        world.begin()
        world.write()
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
        world.round(2, ms=BACKOFF)
        assert never_sent.error is world.manager.last_error
        world.end()
        world.await_(world.manager.begin_abort())
        world.manager.begin_transaction()
        world.write(offset=9)
        assert [(b.epoch, b.sequence) for b in world.produced][-1] == (1, 0)


def test_behind_a_hole_an_acknowledgement_is_an_acknowledgement() -> None:
    """The failed batch was in the log all the same; the transaction is aborted as a whole."""
    with TransactionWorld() as world:
        world.begin()
        world.write()
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
    with TransactionWorld() as world:
        world.begin()
        world.write()
        doubted, refused = world.send(), world.send()
        world.round(2)
        world.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        world.round(1)
        assert not doubted.is_done
        world.refuse(ErrorCode.INVALID_RECORD)
        world.round(1)
        assert doubted.error is refused.error
        assert world.memory_in_use == 0
        world.end()
        world.await_(world.manager.begin_abort())


def test_other_partitions_go_on_when_one_has_failed() -> None:
    with TransactionWorld() as world:
        world.begin()
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
    """SenderTest#testIdempotentSplitBatchAndSend, in a transaction."""
    with TransactionWorld() as world:
        world.begin()
        world.write()
        world.send(records=4)
        world.refuse(ErrorCode.MESSAGE_TOO_LARGE)
        world.round(2)
        world.acknowledge(offset=1)
        world.round(2)
        world.acknowledge(offset=3)
        world.round(2)
        assert world.sequences == [0, 1, 1, 3]
        world.end()
        world.await_(world.manager.begin_commit())


# ---- batches that expire -------------------------------------------------------------------------


@BOTH
def test_an_expired_batch_that_was_never_sent_makes_the_transaction_abortable(version: int) -> None:
    """SenderTest#testExpiryOfUnsentBatchesShouldNotCauseUnresolvedSequences,
    TransactionManagerTest#testTransitionToAbortableErrorOnBatchExpiry: no sequence was used,
    nothing is unresolved.
    """
    with TransactionWorld(version, **SHORT) as world:
        world.begin()
        world.write()
        world.client.unready = {1: NEVER}
        batch = world.send()
        commit = world.manager.begin_commit()
        world.round(2, ms=600)
        assert isinstance(batch.error, KafkaTimeoutError)
        with pytest.raises(TransactionAbortableError, match="after exhausting retries"):
            world.await_(commit)
        assert not world.manager.has_unresolved_batches
        world.client.unready = {}
        world.end()
        world.await_(world.manager.begin_abort())
        assert world.state is State.READY


def test_an_expired_batch_in_flight_holds_the_end_until_its_request_is_over() -> None:
    """SenderTest#testExpiryOfUnsentBatchesShouldNotCauseUnresolvedSequences,
    SenderTest#testUnresolvedSequencesAreNotFatal,
    SenderTest#testInflightBatchesExpireOnDeliveryTimeout: it blocks new batches, and the abort
    waits for what is on the wire.
    """
    with TransactionWorld(2, **SHORT) as world:
        world.begin()
        world.write()
        batch = world.send()
        world.round(1)
        world.round(1, ms=1_001)
        assert isinstance(batch.error, KafkaTimeoutError)
        assert world.manager.has_unresolved_batches
        assert world.memory_in_use > 0
        abort = world.manager.begin_abort()
        world.round(5, ms=BACKOFF)
        assert world.asked[-1] == "produce", "the end went while a batch was on the wire"
        world.lose()
        world.end()
        world.await_(abort)
        assert world.memory_in_use == 0
        assert world.manager.producer_id_and_epoch == (PRODUCER_ID, 1)


def test_a_batch_whose_retries_are_used_up_without_an_answer_may_still_come() -> None:
    """So the abort fences, as it does for one that expired."""
    with TransactionWorld(1, retries=1) as world:
        world.begin()
        world.write()
        batch = world.send()
        for _ in range(2):
            world.lose()
            world.round(2, ms=200)
        assert batch.error is not None
        assert "no retries are left" in str(batch.error)
        assert world.manager.has_unresolved_batches
        world.client.requests.clear()
        abort = world.manager.begin_abort()
        world.init()
        world.await_(abort)
        assert world.asked == ["init"]


def test_version_1_fences_itself_when_a_batch_may_still_come() -> None:
    """EndTxn(abort) of version 1 leaves the epoch as it is: a late batch would open a transaction
    that nobody ends.
    """
    with TransactionWorld(1, **SHORT) as world:
        world.begin()
        world.write()
        world.send()
        world.round(1)
        world.round(1, ms=1_001)
        world.lose()
        world.round(2)
        world.client.requests.clear()
        abort = world.manager.begin_abort()
        world.init(ErrorCode.CONCURRENT_TRANSACTIONS)
        world.round(2)
        assert not abort.is_completed
        world.epoch += 1  # the one that the coordinator fenced with
        world.init()
        world.await_(abort)
        assert world.asked == ["init", "init"]
        unknown = InitProducerIdRequest("orders", 60_000, -1, -1)
        assert world.client.sent(InitProducerIdRequest) == [unknown] * 2
        assert world.state is State.READY
        world.manager.begin_transaction()
        assert world.manager.producer_id_and_epoch == (PRODUCER_ID, 2)
        world.write(offset=9)
        assert (world.produced[-1].epoch, world.produced[-1].sequence) == (2, 0)


def test_a_late_acknowledgement_resolves_an_expired_batch_so_that_the_end_suffices() -> None:
    """SenderTest#testUnresolvedSequencesAreNotFatal."""
    with TransactionWorld(1, **SHORT) as world:
        world.begin()
        world.write()
        world.send()
        world.round(1)
        world.round(1, ms=1_001)
        assert world.manager.has_unresolved_batches
        world.acknowledge(offset=1)
        world.round(1)
        assert not world.manager.has_unresolved_batches
        world.end()
        world.await_(world.manager.begin_abort())
        assert world.asked[-1] == "end"


def test_a_later_acknowledgement_resolves_an_expired_batch_too() -> None:
    """SenderTest#testUnresolvedSequencesAreNotFatal: unresolved clears when a later batch
    succeeds.
    """
    with TransactionWorld(1, **SHORT) as world:
        world.begin()
        world.write()
        world.send()
        world.round(1)
        world.clock.advance(700)
        later = world.send()
        world.round(1)
        world.round(1, ms=301)
        assert world.manager.has_unresolved_batches
        world.lose()
        world.acknowledge(offset=2)
        world.round(2)
        assert later.error is None
        assert not world.manager.has_unresolved_batches


def test_version_1_fences_itself_when_partitions_were_asked_for_without_an_answer() -> None:
    """The coordinator may have opened the transaction; EndTxn would be refused if it has not."""
    with TransactionWorld(1) as world:
        world.begin()
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
    """TransactionManagerTest#testTransitionToAbortableErrorOnBatchExpiry."""
    with TransactionWorld(version, init=init, **SHORT) as world:
        world.begin()
        world.write()
        batch = world.send()
        world.round(1)
        world.round(1, ms=1_001)
        assert isinstance(batch.error, KafkaTimeoutError)
        assert (world.state is State.FATAL_ERROR) is fatal
        if fatal:
            with pytest.raises(KafkaError, match="it is not safe to continue"):
                world.manager.begin_abort()


def test_a_batch_that_was_never_sent_is_no_lost_one() -> None:
    """TransactionManagerTest#testTransitionToAbortableErrorOnBatchExpiry: whatever the coordinator
    can do.
    """
    with TransactionWorld(1, init=2, **SHORT) as world:
        world.begin()
        world.write()
        world.client.unready = {1: NEVER}
        batch = world.send()
        world.round(2, ms=600)
        assert batch.error is not None
        assert world.state is State.ABORTABLE_ERROR


def test_a_late_refusal_settles_a_batch_that_left_once_and_no_other() -> None:
    """SenderTest#testUnresolvedSequencesAreNotFatal: an attempt before it may still be on its
    way.
    """
    for retried in (False, True):
        with TransactionWorld(1, **SHORT) as world:
            world.begin()
            world.write()
            world.send()
            world.round(1)
            if retried:
                world.lose()
                world.round(1)
                world.round(1, ms=BACKOFF)
                assert world.asked[-2:] == ["produce", "produce"]
            world.round(1, ms=1_001)
            assert world.manager.has_unresolved_batches
            world.refuse(ErrorCode.INVALID_RECORD)
            world.round(1)
            assert world.manager.has_unresolved_batches is retried


def test_a_fence_that_is_refused_is_fatal() -> None:
    """What aborts can't be aborted."""
    with TransactionWorld(1, **SHORT) as world:
        world.begin()
        world.write()
        world.send()
        world.round(1)
        world.round(1, ms=1_001)
        world.lose()
        world.round(1)
        abort = world.manager.begin_abort()
        world.init(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        world.finish(abort)
        assert world.state is State.FATAL_ERROR


def test_a_batch_that_was_appended_outside_of_a_transaction_fails_alone() -> None:
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


# ---- ending --------------------------------------------------------------------------------------


@BOTH
def test_a_commit_sends_what_lingers_and_the_end_goes_last(version: int) -> None:
    """SenderTest#testAwaitPendingRecordsBeforeCommittingTransaction, first half."""
    with TransactionWorld(version, linger_ms=60_000) as world:
        world.begin()
        world.write()
        batch = world.linger()
        world.manager.maybe_add_partition(TP0)
        world.round(3)
        assert not batch.is_done
        assert world.asked[-1] == "produce"
        assert len(world.produced) == 1
        commit = world.manager.begin_commit()
        world.acknowledge(offset=1)
        world.end()
        world.await_(commit)
        assert world.asked[-2:] == ["produce", "end"]


def test_nothing_leaves_once_the_end_is_on_its_way() -> None:
    with TransactionWorld() as world:
        world.begin()
        world.write()
        world.manager.begin_commit()
        world.round(1)
        assert world.asked[-1] == "end"
        world.append()  # by a caller that does not ask
        world.round(3)
        assert world.asked[-1] == "end"


def test_after_a_fatal_error_everything_fails_and_nothing_more_is_sent() -> None:
    """SenderTest#testCancelInFlightRequestAfterFatalError."""
    world = TransactionWorld()
    world.begin()
    world.write()
    in_flight, queued = world.send(TP0), world.send(TP2)
    world.client.unready = {2: NEVER}
    world.round(1)
    commit = world.manager.begin_commit()
    world.refuse(ErrorCode.PRODUCER_FENCED)
    sent = len(world.client.requests)
    world.sender.run()
    for batch in (in_flight, queued):
        assert isinstance(batch.error, ProducerFencedError)
    with pytest.raises(ProducerFencedError):
        commit.await_(world.clock, NEVER)
    assert len(world.client.requests) == sent
    assert world.client.closed
    assert world.memory_in_use == 0


@BOTH
def test_closing_sends_the_rest_then_aborts_an_open_transaction(version: int) -> None:
    """SenderTest#testIncompleteTransactionAbortOnShutdown."""
    with TransactionWorld(version) as world:
        world.begin()
        world.write()
        batch = world.send()
        world.sender.initiate_close()
        world.acknowledge(offset=1)
        world.end()
        world.sender.run()
        assert batch.error is None
        assert world.asked[-2:] == ["produce", "end"]
        assert not world.client.sent(EndTxnRequest)[-1].committed
        assert world.client.closed


def test_closing_waits_for_a_commit_that_has_begun() -> None:
    """SenderTest#testIncompleteTransactionAbortOnShutdown: the end is not turned round."""
    with TransactionWorld() as world:
        world.begin()
        world.write()
        commit = world.manager.begin_commit()
        world.sender.initiate_close()
        world.end()
        world.sender.run()
        world.check_done(commit)
        assert world.client.sent(EndTxnRequest)[0].committed
        assert world.asked.count("end") == 1


def test_closing_in_an_abortable_error_aborts() -> None:
    """SenderTest#testIncompleteTransactionAbortOnShutdown."""
    with TransactionWorld() as world:
        world.begin()
        world.write()
        world.manager.transition_to_abortable_error(KafkaError("too large"))
        world.sender.initiate_close()
        world.end()
        world.sender.run()
        assert not world.client.sent(EndTxnRequest)[0].committed


@pytest.mark.parametrize("state", ["in transaction", "abortable", "committing", "aborting"])
def test_a_forced_close_fails_everything_and_hangs_in_no_state(state: str) -> None:
    """SenderTest#testIncompleteTransactionAbortOnShutdown."""
    world = TransactionWorld()
    world.begin()
    world.write()
    batch = world.send()
    result = None
    if state == "abortable":
        world.manager.transition_to_abortable_error(KafkaError("too large"))
    elif state == "committing":
        result = world.manager.begin_commit()
    elif state == "aborting":
        result = world.manager.begin_abort()
    sent = len(world.client.requests)
    world.sender.force_close()
    world.sender.run()
    assert batch.error is not None
    assert len(world.client.requests) == sent
    if result is not None:
        with pytest.raises(KafkaError, match="closed"):
            result.await_(world.clock, NEVER)
    assert world.client.closed


@BOTH
def test_a_close_with_an_empty_transaction_open_ends_at_once(version: int) -> None:
    """Nothing is to be told to a broker; it slept until close()'s time-out all the same."""
    with TransactionWorld(version) as world:
        world.begin()
        world.client.poll_timeouts.clear()
        world.sender.initiate_close()
        world.sender.run()
        assert set(world.client.poll_timeouts) <= {0}
        assert world.client.closed


def test_a_close_that_cannot_reach_the_coordinator_ends_when_it_is_forced() -> None:
    """SenderTest#testIncompleteTransactionAbortOnShutdown."""
    world = TransactionWorld()
    world.begin()
    world.write()
    world.client.unready = {1: NEVER, 2: NEVER}
    world.sender.initiate_close()
    rounds = 0

    def count() -> None:
        nonlocal rounds
        rounds += 1
        world.clock.advance(100)
        if rounds == 20:
            world.sender.force_close()

    world.client.on_poll = count
    world.sender.run()
    assert rounds == 20
    assert world.client.closed


def test_an_idle_transactional_producer_runs_no_timer() -> None:
    """SenderTest#testDoNotPollWhenNoRequestSent: and asks nothing of anybody, before and after its
    transactions.
    """
    with TransactionWorld() as world:
        world.round(1)
        assert world.client.poll_timeouts[-1] == NEVER
        world.begin()
        world.write()
        world.end()
        world.await_(world.manager.begin_commit())
        world.round(2)
        assert world.client.poll_timeouts[-1] == NEVER
        world.manager.begin_transaction()
        world.write(offset=2)
        world.manager.prepare()
        world.round(2)
        assert world.client.poll_timeouts[-1] == NEVER


def test_dropped_batches_say_that_their_transaction_was_aborted() -> None:
    """SenderTest#testAwaitPendingRecordsBeforeCommittingTransaction."""
    with TransactionWorld() as world:
        world.begin()
        batch = world.send()
        world.await_(world.manager.begin_abort())
        assert isinstance(batch.error, TransactionAbortedError)
        assert "Failing batch since transaction was aborted" in batch.error.message
        assert world.asked == []


def test_an_abort_lets_a_retry_come_to_its_end() -> None:
    """TransactionManagerTest#testAbortResendsProduceRequestIfRetried: its records may be in the
    log.
    """
    with TransactionWorld(2) as world:
        world.begin()
        world.write()
        batch = world.send()
        world.lose()
        world.round(2)
        world.client.requests.clear()
        abort = world.manager.begin_abort()
        world.acknowledge(offset=1)
        world.end()
        world.await_(abort)
        assert world.asked == ["produce", "end"]
        assert batch.error is None


def test_concurrent_transactions_of_a_produce_are_waited_out() -> None:
    """Version 2: the leader adds the partition while the transaction before is being ended."""
    with TransactionWorld(2) as world:
        world.begin()
        batch = world.send()
        world.refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
        world.round(2)
        world.acknowledge()
        world.round(2, ms=BACKOFF)
        assert batch.error is None
        assert world.asked == ["produce", "produce"]


def test_every_request_of_a_transaction_names_it() -> None:
    with TransactionWorld(1) as world:
        world.begin()
        world.write(TP0)
        world.write(TP1)
        assert {r.transactional_id for r in world.client.sent(ProduceRequest)} == {"orders"}
        transactional = 1 << 4
        assert all(batch.data[22] & transactional for batch in world.produced)


@pytest.mark.parametrize("commit", [True, False])
def test_an_invalid_transaction_state_of_the_end_is_fatal_even_on_an_abort(commit: bool) -> None:
    """TransactionManagerTest#testInvalidTxnStateInAddPartitions: the broker timed the transaction
    out, or somebody else ended it.
    """
    with TransactionWorld() as world:
        world.begin()
        world.write()
        result = world.manager.begin_commit() if commit else world.manager.begin_abort()
        world.end(ErrorCode.INVALID_TXN_STATE)
        world.finish(result)
        assert isinstance(result.error, InvalidTxnStateError)
        assert world.state is State.FATAL_ERROR
