"""TransactionManager with transactions (Java: TransactionManagerTest).

What rule R2 puts in the place of Java's: no epoch is raised by the client; version 1 asks
the coordinator for the next identity when the next transaction begins.
"""

from __future__ import annotations

import pickle
import threading

import pytest

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.errors import (
    ApiError,
    AuthenticationError,
    AuthorizationError,
    ErrorCode,
    IllegalStateError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedVersionError,
)
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.transaction.partition_sequences import Answer
from spark_kafka_sink.producer.transaction.transaction_manager import (
    TRANSITIONS,
    PreparedTransaction,
    State,
    TransactionManager,
)
from spark_kafka_sink.producer.transaction.transactional_result import TransactionalResult
from spark_kafka_sink.producer.transaction.txn_requests import (
    REACTIONS,
    Reaction,
    TxnBackoff,
    TxnRequest,
    TxnRequestKind,
    reaction_to,
)
from spark_kafka_sink.protocol.control_messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
)
from spark_kafka_sink.protocol.responses import (
    AddPartitionsToTxnResponse,
    InitProducerIdResponse,
)
from spark_kafka_sink.records.compression import Codec
from tests.fakes.accumulator_world import Listener
from tests.fakes.clock import FakeClock
from tests.fakes.sender_world import NODE1, NODE2, PRODUCER_ID, TP0, TP1, TP2, metadata_answer
from tests.fakes.transaction_world import BACKOFF, TRANSACTIONAL_ID, TransactionWorld

BOTH = pytest.mark.parametrize("version", [1, 2])
FENCED = [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]


# ---- states --------------------------------------------------------------------------------------


def test_the_table_knows_every_state_and_any_may_fail_for_good() -> None:
    assert set(TRANSITIONS) == set(State)
    assert all(State.FATAL_ERROR in targets for targets in TRANSITIONS.values())
    assert TRANSITIONS[State.FATAL_ERROR] == {State.FATAL_ERROR}


def test_nothing_but_the_drivers_word_leads_out_of_prepared() -> None:
    assert TRANSITIONS[State.PREPARED] == {State.UNINITIALIZED, State.FATAL_ERROR}


def test_calls_in_a_wrong_state_raise_and_change_nothing() -> None:
    """TransactionManagerTest#testFailIfNotReadyForSendNoOngoingTransaction,
    TransactionManagerTest#testBackgroundInvalidStateTransitionIsFatal.
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


def test_a_record_that_fails_after_the_producer_did_changes_nothing() -> None:
    """It waited (for metadata, for memory) in ``send`` when the producer failed for good."""
    with TransactionWorld() as world:
        world.initialize()
        world.manager.begin_transaction()
        world.manager.transition_to_fatal_error(KafkaError("the end"))
        world.manager.transition_to_abortable_error(KafkaError("too late"))
        assert world.manager.state is State.FATAL_ERROR
        with pytest.raises(KafkaError, match="the end"):
            world.manager.maybe_fail_with_error()


def test_an_idempotent_producer_has_no_transactions() -> None:
    manager = TransactionManager()
    with pytest.raises(IllegalStateError, match="transactional producer"):
        manager.initialize_transactions()
    manager.maybe_add_partition(TP0)
    manager.ensure_in_transaction()
    manager.transition_to_fatal_error(KafkaError("the end"))
    with pytest.raises(KafkaError, match="the end"):
        manager.maybe_add_partition(TP0)


def test_an_illegal_transition_on_the_network_thread_is_fatal() -> None:
    """TransactionManagerTest#testBackgroundInvalidStateTransitionIsFatal: there nobody could mend
    it.
    """
    world = TransactionWorld()
    world.begin()
    broken = IllegalStateError("a bug")

    def fail() -> None:
        raise broken

    world.client.on_poll = fail
    world.sender.run()
    assert world.state is State.FATAL_ERROR
    with pytest.raises(KafkaError, match="a bug"):
        world.manager.begin_commit()


# ---- the order of requests -----------------------------------------------------------------------


def test_version_1_asks_in_order_and_one_request_at_a_time() -> None:
    """TransactionManagerTest#testBasicTransaction,
    TransactionManagerTest#testMaybeAddPartitionToTransaction.
    """
    with TransactionWorld(1) as world:
        result = world.manager.initialize_transactions()
        world.round(3)
        assert world.asked == ["find"], "two transactional requests at once"
        world.find()
        world.round(2)
        assert world.asked == ["find", "init"]
        assert world.client.requests[0].destination in (1, 2)
        assert world.client.requests[1].destination == 2
        world.init()
        world.round()
        world.check_done(result)
        world.manager.begin_transaction()
        batches = [world.send(tp) for tp in (TP0, TP1, TP2)]
        commit = world.manager.begin_commit()
        world.round(3)
        assert world.asked[2:] == ["add"]
        world.add(TP0, TP1, TP2)
        world.round(1)
        assert not any(batch.is_done for batch in batches)
        for offset, tps in ((0, (TP0, TP1)), (0, (TP2,))):
            world.acknowledge_all(tps, offset)
        world.round(2)
        assert all(batch.is_done for batch in batches)
        world.end()
        world.await_(commit)
        assert world.asked[3:] == ["produce", "produce", "end"]
        (init,) = world.client.sent(InitProducerIdRequest)
        assert init == InitProducerIdRequest(TRANSACTIONAL_ID, 60_000)
        (add,) = world.client.sent(AddPartitionsToTxnRequest)
        assert set(add.partitions) == {TP0, TP1, TP2}
        (end,) = world.client.sent(EndTxnRequest)
        assert end == EndTxnRequest(TRANSACTIONAL_ID, PRODUCER_ID, 0, True, 1)
        assert end.versions.max == 4
        assert {r.versions.max for r in world.client.produced} == {11}
        assert all(batch.producer_id == PRODUCER_ID for batch in world.produced)


def test_version_1_takes_the_next_identity_when_the_next_transaction_begins() -> None:
    """TransactionManagerTest#testBasicTransaction: one (producer id, epoch) is one transaction."""
    with TransactionWorld(1) as world:
        world.begin()
        world.write()
        world.end()
        world.await_(world.manager.begin_commit())
        world.client.requests.clear()
        assert world.state is State.READY
        world.manager.begin_transaction()
        assert not world.manager.has_producer_id
        batch = world.send()
        world.init(ErrorCode.CONCURRENT_TRANSACTIONS)
        world.round(2)
        world.init()
        world.round(2, ms=25)
        assert world.manager.producer_id_and_epoch == (PRODUCER_ID, 1)
        world.add(TP0)
        world.round(2)
        world.acknowledge()
        world.round(2)
        assert batch.is_done
        assert world.asked == ["init", "init", "add", "produce"]
        inits = world.client.sent(InitProducerIdRequest)
        assert inits == [InitProducerIdRequest(TRANSACTIONAL_ID, 60_000, PRODUCER_ID, 0)] * 2
        assert [(b.epoch, b.sequence) for b in world.produced] == [(1, 0)]


def test_version_2_adds_no_partitions_and_takes_the_epoch_that_end_brings() -> None:
    """TransactionManagerTest#testTransactionManagerEnablesV2,
    TransactionManager.EndTxnHandler#handleResponse.
    """
    with TransactionWorld(2) as world:
        world.begin()
        batch = world.send()
        world.acknowledge()
        world.round(2)
        assert batch.is_done
        world.end()
        world.await_(world.manager.begin_commit())
        assert world.asked == ["produce", "end"]
        assert world.client.produced[0].versions == (12, 12)
        assert world.client.produced[0].transactional_id == TRANSACTIONAL_ID
        (end,) = world.client.sent(EndTxnRequest)
        assert end == EndTxnRequest(TRANSACTIONAL_ID, PRODUCER_ID, 0, True, 2)
        assert end.versions == (5, 5)
        assert world.manager.producer_id_and_epoch == (PRODUCER_ID, 1)
        world.manager.begin_transaction()
        world.write(offset=2)
        assert [(b.epoch, b.sequence) for b in world.produced] == [(0, 0), (1, 0)]


def test_an_epoch_at_its_end_brings_a_new_producer_id() -> None:
    """TransactionManager.EndTxnHandler#handleResponse."""
    from spark_kafka_sink.protocol.responses import EndTxnResponse

    with TransactionWorld(2) as world:
        world.begin()
        world.write()
        world.client.prepare(EndTxnRequest, EndTxnResponse(ErrorCode.NONE, 815, 0))
        world.await_(world.manager.begin_commit())
        assert world.manager.producer_id_and_epoch == (815, 0)
        world.manager.begin_transaction()
        world.write(offset=2)
        assert (world.produced[-1].producer_id, world.produced[-1].sequence) == (815, 0)


def test_a_cluster_that_changes_its_version_does_not_change_an_open_transaction() -> None:
    """TransactionManager#maybeUpdateTransactionV2Enabled."""
    with TransactionWorld(1) as world:
        world.begin()
        world.write()
        world.set_version(2, features_epoch=2)
        world.end()
        world.await_(world.manager.begin_commit())
        assert world.client.sent(EndTxnRequest)[0].transaction_version == 1
        assert world.manager.transaction_version == 1
        world.set_version(1, features_epoch=1)  # an old broker's word; the newer one holds
        world.manager.begin_transaction()
        assert world.manager.transaction_version == 2
        world.init()
        world.round(2)
        world.client.requests.clear()
        world.write(offset=2)
        assert world.asked == ["produce"]
        assert [b.epoch for b in world.produced] == [1]
        world.end()
        world.await_(world.manager.begin_commit())
        world.manager.begin_transaction()
        assert world.manager.transaction_version == 2, "an old broker's word was taken"


@BOTH
def test_a_transaction_without_partitions_ends_without_a_request(version: int) -> None:
    """TransactionManager#nextRequest."""
    with TransactionWorld(version) as world:
        world.begin()
        world.await_(world.manager.begin_commit())
        world.manager.begin_transaction()
        world.await_(world.manager.begin_abort())
        world.manager.begin_transaction()
        assert world.asked == []
        assert world.manager.producer_id_and_epoch == (PRODUCER_ID, 0)


@BOTH
def test_the_end_waits_for_every_batch_and_new_partitions_go_before_it(version: int) -> None:
    """TransactionManagerTest#testEndTxnNotSentIfIncompleteBatches."""
    with TransactionWorld(version) as world:
        world.begin()
        world.write()
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


def test_an_abort_before_the_first_identity_of_a_transaction_needs_no_request() -> None:
    """Version 1: the InitProducerId that begin asked for is answered after the abort."""
    with TransactionWorld(1) as world:
        world.begin()
        world.write()
        world.end()
        world.await_(world.manager.begin_commit())
        world.manager.begin_transaction()
        world.round(2)
        abort = world.manager.begin_abort()
        world.round(2)
        assert not abort.is_completed, "two transactional requests at once"
        world.init()
        world.await_(abort)
        assert world.state is State.READY
        assert world.asked.count("end") == 1
        assert world.manager.producer_id_and_epoch == (PRODUCER_ID, 1)
        world.manager.begin_transaction()
        assert world.asked.count("init") == 1


def test_partitions_that_an_abort_came_before_are_not_added() -> None:
    """Version 1: they wait behind the identity's request. An AddPartitionsToTxn without any, and an
    EndTxn of what was never opened, would be refused (found by a simulated life).
    """
    with TransactionWorld(1) as world:
        world.begin()
        world.write()
        world.end()
        world.await_(world.manager.begin_commit())
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


# ---- retries and the coordinator -----------------------------------------------------------------


def test_the_first_partitions_are_asked_again_soon_later_ones_are_not() -> None:
    """TransactionManagerTest#testAddPartitionToTransactionOverridesRetryBackoffForConcurrentTransactions."""
    with TransactionWorld(1) as world:
        world.begin()
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


def test_a_transaction_that_stays_concurrent_is_asked_for_less_and_less_often() -> None:
    """200 tasks that wait for a broker with markers to write must not ask 50 times a second."""
    backoff = TxnBackoff(100, 1_000, random=lambda: 0.5)
    request = TxnRequest(TxnRequestKind.INIT_PRODUCER_ID, TransactionalResult("init_transactions"))
    assert [backoff.soon(request) for _ in range(6)] == [20, 40, 80, 160, 320, 640]
    assert backoff.soon(request) == pytest.approx(1_000, abs=1)
    assert [backoff.plain(request) for _ in range(4)] == [100, 200, 400, 800]


def test_nobody_to_ask_for_the_coordinator_means_fresh_metadata() -> None:
    """TransactionManagerTest#testLookupCoordinatorOnDisconnectAfterSend: FindCoordinator goes to
    any broker, and those that are known may be gone.
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
def test_other_retriable_errors_are_asked_again_after_the_backoff(code: ErrorCode) -> None:
    """TransactionManagerTest#testAddPartitionToTransactionOverridesRetryBackoffForConcurrentTransactions."""
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
    """TransactionManagerTest#testLookupCoordinatorOnDisconnectAfterSend."""
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
        world.end()
        world.await_(world.manager.begin_commit())
        assert world.asked == [
            *("find", "init", "find", "init", "add", "find", "add", "produce"),
            *("end", "find", "end"),
        ]
        to = {
            kind: [
                r.destination
                for r, name in zip(world.client.requests, world.asked, strict=True)
                if name == kind
            ]
            for kind in ("init", "add", "end")
        }
        assert to == {"init": [1, 2], "add": [2, 1], "end": [1, 2]}


@BOTH
@pytest.mark.parametrize("lost", ["disconnected", "timed_out"])
def test_a_disconnect_from_the_coordinator_finds_it_again_and_resends(
    version: int, lost: str
) -> None:
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
        world.end()
        world.await_(world.manager.begin_commit())
        first, second = world.client.sent(EndTxnRequest)
        assert first == second


def test_a_coordinator_that_cannot_be_reached_is_looked_up_again() -> None:
    """TransactionManagerTest#testLookupCoordinatorOnDisconnectAfterSend, before the send."""
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


def test_a_throttled_coordinator_with_partitions_to_add_does_not_spin() -> None:
    """SenderTest#testDoNotPollWhenNoRequestSent."""
    with TransactionWorld(1) as world:
        world.begin()
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


def test_data_goes_on_while_partitions_are_added() -> None:
    """Unlike Java's sender, which sends nothing else while a transactional request is out."""
    with TransactionWorld(1) as world:
        world.begin()
        world.write()
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


def test_partitions_that_are_asked_for_are_not_asked_for_twice() -> None:
    """TransactionManagerTest#testMaybeAddPartitionToTransaction."""
    with TransactionWorld(1) as world:
        world.begin()
        world.send()
        world.round()
        world.send()
        world.round()
        world.add()
        world.acknowledge()
        world.acknowledge(offset=1)
        world.round(5)
        assert world.asked == ["add", "produce", "produce"]


def test_the_sender_is_woken_for_a_new_partition_only() -> None:
    """It may have found the batch before its partition was in, and sleep."""
    with TransactionWorld() as world:
        world.begin()
        before = world.client.wakeups
        world.send()
        assert world.client.wakeups == before + 1
        world.manager.maybe_add_partition(TP0)
        assert world.client.wakeups == before + 1
        world.acknowledge()
        world.round(2)


def test_one_look_up_of_the_coordinator_is_enough() -> None:
    with TransactionWorld() as world:
        world.begin()
        world.manager.requests.lookup_coordinator()
        world.manager.requests.lookup_coordinator()
        assert world.manager.requests.coordinator is None
        world.find()
        world.round(5)
        assert world.asked == ["find"]


def test_the_coordinator_is_looked_for_in_an_abortable_error_too() -> None:
    """TransactionManagerTest#testRecoveryFromAbortableErrorTransactionStarted: the abort will want
    it.
    """
    with TransactionWorld() as world:
        world.begin()
        world.write()
        world.manager.transition_to_abortable_error(KafkaError("too large"))
        world.manager.requests.lookup_coordinator()
        world.client.requests.clear()
        world.find(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        world.find()
        world.round(4, ms=100)
        assert world.asked == ["find", "find"]
        assert world.manager.requests.coordinator is not None


# ---- errors --------------------------------------------------------------------------------------


def test_every_request_has_a_reaction_to_every_code() -> None:
    for kind in TxnRequestKind:
        assert reaction_to(kind, ErrorCode.NONE) is Reaction.DONE
        for code in ErrorCode:
            if code is not ErrorCode.NONE:
                assert reaction_to(kind, code) is not Reaction.DONE
    assert all(isinstance(kind, TxnRequestKind) for kind, _ in REACTIONS)


@pytest.mark.parametrize("code", FENCED)
@pytest.mark.parametrize("kind", ["init", "add", "end"])
def test_a_fenced_producer_is_at_its_end(kind: str, code: ErrorCode) -> None:
    """TransactionManagerTest#testProducerFencedExceptionInInitProducerId."""
    with TransactionWorld(1) as world:
        if kind == "init":
            result = world.manager.initialize_transactions()
            world.find()
            world.init(code)
            world.finish(result)
        else:
            world.begin()
            if kind == "add":
                world.send()
                world.add(error=code)
                world.round(3)
            else:
                world.write()
                result = world.manager.begin_commit()
                world.end(code)
                world.finish(result)
        if kind != "add":
            with pytest.raises(ProducerFencedError) as raised:
                result.await_(world.clock, NEVER)
            assert raised.value.code is ErrorCode.PRODUCER_FENCED
            assert TRANSACTIONAL_ID in raised.value.message
        assert world.state is State.FATAL_ERROR
        for call in (world.manager.begin_transaction, world.manager.begin_abort):
            with pytest.raises(ProducerFencedError, match="took over"):
                call()
        assert world.sender.fatal_error is not None


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("add", ErrorCode.INVALID_TXN_STATE),
        ("end", ErrorCode.INVALID_TXN_STATE),
        ("add", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("end", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("add", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("end", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("end", ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_no_abort_mends_is_fatal(kind: str, code: ErrorCode) -> None:
    """TransactionManagerTest#testInvalidTxnStateInAddPartitions."""
    with TransactionWorld(1) as world:
        world.begin()
        if kind == "add":
            world.send()
            world.add(error=code)
            world.round(3)
        else:
            world.write()
            world.end(code)
            world.finish(world.manager.begin_commit())
        assert world.state is State.FATAL_ERROR
        assert world.manager.fatal_error is not None
        assert isinstance(world.manager.fatal_error, ApiError)
        assert world.manager.fatal_error.code is code


def test_refused_partitions_fail_the_transaction_and_its_unsent_batches() -> None:
    """TransactionManagerTest#testTopicAuthorizationFailureInAddPartitions."""
    with TransactionWorld(1) as world:
        world.begin()
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


def test_after_an_abortable_error_what_was_sent_finishes_and_the_rest_is_dropped() -> None:
    """TransactionManagerTest#testRecoveryFromAbortableErrorTransactionStarted."""
    with TransactionWorld(1) as world:
        world.begin()
        world.write()
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


def test_an_abort_repeats_pending_partitions_and_retries_first() -> None:
    """TransactionManagerTest#testAbortResendsProduceRequestIfRetried."""
    with TransactionWorld(1) as world:
        world.begin()
        world.write()
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


@pytest.mark.parametrize("kind", ["find", "init", "add", "produce", "commit"])
def test_transaction_abortable_leads_to_an_abort(kind: str) -> None:
    """TransactionManagerTest#testTransactionAbortableExceptionInInitProducerId."""
    code = ErrorCode.TRANSACTION_ABORTABLE
    with TransactionWorld(1) as world:
        if kind in ("find", "init"):
            result = world.manager.initialize_transactions()
            world.find(code if kind == "find" else ErrorCode.NONE)
            if kind == "init":
                world.init(code)
            world.finish(result)
            with pytest.raises(TransactionAbortableError):
                result.await_(world.clock, NEVER)
            assert world.state is State.ABORTABLE_ERROR
            world.await_(world.manager.begin_abort())
            assert world.state is State.UNINITIALIZED
            world.initialize() if kind == "find" else None
            return
        world.begin()
        if kind == "add":
            world.send()
            world.add(error=code)
            world.round(3)
        else:
            world.write()
            if kind == "produce":
                world.send()
                world.refuse(code)
                world.round(3)
            else:
                commit = world.manager.begin_commit()
                world.end(code)
                world.finish(commit)
                with pytest.raises(TransactionAbortableError):
                    commit.await_(world.clock, NEVER)
            world.end()
        assert world.state is State.ABORTABLE_ERROR
        world.await_(world.manager.begin_abort())
        assert world.state is State.READY


@BOTH
def test_transaction_abortable_in_an_abort_is_fatal(version: int) -> None:
    """TransactionManagerTest#testTransactionAbortableExceptionInInitProducerId."""
    with TransactionWorld(version) as world:
        world.begin()
        world.write()
        abort = world.manager.begin_abort()
        world.end(ErrorCode.TRANSACTION_ABORTABLE)
        world.finish(abort)
        with pytest.raises(TransactionAbortableError):
            abort.await_(world.clock, NEVER)
        assert world.state is State.FATAL_ERROR


@pytest.mark.parametrize(("init", "state"), [(2, State.FATAL_ERROR), (3, State.ABORTABLE_ERROR)])
@pytest.mark.parametrize("kind", ["add", "end"])
def test_an_unknown_producer_is_fatal_where_no_epoch_can_be_raised(
    kind: str, init: int, state: State
) -> None:
    """TransactionManagerTest#testTransitionToAbortableErrorOnBatchExpiry, for the coordinator's own
    word.
    """
    with TransactionWorld(1, init=init) as world:
        world.begin()
        if kind == "add":
            world.send()
            world.add(error=ErrorCode.UNKNOWN_PRODUCER_ID)
            world.round(2)
        else:
            world.write()
            world.manager.begin_commit()
            world.end(ErrorCode.UNKNOWN_PRODUCER_ID)
            world.round(2)
        assert world.state is state


def test_an_answer_after_the_end_changes_nothing() -> None:
    with TransactionWorld() as world:
        result = world.manager.initialize_transactions()
        world.find()
        world.round(2)
        world.manager.transition_to_fatal_error(KafkaError("the end"))
        world.init()
        world.round()
        assert world.state is State.FATAL_ERROR
        assert not world.manager.has_producer_id
        with pytest.raises(KafkaError, match="the end"):
            result.await_(world.clock, NEVER)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED],
)
def test_an_id_that_is_refused_may_be_asked_for_again_when_rights_are_given(
    code: ErrorCode,
) -> None:
    with TransactionWorld() as world:
        result = world.manager.initialize_transactions()
        world.find()
        world.init(code)
        world.finish(result)
        with pytest.raises(AuthorizationError):
            result.await_(world.clock, NEVER)
        assert world.state is State.UNINITIALIZED
        again = world.manager.initialize_transactions()
        world.init()
        world.await_(again)


@pytest.mark.parametrize(
    "error", [UnsupportedVersionError("no common version"), AuthenticationError("wrong password")]
)
def test_a_request_that_can_never_be_sent_is_fatal(error: ApiError) -> None:
    with TransactionWorld() as world:
        result = world.manager.initialize_transactions()
        world.client.prepare(FindCoordinatorRequest, error=error)
        world.finish(result)
        with pytest.raises(type(error)):
            result.await_(world.clock, NEVER)
        assert world.sender.fatal_error is error


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
        assert world.sender.fatal_error is refused


def test_the_first_error_is_the_one_that_is_told() -> None:
    with TransactionWorld() as world:
        world.begin()
        world.manager.transition_to_abortable_error(KafkaError("first"))
        world.manager.transition_to_abortable_error(KafkaError("second"))
        with pytest.raises(KafkaError, match="first"):
            world.manager.maybe_fail_with_error()
        world.manager.transition_to_fatal_error(KafkaError("third"))
        world.manager.transition_to_fatal_error(KafkaError("fourth"))
        with pytest.raises(KafkaError, match="third"):
            world.manager.ensure_in_transaction()


# ---- calls that time out -------------------------------------------------------------------------


@BOTH
def test_a_commit_that_timed_out_is_called_again_and_nothing_else_meanwhile(version: int) -> None:
    """TransactionManagerTest#testRetryCommitTransactionAfterTimeout."""
    with TransactionWorld(version) as world:
        world.begin()
        world.write()
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
    """TransactionManagerTest#testRetryCommitTransactionAfterTimeout."""
    with TransactionWorld() as world:
        world.begin()
        world.write()
        abort = world.manager.begin_abort()
        with pytest.raises(KafkaTimeoutError):
            abort.await_(world.clock, world.clock.now_ms())
        with pytest.raises(IllegalStateError, match="abort_transaction before it timed out"):
            world.manager.begin_commit()
        assert world.manager.begin_abort() is abort
        world.end()
        world.await_(abort)


def test_init_that_timed_out_is_called_again() -> None:
    """TransactionManagerTest#testRetryCommitTransactionAfterTimeout."""
    with TransactionWorld() as world:
        result = world.manager.initialize_transactions()
        with pytest.raises(KafkaTimeoutError):
            result.await_(world.clock, world.clock.now_ms())
        assert world.manager.initialize_transactions() is result
        world.find()
        world.init()
        world.await_(result)


def test_a_result_wakes_all_its_waiters_and_the_first_outcome_counts() -> None:
    clock = FakeClock(threads=4)
    result = TransactionalResult("commit_transaction")
    seen: list[str] = []

    def wait() -> None:
        try:
            result.await_(clock, NEVER)
        except KafkaError as error:
            seen.append(error.message)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    clock.await_waiters(3)
    assert not result.is_acked
    result.fail(KafkaError("first"))
    result.fail(KafkaError("second"))
    result.done()
    for thread in threads:
        thread.join(60)
    assert seen == ["first"] * 3
    assert result.is_acked


# ---- prepared ------------------------------------------------------------------------------------


@BOTH
def test_a_prepared_transaction_is_nobodys_here(version: int) -> None:
    with TransactionWorld(version) as world:
        world.begin()
        world.write()
        prepared = world.manager.prepare()
        assert prepared == PreparedTransaction(TRANSACTIONAL_ID, PRODUCER_ID, 0, version)
        assert pickle.loads(pickle.dumps(prepared)) == prepared
        assert world.manager.partitions == {TP0}
        world.client.requests.clear()
        for call in (
            world.manager.begin_commit,
            world.manager.begin_abort,
            world.manager.begin_transaction,
            world.manager.initialize_transactions,
            world.manager.prepare,
            lambda: world.manager.maybe_add_partition(TP1),
            lambda: world.manager.transition_to_abortable_error(KafkaError("late")),
        ):
            with pytest.raises(IllegalStateError):
                call()
        assert not world.manager.may_leave(ProducerBatch(TP0, 0, 1, 0, Listener()))
        assert not world.manager.reusable
        world.sender.initiate_close()
        world.sender.run()
        assert world.asked == [], "closing ended a prepared transaction"
        assert world.state is State.PREPARED


def test_a_forced_close_or_a_failure_leaves_a_prepared_transaction_alone() -> None:
    for end in ("force", "fatal"):
        with TransactionWorld() as world:
            world.begin()
            world.write()
            world.manager.prepare()
            world.client.requests.clear()
            if end == "force":
                world.sender.force_close()
            else:
                world.manager.transition_to_fatal_error(KafkaError("a bug"))
                world.sender.initiate_close()
            world.sender.run()
            assert world.asked == []


def test_only_what_is_acknowledged_can_be_prepared() -> None:
    with TransactionWorld(1) as world:
        world.begin()
        with pytest.raises(IllegalStateError, match="nothing was written"):
            world.manager.prepare()
        world.send()
        with pytest.raises(IllegalStateError, match="flush"):
            world.manager.prepare()
        world.add()
        world.round(2)
        with pytest.raises(IllegalStateError, match="flush"):
            world.manager.prepare()
        world.acknowledge()
        world.round(1)
        world.manager.prepare()


def test_a_transaction_that_failed_cannot_be_prepared() -> None:
    with TransactionWorld() as world:
        world.begin()
        world.write()
        world.manager.transition_to_abortable_error(KafkaError("row 7 is too large"))
        with pytest.raises(KafkaError, match="row 7"):
            world.manager.prepare()


@BOTH
def test_an_id_whose_prepared_transaction_was_ended_is_initialised_anew(version: int) -> None:
    with TransactionWorld(version) as world:
        world.begin()
        world.write()
        world.end()
        world.await_(world.manager.begin_commit())
        world.manager.begin_transaction()
        if version == 1:
            world.init()
            world.round(2)
        world.write(offset=2)
        world.manager.prepare()
        world.manager.forget_prepared()
        assert world.state is State.UNINITIALIZED
        assert not world.manager.has_producer_id
        world.client.requests.clear()
        world.epoch = 4
        result = world.manager.initialize_transactions()
        world.init()
        world.await_(result)
        assert world.asked == ["init"], "the coordinator is still known"
        # An identity of before, told, would be called fenced.
        assert world.client.sent(InitProducerIdRequest)[0].producer_id == -1
        world.manager.begin_transaction()
        world.write(offset=3)
        assert [(b.epoch, b.sequence) for b in world.produced] == [(5, 0)]


# ---- the end of what cannot be sent --------------------------------------------------------------


def test_an_abort_drops_what_was_never_sent() -> None:
    """SenderTest#testAwaitPendingRecordsBeforeCommittingTransaction, second half."""
    with TransactionWorld() as world:
        world.begin()
        world.write()
        batches = [world.send(tp) for tp in (TP0, TP1, TP2)]
        abort = world.manager.begin_abort()
        world.end()
        world.await_(abort)
        for batch in batches:
            assert isinstance(batch.error, TransactionAbortedError)
        assert world.memory_in_use == 0
        assert world.asked == ["produce", "end"]


def test_closing_fails_whoever_waits_for_a_request() -> None:
    world = TransactionWorld()
    result = world.manager.initialize_transactions()
    world.round(2)
    world.sender.force_close()
    world.sender.run()
    with pytest.raises(KafkaError, match="closed"):
        result.await_(world.clock, NEVER)


def test_what_a_transaction_failed_with_keeps_its_own_hint() -> None:
    with TransactionWorld() as world:
        world.begin()
        world.manager.transition_to_abortable_error(KafkaError("too early", hint="set the clock"))
        with pytest.raises(KafkaError, match="too early") as caught:
            world.manager.begin_commit()
        assert caught.value.hint is not None
        assert caught.value.hint.startswith("set the clock; this transaction can only be aborted")


def test_an_invalid_state_of_the_transaction_is_kept_as_the_cause() -> None:
    """TransactionManagerTest#testInvalidProducerEpochFromProduce, with KIP-1050's words."""
    with TransactionWorld() as world:
        world.begin()
        world.write()
        world.send()
        world.refuse(ErrorCode.INVALID_TXN_STATE)
        world.round(3)
        error = world.manager.last_error
        assert isinstance(error, TransactionAbortableError)
        assert "Transaction Request was aborted after exhausting retries." in error.message
        assert isinstance(error.__cause__, InvalidTxnStateError)


# ---- without a sender: what each guard alone holds back ------------------------------------------


def ask(manager: TransactionManager, body: object, kind: TxnRequestKind) -> None:
    """The next request, which must be of ``kind``, is answered with ``body``."""
    request, _ = manager.requests.next_request(0, has_incomplete=False)
    assert request is not None
    assert request.kind is kind
    manager.requests.build(request)
    manager.requests.handle_response(request, body, "here")


def initialized() -> TransactionManager:
    manager = TransactionManager(transactional_id=TRANSACTIONAL_ID)
    result = manager.initialize_transactions()
    ask(manager, InitProducerIdResponse(ErrorCode.NONE, 7, 0), TxnRequestKind.INIT_PRODUCER_ID)
    result.await_(FakeClock(), NEVER)
    return manager


def test_prepare_is_held_back_by_each_thing_that_is_without_its_answer() -> None:
    manager = initialized()
    incomplete = False
    manager.attach(lambda: None, lambda: incomplete)
    manager.begin_transaction()

    def refused() -> None:
        with pytest.raises(IllegalStateError, match="not acknowledged"):
            manager.prepare()
        assert manager.state is State.IN_TRANSACTION

    manager.maybe_add_partition(TP0)
    refused()  # a partition to be added
    request, _ = manager.requests.next_request(0, has_incomplete=True)
    assert request is not None
    manager.requests.build(request)
    refused()  # a partition that is asked for
    added = AddPartitionsToTxnResponse({TP0: ErrorCode.NONE})
    manager.requests.handle_response(request, added, "here")
    batch = ProducerBatch(TP0, 0, 1, 0, Listener())
    batch.append(b"", 1, 0)
    batch.close(Codec())
    manager.batch_sent(batch)
    refused()  # a sequence without an answer
    manager.handle_answer(batch, Answer.ACKNOWLEDGED, 0, 0)
    incomplete = True
    refused()  # a batch in the accumulator
    incomplete = False
    assert manager.prepare() == PreparedTransaction(TRANSACTIONAL_ID, 7, 0, 1)


def test_whoever_waits_learns_of_the_end_wherever_the_request_is() -> None:
    """An application thread may fail the producer while the network thread has a request in its
    hands: not in the queue, and not in flight.
    """
    for moment in ("queued", "in flight", "answered, to be asked again", "given back"):
        manager = TransactionManager(transactional_id=TRANSACTIONAL_ID)
        result = manager.initialize_transactions()
        error = KafkaError("the end")
        if moment != "queued":
            request, _ = manager.requests.next_request(0, has_incomplete=False)
            assert request is not None
            if moment == "answered, to be asked again":
                loading = InitProducerIdResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
                manager.requests.handle_response(request, loading, "here")
        manager.transition_to_fatal_error(error)
        if moment == "given back":
            manager.requests.retry(request, 0)
        assert result.error is error, moment
        assert manager.requests.next_request(0, has_incomplete=False)[0] is None


def test_a_request_that_is_given_back_after_the_end_is_not_asked_again() -> None:
    manager = initialized()
    manager.begin_transaction()
    manager.maybe_add_partition(TP0)
    request, _ = manager.requests.next_request(0, has_incomplete=False)
    assert request is not None
    loading = AddPartitionsToTxnResponse({TP0: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
    manager.requests.build(request)
    manager.requests.handle_response(request, loading, "here")
    error = KafkaError("the end")
    manager.transition_to_fatal_error(error)
    manager.requests.retry(request, 0)
    assert request.result.error is error
    assert not manager.requests.waiting
