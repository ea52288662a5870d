"""Batches that run into delivery.timeout.ms: queued, in flight, in doubt."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ApiError, ErrorCode, KafkaTimeoutError
from tests.fakes.sender_world import TP2, SenderWorld, cluster_of, error_of


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_past_delivery_timeout_a_batch_is_not_split_nor_retried(code: ErrorCode) -> None:
    """SenderTest#testExpiredBatchDoesNotSplitOnMessageTooLargeError,
    SenderTest#testExpiredBatchDoesNotRetry: the time runs out inside the very poll that brings the
    answer.
    """
    with SenderWorld(idempotent=False) as world:
        batch = world.append(records=2)
        world.refuse(code)
        world.client.on_poll = lambda: world.clock.advance(120_000)
        world.round(1)
        assert isinstance(error_of(batch), ApiError)
        assert world.memory_in_use == 0
        assert not world.accumulator.incomplete
        assert world.recorder.report().splits == 0


def test_a_batch_in_doubt_expires_too() -> None:
    with SenderWorld(established=True) as world:
        old = world.append()
        world.round(1)
        world.clock.advance(60_000)
        world.append()
        world.round(1)
        world.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.round(1)
        world.clock.advance(59_999)
        world.round(1)
        assert not old.is_done
        assert world.client.poll_timeouts[-1] <= 1
        world.clock.advance(1)
        world.sender.run()
        assert isinstance(error_of(old), KafkaTimeoutError)
        assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in error_of(old).message


def test_a_queued_batch_expires_with_the_reason_it_was_not_sent() -> None:
    with SenderWorld(cluster=cluster_of([-1, 1, 2])) as world:
        world.client.failures = {"two:9092": "connection refused"}
        batch = world.append()
        world.round(1)
        world.clock.advance(120_000)
        world.sender.run()
        error = error_of(batch)
        assert isinstance(error, KafkaTimeoutError)
        for words in ("1 record(s) for t-0", "120000 ms", "no leader", "two:9092"):
            assert words in error.message
        assert "delivery.timeout.ms" in (error.hint or "")
        assert world.produced == []


def test_a_batch_never_sent_names_what_holds_its_partition() -> None:
    """Not its leader, which may be alive: batches of a partition are sent in order."""
    with SenderWorld() as world:
        world.append()
        world.round(1)
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.round(1)
        waiting = world.append()
        world.clock.advance(world.config.delivery_timeout_ms)
        world.round(1)
        message = error_of(waiting).message
        assert "never sent: an earlier batch of its partition has no outcome" in message
        assert "NOT_ENOUGH_REPLICAS" in message
        assert "leader" not in message
    with SenderWorld() as world:
        world.append()
        world.round(1)
        waiting = world.append()
        world.round(1, ms=world.config.delivery_timeout_ms)
        assert "has no outcome: broker one:9092 (id 1) has not" in error_of(waiting).message


def test_a_batch_never_sent_names_the_failed_addresses() -> None:
    with SenderWorld(idempotent=False) as world:
        batch = world.append()
        world.client.unready = {1: NEVER, 2: NEVER}
        world.client.failures = {"one:9092": "Connection refused"}
        world.round(2, ms=world.config.delivery_timeout_ms)
        assert "never sent" in error_of(batch).message
        assert "one:9092: Connection refused" in error_of(batch).message


def test_an_expired_batch_frees_its_memory_with_its_answer() -> None:
    """SenderTest#testInflightBatchesExpireOnDeliveryTimeout, SenderTest#testNoDoubleDeallocation:
    not before.
    """
    with SenderWorld(idempotent=False) as world:
        batch = world.append()
        world.round(1)
        in_use = world.memory_in_use
        world.clock.advance(120_000)
        world.round(1)
        assert isinstance(error_of(batch), KafkaTimeoutError)
        assert "one:9092 (id 1) has not responded" in error_of(batch).message
        assert world.memory_in_use == in_use
        world.acknowledge()
        world.round(1)
        assert world.memory_in_use == 0
        assert world.recorder.report().rows == 0


def test_the_poll_ends_in_time_to_expire_a_batch_in_flight() -> None:
    with SenderWorld() as world:
        world.append()
        world.round(2)
        assert world.client.poll_timeouts[-1] == 120_000


def test_with_idempotence_an_expired_batch_fails_the_attempt() -> None:
    """In place of SenderTest#testExpiryOfUnsentBatchesShouldNotCauseUnresolvedSequences,
    SenderTest#testUnresolvedSequencesAreNotFatal.
    """
    with SenderWorld(established=True) as world:
        old = world.append()
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.round(2)
        world.clock.advance(119_999)
        young = world.append(TP2)
        world.clock.advance(1)
        world.sender.run()
        assert (
            "the last response, from broker one:9092 (id 1), was NOT_ENOUGH_REPLICAS"
            " (fewer replicas are in sync than min.insync.replicas)"
        ) in str(error_of(old))
        assert error_of(old).hint.startswith("start the brokers that are down, or wait")
        assert "; kafka.delivery.timeout.ms limits" in error_of(old).hint
        assert error_of(young) is error_of(old)
        assert world.client.closed


def test_a_broker_that_waited_for_others_says_so() -> None:
    """It is alive: who is down did not confirm the batch."""
    with SenderWorld(idempotent=False) as world:
        world.append()
        world.refuse(ErrorCode.REQUEST_TIMED_OUT)
        world.round(1)
        answer = world.recorder.report().nodes[1].last_answer
        assert "its replicas did not confirm it in time" in answer


def test_a_failed_connection_is_its_brokers_last_answer() -> None:
    with SenderWorld(idempotent=False) as world:
        world.client.new_failures = {2: "two:9092: Connection refused", -1: "boot:9092: refused"}
        world.round(1)
        nodes = world.recorder.report().nodes
        assert {n: seen.last_answer for n, seen in nodes.items()} == {
            2: "two:9092: Connection refused"
        }


def test_a_refusal_is_its_brokers_last_answer() -> None:
    with SenderWorld(idempotent=False) as world:
        batch = world.append()
        world.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        world.round(1)
        assert error_of(batch).message in world.recorder.report().nodes[1].last_answer
