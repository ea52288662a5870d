"""TransactionManager's states: which call is refused in which, and what a failure leaves."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from spark_kafka_sink.producer.transaction.transaction_states import TRANSITIONS, State
from tests.fakes.sender_world import TP0, TP1
from tests.fakes.transaction_world import TransactionWorld, new_manager


def test_the_table_knows_every_state_and_any_may_fail_for_good() -> None:
    assert set(TRANSITIONS) == set(State)
    assert all(State.FATAL_ERROR in targets for targets in TRANSITIONS.values())
    assert TRANSITIONS[State.FATAL_ERROR] == {State.FATAL_ERROR}


def test_calls_in_a_wrong_state_raise_and_change_nothing() -> None:
    """TransactionManagerTest#testFailIfNotReadyForSendNoOngoingTransaction,
    TransactionManagerTest#testInitializeTransactionsTwiceRaisesError,
    TransactionManagerTest#testForegroundInvalidStateTransitionIsRecoverable.
    """
    with TransactionWorld() as world:
        manager = world.manager
        for call in (
            manager.begin_transaction,
            manager.begin_commit,
            manager.begin_abort,
            manager.prepare,
            manager.forget_prepared,
            manager.ensure_in_transaction,
            lambda: manager.maybe_add_partition(TP0),
            lambda: manager.transition_to_abortable_error(KafkaError("no transaction")),
        ):
            with pytest.raises(IllegalStateError):
                call()
            assert manager.state is State.UNINITIALIZED
        world.initialize()
        for call in (manager.initialize_transactions, manager.begin_commit, manager.begin_abort):
            with pytest.raises(IllegalStateError):
                call()
            assert manager.state is State.READY
        with pytest.raises(IllegalStateError, match="can't add a partition"):
            manager.maybe_add_partition(TP0)
        manager.begin_transaction()
        with pytest.raises(IllegalStateError):
            manager.begin_transaction()
        assert manager.state is State.IN_TRANSACTION


def test_an_idempotent_producer_has_no_transactions() -> None:
    manager = new_manager()
    with pytest.raises(IllegalStateError, match="transactional producer"):
        manager.initialize_transactions()
    manager.maybe_add_partition(TP0)
    manager.ensure_in_transaction()
    manager.transition_to_fatal_error(KafkaError("the end"))
    with pytest.raises(KafkaError, match="the end"):
        manager.maybe_add_partition(TP0)


def test_an_illegal_transition_on_the_network_thread_is_fatal() -> None:
    """TransactionManagerTest#testBackgroundInvalidStateTransitionIsFatal: there nothing could mend
    it.
    """
    world = TransactionWorld(begun=True)
    broken = IllegalStateError("a bug")

    def fail() -> None:
        raise broken

    world.client.on_poll = fail
    world.sender.run()
    assert world.state is State.FATAL_ERROR
    with pytest.raises(KafkaError, match="a bug"):
        world.manager.begin_commit()


def test_a_record_failing_after_the_producer_changes_nothing() -> None:
    """It waited (for metadata, for memory) in ``send`` when the producer failed for good."""
    with TransactionWorld() as world:
        world.initialize()
        world.manager.begin_transaction()
        world.manager.transition_to_fatal_error(KafkaError("the end"))
        world.manager.transition_to_abortable_error(KafkaError("too late"))
        assert world.manager.state is State.FATAL_ERROR
        with pytest.raises(KafkaError, match="the end"):
            world.manager.maybe_fail_with_error()


def test_the_first_error_is_the_one_that_is_raised() -> None:
    with TransactionWorld(begun=True) as world:
        world.manager.transition_to_abortable_error(KafkaError("first"))
        world.manager.transition_to_abortable_error(KafkaError("second"))
        with pytest.raises(KafkaError, match="first"):
            world.manager.maybe_fail_with_error()
        world.manager.transition_to_fatal_error(KafkaError("third"))
        world.manager.transition_to_fatal_error(KafkaError("fourth"))
        with pytest.raises(KafkaError, match="third"):
            world.manager.ensure_in_transaction()


def test_what_a_transaction_failed_with_keeps_its_own_hint() -> None:
    with TransactionWorld(begun=True) as world:
        world.manager.transition_to_abortable_error(KafkaError("too early", hint="set the clock"))
        with pytest.raises(KafkaError, match="too early") as caught:
            world.manager.begin_commit()
        assert caught.value.hint is not None
        assert caught.value.hint.startswith("set the clock; this transaction can only be aborted")


def test_an_answer_after_the_end_changes_nothing() -> None:
    with TransactionWorld() as world:
        result = world.manager.initialize_transactions()
        world.find()
        world.round(2)
        world.manager.transition_to_fatal_error(KafkaError("the end"))
        world.init()
        world.client.poll(0, world.clock.now_ms())
        assert world.state is State.FATAL_ERROR
        assert not world.manager.has_producer_id
        with pytest.raises(KafkaError, match="the end"):
            result.await_(world.clock, NEVER)


@pytest.mark.parametrize("version", [1, 2])
def test_a_timed_out_commit_may_only_be_called_again(version: int) -> None:
    """TransactionManagerTest#testRetryCommitTransactionAfterTimeout,
    TransactionManagerTest#testRetryAbortTransactionAfterCommitTimeout.
    """
    with TransactionWorld(version, written=True) as world:
        commit = world.manager.begin_commit()
        world.round(2)
        with pytest.raises(KafkaTimeoutError, match="not complete in time"):
            commit.await_(world.clock, world.clock.now_ms() + 10)
        for call in (
            world.manager.begin_abort,
            world.manager.begin_transaction,
            world.manager.initialize_transactions,
            lambda: world.manager.maybe_add_partition(TP1),
            world.manager.prepare,
        ):
            with pytest.raises(IllegalStateError, match="commit_transaction before it timed out"):
                call()
        assert world.manager.begin_commit() is commit
        world.end()
        world.await_(commit)
        assert world.asked.count("end") == 1
        with pytest.raises(IllegalStateError):
            world.manager.begin_commit()


def test_an_abort_that_timed_out_is_called_again() -> None:
    """TransactionManagerTest#testRetryAbortTransactionAfterTimeout,
    TransactionManagerTest#testRetryCommitTransactionAfterAbortTimeout.
    """
    with TransactionWorld(written=True) as world:
        abort = world.manager.begin_abort()
        with pytest.raises(KafkaTimeoutError):
            abort.await_(world.clock, world.clock.now_ms())
        with pytest.raises(IllegalStateError, match="abort_transaction before it timed out"):
            world.manager.begin_commit()
        assert world.manager.begin_abort() is abort
        world.end()
        world.await_(abort)


def test_init_that_timed_out_is_called_again() -> None:
    """TransactionManagerTest#testRetryInitTransactionsAfterTimeout."""
    with TransactionWorld() as world:
        result = world.manager.initialize_transactions()
        with pytest.raises(KafkaTimeoutError):
            result.await_(world.clock, world.clock.now_ms())
        assert world.manager.initialize_transactions() is result
        world.find()
        world.init()
        world.await_(result)
