"""AddPartitionsToTxn, which version 1 of transactions asks for: when, how often, beside what."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import AuthorizationError, ErrorCode, KafkaError
from spark_kafka_sink.producer.transaction.transaction_states import State
from tests.fakes.sender_world import TP0, TP1, TP2
from tests.fakes.transaction_world import TransactionWorld


def test_partitions_that_are_asked_for_are_not_asked_for_twice() -> None:
    """TransactionManagerTest#testMaybeAddPartitionToTransaction."""
    with TransactionWorld(1, begun=True) as world:
        world.send()
        world.round()
        world.send()
        world.round()
        world.add()
        world.acknowledge()
        world.acknowledge(offset=1)
        world.round(5)
        assert world.asked == ["add", "produce", "produce"]


def test_data_goes_on_while_partitions_are_added() -> None:
    """Unlike Java's sender, which sends nothing else while a transactional request is out."""
    with TransactionWorld(1, written=True) as world:
        world.send(TP2)
        world.round()
        batch = world.send(TP0)
        world.round()
        assert world.asked[-2:] == ["add", "produce"]
        world.add(TP2)
        world.acknowledge(offset=1)
        world.acknowledge(TP2)
        world.round(3)
        assert batch.is_done


def test_the_sender_is_woken_for_a_new_partition_only() -> None:
    """It may have found the batch before its partition was in, and sleep."""
    with TransactionWorld(begun=True) as world:
        world.append(TP0)
        before = world.client.wakeups
        world.manager.maybe_add_partition(TP0)
        assert world.client.wakeups == before + 1
        world.manager.maybe_add_partition(TP0)
        assert world.client.wakeups == before + 1
        world.acknowledge()
        world.round(2)


def test_the_first_partitions_are_retried_soon_later_ones_not() -> None:
    """TransactionManagerTest#testAddPartitionToTransactionOverridesRetryBackoffForConcurrentTransactions,
    TransactionManagerTest#testAddPartitionToTransactionRetainsRetryBackoffWhenPartitionsAlreadyAdded.
    """
    with TransactionWorld(1, begun=True) as world:
        world.send()
        world.add(error=ErrorCode.CONCURRENT_TRANSACTIONS)
        world.round(2)
        world.round(1, ms=15)
        assert world.asked == ["add"]
        world.round(1, ms=10)
        assert world.asked == ["add", "add"]
        world.add()
        world.round()
        world.acknowledge()
        world.round(2)
        world.client.requests.clear()
        world.send(TP1)
        world.add(TP1, error=ErrorCode.CONCURRENT_TRANSACTIONS)
        world.round(2)
        world.round(1, ms=79)
        assert world.asked == ["add"]
        world.add(TP1)
        world.acknowledge(TP1)
        world.round(3, ms=21)
        assert world.asked == ["add", "add", "produce"]


def test_a_throttled_coordinator_causes_no_busy_loop() -> None:
    """SenderTest#testDoNotPollWhenNoRequestSent."""
    with TransactionWorld(1, begun=True) as world:
        world.send()
        until = world.clock.now_ms() + 500
        world.client.unready = {2: until}
        world.client.connection_failed = lambda node: False  # type: ignore[method-assign]
        world.client.poll_timeouts.clear()
        world.round()
        assert world.client.poll_timeouts == [500]
        world.add()
        world.acknowledge()
        world.round(3, ms=500)
        assert world.asked == ["add", "produce"]


def test_partitions_that_an_abort_came_before_are_not_added() -> None:
    """TransactionManagerTest#testCancelUnsentAddPartitionsAndProduceOnAbort: in version 1 they wait
    behind the identity's request. An AddPartitionsToTxn without any, and an EndTxn of what was
    never opened, would be refused (found by a simulated life).
    """
    with TransactionWorld(1, written=True) as world:
        world.commit()
        world.manager.begin_transaction()
        world.init(ErrorCode.CONCURRENT_TRANSACTIONS)
        world.round(2)
        world.send(TP1)
        world.round(2)
        world.client.requests.clear()
        abort = world.manager.begin_abort()
        world.init()
        world.await_(abort)
        assert world.asked == ["init"]


def test_refused_partitions_fail_the_transaction() -> None:
    """TransactionManagerTest#testTopicAuthorizationFailureInAddPartitions,
    TransactionManagerTest#shouldNotSendAbortTxnRequestWhenOnlyAddPartitionsRequestFailed.
    """
    with TransactionWorld(1, begun=True) as world:
        one, two = world.send(TP0), world.send(TP1)
        world.add(
            errors={
                TP0: ErrorCode.OPERATION_NOT_ATTEMPTED,
                TP1: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            }
        )
        world.round(3)
        assert world.state is State.ABORTABLE_ERROR
        for batch in (one, two):
            assert isinstance(batch.error, AuthorizationError)
            assert "t-1 TOPIC_AUTHORIZATION_FAILED" in batch.error.message
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED") as raised:
            world.manager.begin_commit()
        assert "abort" in (raised.value.hint or "")
        world.await_(world.manager.begin_abort())
        assert world.asked == ["add"], "no broker knows of the transaction"
        assert world.memory_in_use == 0
        world.manager.begin_transaction()
        world.write()
