"""The end of a transaction and of its producer: what is sent, dropped or waited for."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.protocol.messages.end_txn import EndTxnRequest
from tests.fakes.sender_world import TP0
from tests.fakes.transaction_world import BOTH, TransactionWorld


@BOTH
def test_a_commit_sends_what_lingers_and_the_end_goes_last(version: int) -> None:
    """SenderTest#testRecordsFlushedImmediatelyOnTransactionCompletion,
    SenderTest#testAwaitPendingRecordsBeforeCommittingTransaction.
    """
    with TransactionWorld(version, linger_ms=60_000, written=True) as world:
        batch = world.append(full=False)
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
    with TransactionWorld(written=True) as world:
        world.manager.begin_commit()
        world.round(1)
        assert world.asked[-1] == "end"
        world.append()  # by a caller that does not ask
        world.round(3)
        assert world.asked[-1] == "end"


@BOTH
def test_closing_sends_the_rest_then_aborts_an_open_transaction(version: int) -> None:
    """SenderTest#testIncompleteTransactionAbortOnShutdown."""
    with TransactionWorld(version, written=True) as world:
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
    """SenderTest#testTransactionalRequestsSentOnShutdown: the end is not turned round."""
    with TransactionWorld(written=True) as world:
        commit = world.manager.begin_commit()
        world.sender.initiate_close()
        world.end()
        world.sender.run()
        world.check_done(commit)
        assert world.client.sent(EndTxnRequest)[0].committed
        assert world.asked.count("end") == 1


def test_closing_in_an_abortable_error_aborts() -> None:
    """SenderTest#testIncompleteTransactionAbortOnShutdown."""
    with TransactionWorld(written=True) as world:
        world.manager.transition_to_abortable_error(KafkaError("too large"))
        world.sender.initiate_close()
        world.end()
        world.sender.run()
        assert not world.client.sent(EndTxnRequest)[0].committed


@pytest.mark.parametrize("state", ["in transaction", "abortable", "committing", "aborting"])
def test_a_forced_close_fails_everything_and_hangs_in_no_state(state: str) -> None:
    """SenderTest#testForceShutdownWithIncompleteTransaction."""
    world = TransactionWorld(written=True)
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
    """Nothing is to be sent to a broker; it slept until close()'s time-out all the same."""
    with TransactionWorld(version, begun=True) as world:
        world.client.poll_timeouts.clear()
        world.sender.initiate_close()
        world.sender.run()
        assert set(world.client.poll_timeouts) <= {0}
        assert world.client.closed


def test_a_close_without_a_coordinator_ends_when_forced() -> None:
    """SenderTest#testIncompleteTransactionAbortOnShutdown."""
    world = TransactionWorld(written=True)
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
        world.begin_and_write()
        world.commit()
        world.round(2)
        assert world.client.poll_timeouts[-1] == NEVER
        world.manager.begin_transaction()
        world.write(offset=2)
        world.manager.prepare()
        world.round(2)
        assert world.client.poll_timeouts[-1] == NEVER


@BOTH
def test_a_commit_after_close_began_is_carried_out(version: int) -> None:
    """SenderTest#testSenderShutdownWithPendingTransactions: what was sent before is committed."""
    with TransactionWorld(version, written=True) as world:
        batch = world.send()
        world.sender.initiate_close()
        commit = world.manager.begin_commit()
        world.acknowledge(offset=1)
        world.end()
        world.sender.run()
        world.check_done(commit)
        assert batch.error is None
        assert world.client.sent(EndTxnRequest)[-1].committed
        assert world.client.closed
