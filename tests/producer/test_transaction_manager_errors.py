"""What an error in an answer to a transactional producer ends: its transaction or itself."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import (
    ApiError,
    AuthenticationError,
    AuthorizationError,
    ErrorCode,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
    UnsupportedVersionError,
)
from spark_kafka_sink.producer.transaction.transaction_states import State
from spark_kafka_sink.producer.transaction.txn_requests import TransactionalResult
from spark_kafka_sink.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.fakes.sender_world import NODE1
from tests.fakes.transaction_world import BOTH, TRANSACTIONAL_ID, TransactionWorld


def refused(world: TransactionWorld, kind: str, code: ErrorCode) -> TransactionalResult | None:
    """The request of ``kind`` is answered with ``code``; the result that a caller waits for."""
    if kind in ("find", "init"):
        result = world.manager.initialize_transactions()
        if kind == "find":
            world.find(code)
        else:
            world.find()
            world.init(code)
        world.finish(result)
        return result
    world.begin()
    if kind == "add":
        world.send()
        world.add(error=code)
        world.round(3)
        return None
    world.write()
    if kind == "produce":
        world.send()
        world.refuse(code)
        world.round(3)
        return None
    result = world.manager.begin_commit() if kind == "commit" else world.manager.begin_abort()
    world.end(code)
    world.finish(result)
    return result


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
@pytest.mark.parametrize("kind", ["init", "add", "commit"])
def test_a_fenced_producer_is_at_its_end(kind: str, code: ErrorCode) -> None:
    """TransactionManagerTest#testProducerFencedExceptionInInitProducerId,
    TransactionManagerTest#testInvalidProducerEpochConvertToProducerFencedInInitProducerId,
    TransactionManagerTest#testProducerFencedInAddPartitionToTxn,
    TransactionManagerTest#testInvalidProducerEpochConvertToProducerFencedInAddPartitionToTxn,
    TransactionManagerTest#testInvalidProducerEpochConvertToProducerFencedInEndTxn.
    """
    with TransactionWorld(1) as world:
        result = refused(world, kind, code)
        if result is not None:
            with pytest.raises(ProducerFencedError) as raised:
                result.await_(world.clock, NEVER)
            assert raised.value.code is ErrorCode.PRODUCER_FENCED
            assert TRANSACTIONAL_ID in raised.value.message
        assert world.state is State.FATAL_ERROR
        for call in (world.manager.begin_transaction, world.manager.begin_abort):
            with pytest.raises(ProducerFencedError, match="took over"):
                call()
        assert world.lifecycle.fatal is not None


@pytest.mark.parametrize(
    ("version", "kind", "code"),
    [
        (1, "add", ErrorCode.INVALID_TXN_STATE),
        (1, "commit", ErrorCode.INVALID_TXN_STATE),
        (2, "commit", ErrorCode.INVALID_TXN_STATE),
        (2, "abort", ErrorCode.INVALID_TXN_STATE),
        (1, "add", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (1, "commit", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (1, "add", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (1, "commit", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (1, "commit", ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_no_abort_mends_is_fatal(version: int, kind: str, code: ErrorCode) -> None:
    """TransactionManagerTest#testInvalidTxnStateInAddPartitions,
    TransactionManagerTest#testTransactionalIdAuthorizationFailureInAddPartitions. With EndTxn: the
    broker timed the transaction out, or somebody else ended it.
    """
    with TransactionWorld(version) as world:
        result = refused(world, kind, code)
        assert world.state is State.FATAL_ERROR
        error = world.lifecycle.fatal
        assert isinstance(error, ApiError)
        assert error.code is code
        assert isinstance(error, InvalidTxnStateError) is (code is ErrorCode.INVALID_TXN_STATE)
        assert result is None or result.error is error


@pytest.mark.parametrize("kind", ["find", "init", "add", "produce", "commit"])
def test_transaction_abortable_leads_to_an_abort(kind: str) -> None:
    """TransactionManagerTest#testTransactionAbortableExceptionInFindCoordinator,
    TransactionManagerTest#testTransactionAbortableExceptionInInitProducerId,
    TransactionManagerTest#testTransactionAbortableExceptionInAddPartitions,
    SenderTest#testTransactionAbortableExceptionIsAnAbortableError,
    TransactionManagerTest#testTransactionAbortableExceptionInEndTxn.
    """
    with TransactionWorld(1) as world:
        result = refused(world, kind, ErrorCode.TRANSACTION_ABORTABLE)
        if result is not None:
            world.check_failed(result, TransactionAbortableError)
        assert world.state is State.ABORTABLE_ERROR
        if kind in ("produce", "commit"):  # the coordinator knows of the transaction
            world.end()
        world.await_(world.manager.begin_abort())
        if kind in ("find", "init"):
            assert world.state is State.UNINITIALIZED
        else:
            assert world.state is State.READY
        if kind == "find":
            world.initialize()


@BOTH
def test_transaction_abortable_in_an_abort_is_fatal(version: int) -> None:
    """What aborts can't be aborted."""
    with TransactionWorld(version) as world:
        result = refused(world, "abort", ErrorCode.TRANSACTION_ABORTABLE)
        assert result is not None
        world.check_failed(result, TransactionAbortableError)
        assert world.state is State.FATAL_ERROR


@pytest.mark.parametrize(("init", "state"), [(2, State.FATAL_ERROR), (3, State.ABORTABLE_ERROR)])
@pytest.mark.parametrize("kind", ["add", "commit"])
def test_an_unknown_producer_is_fatal_where_no_epoch_can_rise(
    kind: str, init: int, state: State
) -> None:
    """``init`` is the coordinator's newest version of InitProducerId; 3 can raise an epoch."""
    with TransactionWorld(1, init=init) as world:
        refused(world, kind, ErrorCode.UNKNOWN_PRODUCER_ID)
        assert world.state is state


@pytest.mark.parametrize(
    "code",
    [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED],
)
def test_a_refused_id_may_be_requested_again_with_rights(code: ErrorCode) -> None:
    """TransactionManagerTest#testTransactionalIdAuthorizationFailureInInitProducerId."""
    with TransactionWorld() as world:
        result = refused(world, "init", code)
        assert result is not None
        world.check_failed(result, AuthorizationError)
        assert world.state is State.UNINITIALIZED
        again = world.manager.initialize_transactions()
        world.init()
        world.await_(again)


def test_an_invalid_transaction_state_is_kept_as_the_cause() -> None:
    """SenderTest#testInvalidTxnStateIsAnAbortableError, with KIP-1050's words."""
    with TransactionWorld() as world:
        refused(world, "produce", ErrorCode.INVALID_TXN_STATE)
        error = world.manager.last_error
        assert isinstance(error, TransactionAbortableError)
        assert "Transaction Request was aborted after exhausting retries." in error.message
        assert isinstance(error.__cause__, InvalidTxnStateError)


@pytest.mark.parametrize(
    "error", [UnsupportedVersionError("no common version"), AuthenticationError("wrong password")]
)
def test_a_request_that_can_never_be_sent_is_fatal(error: ApiError) -> None:
    """TransactionManagerTest#testUnsupportedFindCoordinator."""
    with TransactionWorld() as world:
        result = world.manager.initialize_transactions()
        world.client.prepare(FindCoordinatorRequest, error=error)
        world.finish(result)
        world.check_failed(result, type(error))
        assert world.lifecycle.fatal is error


def test_a_node_that_refuses_us_is_fatal() -> None:
    with TransactionWorld() as world:
        refused = AuthenticationError("wrong password")
        world.client.unready = {1: NEVER, 2: NEVER}
        world.client.authentication_errors = {1: refused, 2: refused}
        # Node 1 would be asked: it connects, and is refused.
        world.client.least_loaded_node = lambda now: NODE1  # type: ignore[method-assign]
        result = world.manager.initialize_transactions()
        world.finish(result)
        assert result.error is refused
        assert world.lifecycle.fatal is refused
