"""What the sender sends again: the same bytes, to whom, after which wait, and in halves."""

from __future__ import annotations

import pickle

import pytest

from spark_kafka_sink.base.errors import (
    DisconnectError,
    ErrorCode,
    RecordTooLargeError,
    RemoteProtocolError,
)
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.produce import ProduceRequest
from tests.fakes.sender_world import (
    BACKOFF,
    TP0,
    SenderWorld,
    acknowledged,
    error_of,
    metadata_answer,
)


@pytest.mark.parametrize(
    "lost",
    [
        {"disconnected": True},
        {"timed_out": True},
        {"error": RemoteProtocolError("broken bytes")},
    ],
    ids=["disconnect", "time-out", "protocol error"],
)
def test_a_retry_sends_the_same_bytes_until_there_is_an_answer(lost: dict) -> None:
    """SenderTest#testRetries: its first half."""
    with SenderWorld() as world:
        batch = world.append(records=2)
        world.client.prepare(ProduceRequest, **lost)
        world.round(2)
        assert not batch.is_done
        world.round()
        assert len(world.produced) == 1, "backoff was not kept"
        world.acknowledge(offset=5)
        world.round(2, ms=BACKOFF)
        assert acknowledged(batch)
        first, second = world.client.produced
        before, after = first.data[0].buffers, second.data[0].buffers
        assert [id(part) for part in before] == [id(part) for part in after]
        assert world.recorder.report().retries == 1


def test_a_partition_that_the_answer_leaves_out_is_sent_again() -> None:
    with SenderWorld() as world:
        batch = world.append()
        world.prepare()
        world.round(2)
        assert not batch.is_done
        world.acknowledge()
        world.round(2, ms=BACKOFF)
        assert acknowledged(batch)


def test_retries_end_and_the_error_names_where_how_often_and_why() -> None:
    """SenderTest#testRetries: disconnect, retried up to ``retries``, then Java's
    NetworkException.
    """
    with SenderWorld(idempotent=False, retries=1) as world:
        batch = world.append(records=3)
        world.lose()
        world.round(2)
        world.lose()
        world.round(2, ms=BACKOFF)
        error = error_of(batch)
        assert isinstance(error, DisconnectError)
        for words in ("t-0", "one:9092 (id 1)", "attempt 2", "100 ms", "NETWORK_EXCEPTION"):
            assert words in error.message
        assert pickle.loads(pickle.dumps(error)).message == error.message
        assert world.memory_in_use == 0
        assert world.lifecycle.fatal is None


@pytest.mark.parametrize("idempotent", [True, False])
def test_with_one_in_flight_the_second_waits_even_over_a_retry(*, idempotent: bool) -> None:
    """SenderTest#testSendInOrder,
    SenderTest#testWhenFirstBatchExpireNoSendSecondBatchIfGuaranteeOrder.
    """
    with SenderWorld(idempotent=idempotent, max_in_flight_requests_per_connection=1) as world:
        first, second = world.append(records=1), world.append(records=2)
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.round(3)
        assert len(world.produced) == 1
        world.round(1, ms=BACKOFF)
        assert len(world.produced) == 2
        world.acknowledge(offset=0)
        world.round(1)
        assert acknowledged(first)
        world.acknowledge(offset=1)
        world.round(2)
        assert acknowledged(second)
        assert world.sequences == ([0, 0, 1] if idempotent else [-1, -1, -1])


def test_one_in_flight_waits_for_the_old_leaders_answer() -> None:
    """The connection to the new one is free, but the first batch may still be refused."""
    with SenderWorld(idempotent=False, max_in_flight_requests_per_connection=1) as world:
        first, second = world.append(), world.append()
        world.acknowledge(after_ms=1000)
        world.round(2)
        world.client.prepare_metadata(metadata_answer([2, 2, 2], epoch=2))
        world.metadata.request_update()
        world.round(2)
        known = world.metadata.cluster.partition(TP0)
        assert known is not None
        assert known.leader == 2
        assert [r.destination for r in world.client.requests] == [1]
        world.round(1, ms=1000)
        assert acknowledged(first)
        world.acknowledge(offset=1)
        world.round(2)
        assert acknowledged(second)
        assert [r.destination for r in world.client.requests] == [1, 2]


def test_an_invalid_metadata_error_sends_to_the_next_leader() -> None:
    """SenderTest#testWhenProduceResponseReturnsWithALeaderShipChangeErrorButNoNewLeaderInformation."""
    with SenderWorld() as world:
        batch = world.append()
        world.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        world.round(2)
        world.client.prepare_metadata(metadata_answer([2, 2, 2], epoch=2))
        world.round(1)
        world.acknowledge()
        world.round(2)
        assert acknowledged(batch)
        assert [r.destination for r in world.client.requests[1:]] == [1, 2]


def test_a_leader_hint_is_used_without_backoff_and_metadata() -> None:
    """SenderTest#testWhenProduceResponseReturnsWithALeaderShipChangeErrorAndNewLeaderInformation,
    KIP-951.
    """
    node3 = Node(3, "three", 9092)
    with SenderWorld() as world:
        batch = world.append()
        world.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=(3, 9), nodes=(node3,))
        world.round(2)
        world.acknowledge()
        world.round(2)
        assert acknowledged(batch)
        assert [r.destination for r in world.client.requests[1:]] == [1, 3]
        assert world.client.metadata_requests == []


# ---- a batch that is too large -------------------------------------------------------------------


def test_a_too_large_batch_goes_as_two_at_its_own_sequences() -> None:
    """SenderTest#testIdempotentSplitBatchAndSend: attempts are not consumed; what was behind goes
    again after the halves.
    """
    with SenderWorld(retries=1, established=True) as world:
        whole, later = world.append(records=2), world.append()
        world.round(2)
        world.refuse(ErrorCode.MESSAGE_TOO_LARGE)
        world.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        world.round(1)
        for offset in (1, 2):
            world.acknowledge(offset=offset)
            world.round(2)
        world.acknowledge(offset=3)
        world.round(2, ms=BACKOFF)
        assert world.sequences == [1, 3, 1, 2, 3]
        assert whole.is_done
        assert acknowledged(later)
        report = world.recorder.report()
        assert (report.rows, report.splits) == (4, 1)
        assert world.memory_in_use == 0
        assert not world.accumulator.incomplete
        assert world.manager is not None
        assert world.manager.reusable
        first, second = (batch.data for batch in world.produced[2:4])
        assert first.endswith(b"v0\0")
        assert second.endswith(b"v1\0")


def test_a_too_large_first_batch_is_split_and_halves_go_alone() -> None:
    with SenderWorld() as world:
        world.append(records=4)
        later = world.append()
        world.refuse(ErrorCode.MESSAGE_TOO_LARGE)
        world.round(2)
        for offset in (0, 2):
            assert len(world.produced) == (2 if offset == 0 else 3)
            world.acknowledge(offset=offset)
            world.round(2)
        world.acknowledge(offset=4)
        world.round(2)
        assert acknowledged(later)
        assert world.sequences == [0, 0, 2, 4]


def test_a_single_record_that_is_too_large_fails() -> None:
    """SenderTest#testTooLargeBatchesAreSafelyRemoved."""
    with SenderWorld() as world:
        batch = world.append()
        world.refuse(ErrorCode.MESSAGE_TOO_LARGE)
        world.round(2)
        error = error_of(batch)
        assert isinstance(error, RecordTooLargeError)
        assert "max.message.bytes" in (error.hint or "")
