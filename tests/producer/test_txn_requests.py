"""The requests to the coordinator by themselves: reactions, backoff, results, the queue's end."""

from __future__ import annotations

import threading

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode, KafkaError
from spark_kafka_sink.producer.transaction.txn_requests import (
    REACTIONS,
    Reaction,
    TransactionalResult,
    TxnBackoff,
    TxnRequest,
    TxnRequestKind,
    reaction_to,
)
from tests.fakes.clock import FakeClock
from tests.fakes.kafka_messages import add_response, init_response
from tests.fakes.sender_world import TP0
from tests.fakes.transaction_world import TRANSACTIONAL_ID, initialized_manager, new_manager


def test_every_request_has_a_reaction_to_every_code() -> None:
    for kind in TxnRequestKind:
        assert reaction_to(kind, ErrorCode.NONE) is Reaction.DONE
        for code in ErrorCode:
            if code is not ErrorCode.NONE:
                assert reaction_to(kind, code) is not Reaction.DONE
    assert all(isinstance(kind, TxnRequestKind) for kind, _ in REACTIONS)


def test_a_concurrent_transaction_is_retried_less_and_less_often() -> None:
    """200 tasks that wait for a broker with markers to write must not ask 50 times a second."""
    backoff = TxnBackoff(100, 1_000, random=lambda: 0.5)
    request = TxnRequest(TxnRequestKind.INIT_PRODUCER_ID, TransactionalResult("init_transactions"))
    assert [backoff.soon(request) for _ in range(6)] == [20, 40, 80, 160, 320, 640]
    assert backoff.soon(request) == pytest.approx(1_000, abs=1)
    assert [backoff.plain(request) for _ in range(4)] == [100, 200, 400, 800]


def test_a_result_wakes_all_waiters_and_the_first_outcome_counts() -> None:
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


def test_every_waiter_learns_of_the_end() -> None:
    """An application thread may fail the producer while the network thread has a request in its
    hands: not in the queue, and not in flight.
    """
    for moment in ("queued", "in flight", "answered, to be asked again", "given back"):
        manager = new_manager(TRANSACTIONAL_ID)
        result = manager.initialize_transactions()
        error = KafkaError("the end")
        if moment != "queued":
            request, _ = manager.requests.next_request(0)
            assert request is not None
            if moment == "answered, to be asked again":
                loading = init_response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
                manager.requests.handle_response(request, loading, "here")
        manager.transition_to_fatal_error(error)
        if moment == "given back":
            manager.requests.retry(request, 0)
        assert result.error is error, moment
        assert manager.requests.next_request(0)[0] is None


def test_a_request_returned_after_the_end_is_not_sent_again() -> None:
    manager = initialized_manager()
    manager.begin_transaction()
    manager.maybe_add_partition(TP0)
    request, _ = manager.requests.next_request(0)
    assert request is not None
    loading = add_response({TP0: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
    manager.requests.build(request)
    manager.requests.handle_response(request, loading, "here")
    error = KafkaError("the end")
    manager.transition_to_fatal_error(error)
    manager.requests.retry(request, 0)
    assert request.result.error is error
    assert not manager.requests.waiting
