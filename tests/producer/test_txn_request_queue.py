"""How the transaction coordinator is found, and found again."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode, KafkaError
from spark_kafka_sink.protocol.messages.end_txn import EndTxnRequest
from spark_kafka_sink.protocol.messages.find_coordinator import FindCoordinatorRequest
from spark_kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.fakes.sender_world import NODE1, NODE2, metadata_answer
from tests.fakes.transaction_world import BACKOFF, BOTH, TransactionWorld


def test_metadata_is_refreshed_when_no_node_is_known() -> None:
    """TransactionManagerTest#testDisconnectAndRetry: FindCoordinator goes to any broker, and those
    that are known may be gone.
    """
    with TransactionWorld() as world:
        result = world.manager.initialize_transactions()
        world.cut(FindCoordinatorRequest)
        world.round(2)
        assert world.metadata.time_to_next_update(world.clock.now_ms()) < NEVER
        world.client.prepare_metadata(metadata_answer([1, 1, 2]))
        world.find()
        world.init()
        world.await_(result)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT],
)
def test_other_retriable_errors_are_retried_after_the_backoff(code: ErrorCode) -> None:
    """TransactionManagerTest#testRetriableErrors,
    TransactionManagerTest#testCoordinatorNotAvailable,
    TransactionManagerTest#testAddPartitionToTransactionRetainsRetryBackoffForRegularRetriableError.
    """
    with TransactionWorld(1) as world:
        result = world.manager.initialize_transactions()
        world.find(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        world.round(2)
        world.round(1, ms=70)
        assert world.asked == ["find"]
        world.find()
        world.init(code)
        world.round(3, ms=BACKOFF)
        world.init()
        world.await_(result)
        world.manager.begin_transaction()
        world.send()
        world.add(error=code)
        world.round(2)
        world.add()
        world.acknowledge()
        world.round(4, ms=BACKOFF)
        world.end(code)
        commit = world.manager.begin_commit()
        world.round(2)
        world.end()
        world.await_(commit)
        expected = ["find", "find", "init", "init", "add", "add", "produce", "end", "end"]
        assert world.asked == expected


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_moved_coordinator_is_found_again_and_asked_again(code: ErrorCode) -> None:
    """TransactionManagerTest#testLookupCoordinatorOnNotCoordinatorError."""
    with TransactionWorld(1) as world:
        result = world.manager.initialize_transactions()
        world.find(node=NODE1)
        world.init(code)
        world.find(node=NODE2)
        world.init()
        world.await_(result)
        world.manager.begin_transaction()
        world.send()
        world.add(error=code)
        world.find(node=NODE1)
        world.add()
        world.acknowledge()
        world.round(8, ms=BACKOFF)
        world.end(code)
        world.find(node=NODE2)
        world.commit()
        assert world.asked == [
            *("find", "init", "find", "init", "add", "find", "add", "produce"),
            *("end", "find", "end"),
        ]
        coordinators = [
            r.destination
            for r, name in zip(world.client.requests, world.asked, strict=True)
            if name in ("init", "add", "end")
        ]
        assert coordinators == [1, 2, 2, 1, 1, 2]


@BOTH
@pytest.mark.parametrize("lost", ["disconnected", "timed_out"])
def test_a_lost_coordinator_is_found_again_and_asked_again(version: int, lost: str) -> None:
    """TransactionManagerTest#testLookupCoordinatorOnDisconnectAfterSend."""
    how = {lost: True}
    with TransactionWorld(version) as world:
        result = world.manager.initialize_transactions()
        world.client.prepare(FindCoordinatorRequest, **how)
        world.find()
        world.client.prepare(InitProducerIdRequest, **how)
        world.find()
        world.init()
        world.await_(result)
        world.manager.begin_transaction()
        world.write()
        world.client.prepare(EndTxnRequest, **how)
        world.find()
        world.commit()
        first, second = world.client.sent(EndTxnRequest)
        assert first == second


def test_a_coordinator_that_cannot_be_reached_is_looked_up_again() -> None:
    """TransactionManagerTest#testLookupCoordinatorOnDisconnectBeforeSend."""
    with TransactionWorld() as world:
        result = world.manager.initialize_transactions()
        world.find()
        world.client.unready = {2: NEVER}
        world.round(2)
        assert world.asked == ["find", "find"]
        world.find()
        world.round(5)
        assert world.asked == ["find", "find"], "it asks in a tight loop"
        world.find()
        world.round(1, ms=BACKOFF)
        world.round(5)
        assert world.asked == ["find", "find", "find"]
        world.client.unready = {}
        world.init()
        world.await_(result)


def test_one_look_up_of_the_coordinator_is_enough() -> None:
    with TransactionWorld(begun=True) as world:
        world.manager.requests.lookup_coordinator()
        world.manager.requests.lookup_coordinator()
        assert world.manager.requests.coordinator is None
        world.find()
        world.round(5)
        assert world.asked == ["find"]


def test_the_coordinator_is_looked_for_in_an_abortable_error_too() -> None:
    """TransactionManagerTest#testFindCoordinatorAllowedInAbortableErrorState: the abort will want
    it.
    """
    with TransactionWorld(written=True) as world:
        world.manager.transition_to_abortable_error(KafkaError("too large"))
        world.manager.requests.lookup_coordinator()
        world.client.requests.clear()
        world.find(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        world.find()
        world.round(4, ms=100)
        assert world.asked == ["find", "find"]
        assert world.manager.requests.coordinator is not None
