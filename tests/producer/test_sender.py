"""What Kafka's SenderTest checks, as far as it applies.

Rule R2 (a task attempt is replayable: once a sent batch fails for good the attempt fails)
takes the place of these:

* Sequences restart at 0 after UNKNOWN_PRODUCER_ID: the attempt fails.
* Unresolved sequences, epoch bump: an expired batch fails the attempt.
* Later sequences shift down, or are rewritten after an epoch bump: bytes are never changed.

Transactions are in ``test_sender_transactions.py``.
"""

from __future__ import annotations

import pickle

import pytest

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.errors import (
    ApiError,
    AuthenticationError,
    AuthorizationError,
    DisconnectError,
    ErrorCode,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    RemoteProtocolError,
    UnsupportedVersionError,
)
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.control_messages import InitProducerIdRequest
from spark_kafka_sink.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    RecordError,
)
from tests.fakes.sender_world import (
    NODE2,
    PRODUCER_ID,
    TP0,
    TP1,
    TP2,
    SenderWorld,
    cluster_of,
    metadata_answer,
)

BACKOFF = 100


def error_of(batch: ProducerBatch) -> ApiError:
    assert batch.is_done
    assert isinstance(batch.error, ApiError)
    return batch.error


def acknowledged(batch: ProducerBatch) -> bool:
    return batch.is_done and batch.error is None


# ---- the simple way ------------------------------------------------------------------------------


def test_a_batch_is_sent_and_acknowledged_with_its_offset() -> None:
    """SenderTest#testRetries, second half."""
    with SenderWorld() as world:
        batch = world.append(records=3)
        world.acknowledge(offset=42)
        world.round(2)
        assert acknowledged(batch)
        assert batch.base_offset == 42
        assert world.memory_in_use == 0
        sent = world.produced[0]
        assert (sent.producer_id, sent.epoch, sent.sequence) == (PRODUCER_ID, 0, 0)
        assert world.recorder.report().offsets == {TP0: (42, 44)}


def test_one_request_carries_all_partitions_of_a_node() -> None:
    with SenderWorld() as world:
        batches = [world.append(tp) for tp in (TP0, TP1, TP2)]
        world.prepare(
            PartitionProduceResponse(TP0, ErrorCode.NONE, 1),
            PartitionProduceResponse(TP1, ErrorCode.NONE, 2),
            throttle_ms=7,
        )
        world.acknowledge(TP2, 3)
        world.round(2)
        assert all(acknowledged(batch) for batch in batches)
        assert [r.destination for r in world.client.requests[1:]] == [1, 2]
        assert world.client.poll_timeouts[1] > 0, "each node's next request waits for this one"
        report = world.recorder.report()
        assert report.requests == 2
        assert report.throttle_ms == 7
        assert set(report.nodes) == {1, 2}


def test_acks_0_completes_on_write_with_an_unknown_offset() -> None:
    """Sender#handleProduceResponse."""
    with SenderWorld(idempotent=False, acks=0) as world:
        batch = world.append()
        world.round()
        assert acknowledged(batch)
        assert batch.base_offset == -1
        assert not world.client.requests[0].expect_response
        assert world.produced[0].sequence == -1


def test_a_partition_that_the_answer_leaves_out_is_sent_again() -> None:
    with SenderWorld() as world:
        batch = world.append()
        world.prepare()
        world.round(2)
        assert not batch.is_done
        world.acknowledge()
        world.round(2, ms=BACKOFF)
        assert acknowledged(batch)


def test_zstd_needs_produce_version_7() -> None:
    with SenderWorld(compression_type="zstd") as world:
        world.append()
        world.acknowledge()
        world.round(2)
        assert world.client.produced[0].versions == (7, 12)


# ---- retries -------------------------------------------------------------------------------------


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
    """SenderTest#testRetries, first half."""
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
        assert world.sender.fatal_error is None


def test_without_idempotence_a_failed_batch_fails_alone() -> None:
    with SenderWorld(idempotent=False) as world:
        bad, good = world.append(TP0), world.append(TP2)
        world.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        world.acknowledge(TP2)
        world.round(2)
        assert isinstance(error_of(bad), AuthorizationError)
        assert acknowledged(good)
        assert world.sender.fatal_error is None


def test_with_one_in_flight_the_second_batch_waits_even_across_a_retry() -> None:
    """SenderTest#testSendInOrder,
    SenderTest#testWhenFirstBatchExpireNoSendSecondBatchIfGuaranteeOrder.
    """
    with SenderWorld(max_in_flight_requests_per_connection=1) as world:
        first, second = world.append(), world.append()
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.round(3)
        assert world.sequences == [0]
        world.round(1, ms=BACKOFF)
        assert world.sequences == [0, 0]
        world.acknowledge(offset=0)
        world.round(1)
        assert acknowledged(first)
        world.acknowledge(offset=1)
        world.round(2)
        assert acknowledged(second)
        assert world.sequences == [0, 0, 1]


def test_with_one_in_flight_and_no_idempotence_order_is_kept_too() -> None:
    """SenderTest#testSendInOrder."""
    with SenderWorld(idempotent=False, max_in_flight_requests_per_connection=1) as world:
        first, second = world.append(records=1), world.append(records=2)
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.round(3)
        assert len(world.produced) == 1
        world.acknowledge()
        world.round(1, ms=BACKOFF)
        assert acknowledged(first)
        world.acknowledge(offset=1)
        world.round(2)
        assert acknowledged(second)


def test_with_one_in_flight_a_new_leader_gets_nothing_before_the_old_one_answered() -> None:
    """The connection to the new one is free, but the first batch may still be refused."""
    with SenderWorld(idempotent=False, max_in_flight_requests_per_connection=1) as world:
        first, second = world.append(), world.append()
        world.acknowledge(after_ms=1000)
        world.round(2)
        world.client.prepare_metadata(metadata_answer([2, 2, 2], epoch=2))
        world.metadata.request_update()
        world.round(2)
        known = world.metadata.fetch().partition(TP0)
        assert known is not None
        assert known.leader == 2
        assert [r.destination for r in world.client.requests] == [1]
        world.round(1, ms=1000)
        assert acknowledged(first)
        world.acknowledge(offset=1)
        world.round(2)
        assert acknowledged(second)
        assert [r.destination for r in world.client.requests] == [1, 2]


def test_a_batch_that_was_never_sent_says_which_addresses_failed_and_why() -> None:
    with SenderWorld(idempotent=False) as world:
        batch = world.append()
        world.client.unready = {1: NEVER, 2: NEVER}
        world.client.failures = {"one:9092": "Connection refused"}
        world.round(2, ms=world.config.delivery_timeout_ms)
        assert "never sent" in error_of(batch).message
        assert "one:9092: Connection refused" in error_of(batch).message


def test_an_invalid_metadata_error_asks_for_metadata_and_the_next_leader_gets_the_batch() -> None:
    """SenderTest#testWhenProduceResponseReturnsWithALeaderShipChangeErrorAndNewLeaderInformation,
    second half.
    """
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


def test_a_leader_hint_sends_to_the_new_leader_with_no_backoff_and_no_metadata() -> None:
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


# ---- identity ------------------------------------------------------------------------------------


def test_nothing_leaves_before_the_producer_id_is_there() -> None:
    """SenderTest#testInitProducerIdRequest."""
    with SenderWorld(with_id=False) as world:
        batch = world.append()
        world.prepare_id(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        world.round(2)
        world.client.prepare(InitProducerIdRequest, disconnected=True)
        world.round(2, ms=BACKOFF)
        assert world.client.produced == []
        assert not batch.is_done
        world.prepare_id()
        world.round(1, ms=BACKOFF)
        world.acknowledge()
        world.round(2)
        assert acknowledged(batch)
        assert len(world.client.sent(InitProducerIdRequest)) == 3


def test_the_producer_id_is_asked_of_any_node() -> None:
    with SenderWorld(with_id=False) as world:
        world.client.unready = {1: NEVER}
        world.prepare_id()
        world.round(1)
        assert world.client.requests[0].destination == 2
        assert world.manager is not None
        assert world.manager.has_producer_id


@pytest.mark.parametrize(
    ("prepared", "kind"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, AuthorizationError),
        (UnsupportedVersionError("no common version"), UnsupportedVersionError),
        (AuthenticationError("wrong password"), AuthenticationError),
    ],
)
def test_an_identity_that_is_refused_for_good_fails_the_producer(
    prepared: ErrorCode | ApiError, kind: type[ApiError]
) -> None:
    with SenderWorld(with_id=False) as world:
        batch = world.append()
        if isinstance(prepared, ErrorCode):
            world.prepare_id(prepared)
        else:
            world.client.prepare(InitProducerIdRequest, error=prepared)
        world.sender.run()
        assert isinstance(world.sender.fatal_error, kind)
        assert isinstance(error_of(batch), kind)


def test_no_node_for_the_producer_id_means_waiting_not_spinning() -> None:
    with SenderWorld(with_id=False) as world:
        world.client.unready = {1: NEVER, 2: NEVER}
        world.round(1)
        assert world.client.poll_timeouts[-1] == world.config.retry_backoff_ms


# ---- sequences -----------------------------------------------------------------------------------


def test_the_first_batch_on_a_partition_travels_alone_until_it_is_acknowledged() -> None:
    with SenderWorld() as world:
        batches = [world.append() for _ in range(3)]
        world.round(3)
        assert world.sequences == [0]
        assert world.client.poll_timeouts[-1] > 1_000, "it spins while it waits"
        for offset in range(3):
            world.acknowledge(offset=offset)
        world.round(4)
        assert all(acknowledged(batch) for batch in batches)
        assert world.sequences == [0, 1, 2]


def test_a_fresh_topics_first_batch_is_resent_alone_and_never_out_of_order() -> None:
    """The NOT_LEADER of a topic that is milliseconds old, where kafka-clients 3.9 loops on 45."""
    with SenderWorld() as world:
        batches = [world.append(records=2) for _ in range(3)]
        for _ in range(4):
            world.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            world.round(1, ms=BACKOFF)
        assert world.sequences == [0] * 4
        for offset in (0, 2, 4):
            world.acknowledge(offset=offset)
        world.round(5, ms=BACKOFF)
        assert all(acknowledged(batch) for batch in batches)
        assert world.sequences == [0] * 5 + [2, 4]


def test_five_are_in_flight_and_a_sixth_waits() -> None:
    """SenderTest#testIdempotenceWithMultipleInflights."""
    with SenderWorld() as world:
        world.establish()
        batches = [world.append() for _ in range(6)]
        world.round(7)
        assert world.sequences == [1, 2, 3, 4, 5]
        for offset in range(1, 7):
            world.acknowledge(offset=offset)
        world.round(3)
        assert all(acknowledged(batch) for batch in batches)
        assert world.sequences == [1, 2, 3, 4, 5, 6]


def test_batches_behind_a_refused_one_are_resent_one_at_a_time_before_a_new_one() -> None:
    """SenderTest#testIdempotenceWithMultipleInflightsRetriedInOrder."""
    with SenderWorld() as world:
        world.establish()
        batches = [world.append() for _ in range(3)]
        world.round(3)
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        world.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        world.round(1)
        batches.append(world.append())
        for sequence in (1, 2, 3):
            world.round(3, ms=BACKOFF)
            assert world.sequences[-1] == sequence
            world.acknowledge(offset=sequence)
            world.round(1)
        world.acknowledge(offset=4)
        world.round(2)
        assert all(acknowledged(batch) for batch in batches)
        assert world.sequences == [1, 2, 3, 1, 2, 3, 4]


def test_a_later_acknowledgement_settles_an_earlier_batch_that_waits_for_its_retry() -> None:
    """SenderTest#testCorrectHandlingOfOutOfOrderResponses."""
    with SenderWorld() as world:
        world.establish()
        first, second = world.append(records=5), world.append()
        world.round(2)
        world.refuse(ErrorCode.REQUEST_TIMED_OUT)
        world.acknowledge(offset=6)
        world.round(5, ms=BACKOFF)
        assert acknowledged(first)
        assert first.base_offset == -1
        assert acknowledged(second)
        assert world.sequences == [1, 6]
        assert world.memory_in_use == 0
        assert world.recorder.report().duplicates == 1
        assert world.manager is not None
        assert world.manager.reusable


def test_memory_of_a_proven_batch_is_held_until_its_own_answer_comes() -> None:
    """SenderTest#testInflightBatchesExpireOnDeliveryTimeout: its bytes may still be in the socket's
    hands.
    """
    with SenderWorld() as world:
        world.establish()
        first, second = world.append(), world.append()
        world.round(1)
        world.refuse(ErrorCode.REQUEST_TIMED_OUT)
        world.round(1)
        world.round(1, ms=BACKOFF)
        # The first is on the wire again when the second's acknowledgement comes: the client hands
        # prepared answers out in the order of sending, so the second is the elder now.
        assert world.sequences == [1, 2, 1]
        world.acknowledge(offset=2)
        world.lose(after_ms=50)
        world.round(1)
        assert acknowledged(first)
        assert acknowledged(second)
        assert world.memory_in_use > 0
        world.round(1, ms=50)
        assert world.memory_in_use == 0
        assert world.recorder.report().rows == 3


def test_a_forced_close_with_a_proven_batch_on_the_wire_ends_cleanly() -> None:
    """The network thread died of it: "the batch was already acknowledged"."""
    with SenderWorld() as world:
        world.establish()
        first, second = world.append(), world.append()
        world.round(1)
        world.refuse(ErrorCode.REQUEST_TIMED_OUT)
        world.round(1)
        world.round(1, ms=BACKOFF)
        world.acknowledge(offset=2)
        world.lose(after_ms=50)
        world.round(1)
        assert acknowledged(first)
        assert world.memory_in_use > 0
        queued = world.append()
        world.sender.force_close()
        world.sender.run()
        assert acknowledged(first)
        assert acknowledged(second)
        assert "closed before" in str(queued.error)
        assert world.client.closed
        assert world.memory_in_use == 0


def test_duplicate_sequence_number_is_success_with_an_unknown_offset() -> None:
    """SenderTest#testCorrectHandlingOfDuplicateSequenceError."""
    with SenderWorld() as world:
        batch = world.append()
        world.refuse(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        world.round(2)
        assert acknowledged(batch)
        assert batch.base_offset == -1
        assert world.recorder.report().duplicates == 1


def test_out_of_order_before_any_acknowledgement_fails_the_attempt() -> None:
    with SenderWorld() as world:
        batch = world.append()
        world.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        world.sender.run()
        error = error_of(batch)
        assert isinstance(error, OutOfOrderSequenceError)
        assert "no batch of this producer was acknowledged" in error.message
        assert world.sender.fatal_error is error


def test_out_of_order_on_the_first_in_flight_is_settled_by_what_is_behind_it() -> None:
    """Hazard H3: the answers that a real broker gave to four resent batches after a restart."""
    with SenderWorld() as world:
        world.establish()
        batches = [world.append(records=10) for _ in range(4)]
        world.round(4)
        for _ in batches:
            world.lose()
        world.round(1)
        late = world.append()
        for code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,) * 2:
            world.refuse(code)
            world.round(2, ms=BACKOFF)
        assert not any(batch.is_done for batch in batches)
        world.acknowledge(offset=21)
        world.round(2, ms=BACKOFF)
        assert [acknowledged(batch) for batch in batches] == [True, True, True, False]
        world.acknowledge(offset=31)
        world.acknowledge(offset=41)
        world.round(3, ms=BACKOFF)
        assert all(acknowledged(batch) for batch in (*batches, late))
        assert world.memory_in_use == 0


def test_the_attempt_fails_when_nothing_behind_is_accepted_either() -> None:
    with SenderWorld() as world:
        world.establish()
        first, second = world.append(), world.append()
        world.round(2)
        for _ in range(3):
            world.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        while world.sender.fatal_error is None:
            world.round(1, ms=BACKOFF)
        world.sender.run()
        assert isinstance(error_of(first), OutOfOrderSequenceError)
        assert "no later batch was accepted" in error_of(second).message


def test_unknown_producer_id_fails_the_attempt() -> None:
    """SenderTest#testIdempotentUnknownProducerHandlingWhenRetentionLimitReached, with rule R2."""
    with SenderWorld() as world:
        world.establish()
        batch = world.append()
        world.refuse(ErrorCode.UNKNOWN_PRODUCER_ID)
        world.round(2)
        assert isinstance(error_of(batch), OutOfOrderSequenceError)
        assert world.sender.fatal_error is not None


# ---- split ---------------------------------------------------------------------------------------


def test_a_too_large_batch_goes_as_two_at_its_own_sequences() -> None:
    """SenderTest#testIdempotentSplitBatchAndSend: attempts are not consumed; what was behind goes
    again after the halves.
    """
    with SenderWorld(retries=1) as world:
        world.establish()
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
        assert not world.accumulator.has_incomplete
        assert world.manager is not None
        assert world.manager.reusable
        first, second = (batch.data for batch in world.produced[2:4])
        assert first.endswith(b"v0\0")
        assert second.endswith(b"v1\0")


def test_a_too_large_first_batch_is_split_and_its_halves_travel_alone() -> None:
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


# ---- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_past_delivery_timeout_a_batch_is_neither_split_nor_retried(code: ErrorCode) -> None:
    """SenderTest#testTooLargeBatchesAreSafelyRemoved: the time runs out inside the very poll that
    brings the answer.
    """
    with SenderWorld(idempotent=False) as world:
        batch = world.append(records=2)
        world.refuse(code)
        world.client.on_poll = lambda: world.clock.advance(120_000)
        world.round(1)
        assert isinstance(error_of(batch), ApiError)
        assert world.memory_in_use == 0
        assert not world.accumulator.has_incomplete
        assert world.recorder.report().splits == 0


def test_a_batch_in_doubt_expires_too() -> None:
    with SenderWorld() as world:
        world.establish()
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


def test_a_queued_batch_expires_and_the_error_tells_why_it_was_never_sent() -> None:
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


def test_an_expired_batch_in_flight_gives_its_memory_back_once_when_its_answer_comes() -> None:
    """SenderTest#testInflightBatchesExpireOnDeliveryTimeout."""
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
    with SenderWorld() as world:
        world.establish()
        old = world.append()
        world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.round(2)
        world.clock.advance(119_999)
        young = world.append(TP2)
        world.clock.advance(1)
        world.sender.run()
        assert "the last response, from broker one:9092 (id 1), was NOT_ENOUGH_REPLICAS" in str(
            error_of(old)
        )
        assert error_of(old).hint.startswith(
            "brokers are down or lag behind; delivery.timeout.ms limits"
        )
        assert error_of(young) is error_of(old)
        assert world.client.closed


# ---- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.INVALID_RECORD, InvalidRecordError),
        (ErrorCode.INVALID_TIMESTAMP, InvalidRecordError),
        (ErrorCode.RECORD_LIST_TOO_LARGE, RecordTooLargeError),
        (ErrorCode.UNSUPPORTED_VERSION, UnsupportedVersionError),
    ],
)
def test_a_refused_batch_fails_the_attempt_with_its_own_error(
    code: ErrorCode, kind: type[ApiError]
) -> None:
    """SenderTest#testRecordErrorPropagatedToApplication,
    SenderTest#testCancelInFlightRequestAfterFatalError: in-flight and queued batches fail too,
    and nothing more is sent.
    """
    with SenderWorld() as world:
        world.establish(TP2)
        refused, queued, in_flight = world.append(TP0), world.append(TP0), world.append(TP2)
        world.refuse(code)
        world.sender.run()
        assert isinstance(error_of(refused), kind)
        assert error_of(refused).code is code
        assert error_of(queued) is error_of(refused)
        assert error_of(in_flight) is error_of(refused)
        assert len(world.client.produced) == 2
        assert world.client.closed
        assert world.memory_in_use == 0
        with pytest.raises(kind):
            world.accumulator.append([], world.clock.now_ms())


def test_what_the_broker_says_of_a_record_is_in_the_error() -> None:
    """SenderTest#testRecordErrorPropagatedToApplication."""
    with SenderWorld() as world:
        batch = world.append(records=3)
        errors = (RecordError(1, "Compacted topic cannot accept message without key"),)
        world.refuse(ErrorCode.INVALID_RECORD, record_errors=errors)
        world.round(2)
        assert "record 1 of the batch: Compacted topic cannot" in error_of(batch).message
        assert batch.record_errors == errors


def test_a_refused_record_comes_before_the_brokers_long_words_for_the_whole_batch() -> None:
    """A real broker sends both, and its message for the batch hides the record behind its length.

    With INVALID_TIMESTAMP it has no message for the record.
    """
    whole = "One or more records have been rejected due to 2 record errors in total " + "x" * 200
    with SenderWorld() as world:
        batch = world.append(records=3)
        errors = (RecordError(1, "no key"), RecordError(2, "no key"))
        world.refuse(ErrorCode.INVALID_RECORD, record_errors=errors, error_message=whole)
        world.round(2)
        assert "record 1 of the batch (and 1 more): no key" in error_of(batch).message
    with SenderWorld() as world:
        batch = world.append(records=3)
        world.refuse(
            ErrorCode.INVALID_TIMESTAMP, record_errors=(RecordError(2, None),), error_message="late"
        )
        world.round(2)
        assert "record 2 of the batch: late" in error_of(batch).message


def test_a_request_that_was_never_sent_for_its_version_fails_its_batches() -> None:
    with SenderWorld() as world:
        batch = world.append()
        refused = UnsupportedVersionError("PRODUCE: no", code=ErrorCode.UNSUPPORTED_VERSION)
        world.client.prepare(ProduceRequest, error=refused)
        world.round(2)
        assert isinstance(error_of(batch), UnsupportedVersionError)


def test_a_broker_that_refuses_who_we_are_fails_the_producer_at_once() -> None:
    with SenderWorld() as world:
        batch = world.append()
        world.client.unready = {1: NEVER}
        refused = AuthenticationError("SASL authentication failed")
        world.client.authentication_errors = {1: refused}
        world.sender.run()
        assert world.sender.fatal_error is refused
        assert batch.error is refused


def test_an_unexpected_exception_reaches_every_batch_and_waiter_and_is_not_repeated() -> None:
    with SenderWorld() as world:
        batches = [world.append(), world.append(TP2)]
        calls = []

        def explode() -> None:
            calls.append(1)
            raise ZeroDivisionError("boom")

        world.client.on_poll = explode
        world.sender.run()
        assert len(calls) == 1
        fatal = world.sender.fatal_error
        assert isinstance(fatal, KafkaError)
        assert "ZeroDivisionError: boom" in fatal.message
        assert isinstance(fatal.__cause__, ZeroDivisionError)
        assert [batch.error for batch in batches] == [fatal, fatal]
        assert world.client.closed
        with pytest.raises(KafkaError, match="ZeroDivisionError"):
            world.metadata.await_topics(["other"], world.clock.now_ms() + 1_000)


# ---- the loop ------------------------------------------------------------------------------------


def test_a_throttled_node_does_not_make_the_loop_spin() -> None:
    """SenderTest#testDoNotPollWhenNoRequestSent."""
    with SenderWorld() as world:
        batch = world.append()
        world.client.unready = {1: world.clock.now_ms() + 250}
        world.round(1)
        assert world.client.poll_timeouts[-1] == 250
        polls = len(world.client.poll_timeouts)
        world.round(1, ms=100)
        assert world.client.poll_timeouts[polls:] == [150]
        world.acknowledge()
        world.round(2, ms=150)
        assert acknowledged(batch)


def test_unknown_leaders_ask_for_metadata_and_the_batch_follows() -> None:
    with SenderWorld(cluster=cluster_of([-1, 1, 2])) as world:
        batch = world.append()
        world.client.prepare_metadata(metadata_answer([2, 1, 2]))
        world.round(2)
        world.acknowledge()
        world.round(2)
        assert acknowledged(batch)
        assert world.client.requests[-1].destination == NODE2.id


def test_an_idle_producer_polls_with_no_timer_and_wants_no_metadata() -> None:
    """Rule R4."""
    with SenderWorld() as world:
        world.establish()
        world.round(2)
        assert world.client.poll_timeouts[-1] == NEVER
        world.clock.advance(10 * world.config.metadata_max_age_ms)
        world.metadata.request_update()
        assert world.metadata.time_to_next_update(world.clock.now_ms()) == NEVER
        batch = world.append()
        world.client.prepare_metadata(metadata_answer([1, 1, 2]))
        world.acknowledge(offset=1)
        world.round(2)
        assert acknowledged(batch)


def test_a_partition_idle_for_a_minute_sends_its_next_batch_alone() -> None:
    with SenderWorld() as world:
        world.establish()
        world.clock.advance(61_000)
        world.append()
        world.append()
        world.round(3)
        assert world.sequences == [1]
        world.acknowledge(offset=1)
        world.acknowledge(offset=2)
        world.round(3)


def test_close_sends_the_rest_and_closes_the_client() -> None:
    """SenderTest#testIncompleteTransactionAbortOnShutdown."""
    with SenderWorld() as world:
        batches = [world.append(tp) for tp in (TP0, TP2)]
        world.acknowledge(TP0)
        world.acknowledge(TP2)
        world.sender.initiate_close()
        world.sender.run()
        assert all(acknowledged(batch) for batch in batches)
        assert world.client.closed
        assert world.sender.fatal_error is None
        wakeups = world.client.wakeups
        world.sender.wakeup()
        assert world.client.wakeups == wakeups


def test_a_forced_close_fails_everything_and_ends_at_once() -> None:
    """SenderTest#testIncompleteTransactionAbortOnShutdown."""
    with SenderWorld() as world:
        in_flight, queued = world.append(), world.append()
        world.round(1)
        world.sender.force_close()
        world.sender.run()
        for batch in (in_flight, queued):
            assert batch.is_done
            assert "closed before" in str(batch.error)
        assert world.client.closed
        assert world.memory_in_use == 0


def test_a_close_that_drains_ends_when_a_batch_fails() -> None:
    """SenderTest#testIncompleteTransactionAbortOnShutdown: it cannot hang in the error state."""
    with SenderWorld() as world:
        refused, queued = world.append(), world.append()
        world.refuse(ErrorCode.INVALID_RECORD)
        world.sender.initiate_close()
        world.sender.run()
        assert refused.error is not None
        assert queued.error is refused.error


def test_the_report_counts_requests_latency_and_bytes() -> None:
    with SenderWorld() as world:
        batch = world.append(records=3)
        size = batch.size_in_bytes
        world.acknowledge(offset=0, after_ms=30)
        world.round(2)
        world.round(1, ms=30)
        report = world.recorder.report()
        assert (report.rows, report.bytes, report.batches, report.requests) == (3, size, 1, 1)
        assert report.nodes[1].max_latency_ms == 30
