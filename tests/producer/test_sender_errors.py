"""What fails for good: a batch, its attempt, or the producer, and in which words."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import (
    ApiError,
    AuthenticationError,
    AuthorizationError,
    DeliveryError,
    ErrorCode,
    InvalidRecordError,
    KafkaError,
    RecordTooLargeError,
    UnsupportedVersionError,
)
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    RecordError,
)
from spark_kafka_sink.records.encoded_slice import EncodedSlices
from tests.fakes.sender_world import TP0, TP1, TP2, SenderWorld, acknowledged, error_of


def test_without_idempotence_a_failed_batch_fails_alone() -> None:
    """SenderTest#testCanRetryWithoutIdempotence."""
    with SenderWorld(idempotent=False) as world:
        bad, good = world.append(TP0), world.append(TP2)
        world.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        world.acknowledge(TP2)
        world.round(2)
        assert isinstance(error_of(bad), AuthorizationError)
        assert acknowledged(good)
        assert world.lifecycle.fatal is None


class RowsAtTheEnd:
    """A batch listener: the rows that count as acknowledged when a batch fails."""

    def __init__(self, world: SenderWorld) -> None:
        self._world = world
        self.seen: list[int] = []

    def batches_done(self, batches: Sequence[ProducerBatch]) -> None:
        self.seen += [self._world.recorder.report().rows] * len(batches)


def test_acknowledged_batches_count_before_a_refused_one_fails() -> None:
    """They are counted and released together, but before the attempt fails with another batch:
    its report would lack them.
    """
    with SenderWorld() as world:
        world.establish(TP0)
        world.establish(TP1)
        before = world.recorder.report().rows
        at_the_end = RowsAtTheEnd(world)
        good = world.append(TP0, records=3)
        world.filler._listener = at_the_end
        bad = world.append(TP1)
        world.prepare(
            PartitionProduceResponse(TP0, ErrorCode.NONE, 9),
            PartitionProduceResponse(TP1, ErrorCode.INVALID_RECORD, -1),
        )
        world.round(2)
        assert acknowledged(good)
        assert isinstance(error_of(bad), InvalidRecordError)
        assert at_the_end.seen == [before + 3]
        assert world.memory_in_use == 0


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
        with pytest.raises(DeliveryError) as caught:
            world.filler.append(EncodedSlices.of(()), world.clock.now_ms())
        assert caught.value.__cause__ is error_of(refused)


@pytest.mark.parametrize(
    ("code", "errors", "whole", "words"),
    [
        (ErrorCode.INVALID_RECORD, ((1, "no key"),), None, "record 1 of the batch: no key"),
        (
            ErrorCode.INVALID_RECORD,
            ((1, "no key"), (2, "no key")),
            "One or more records have been rejected due to 2 record errors in total " + "x" * 200,
            "record 1 of the batch (and 1 more): no key",
        ),
        (ErrorCode.INVALID_TIMESTAMP, ((2, None),), "late", "record 2 of the batch: late"),
    ],
    ids=["one record", "two and the batch", "without its own words"],
)
def test_a_refused_record_precedes_the_brokers_message(
    code: ErrorCode, errors: tuple[tuple[int, str | None], ...], whole: str | None, words: str
) -> None:
    """SenderTest#testRecordErrorPropagatedToApplication. A real broker sends both, and its message
    for the batch hides the record behind its length. With INVALID_TIMESTAMP it has no message for
    the record.
    """
    with SenderWorld() as world:
        batch = world.append(records=3)
        told = tuple(RecordError(*one) for one in errors)
        world.refuse(code, record_errors=told, error_message=whole)
        world.round(2)
        assert words in error_of(batch).message
        assert batch.record_errors == told


def test_a_request_without_a_common_version_fails_its_batches() -> None:
    """SenderTest#testUnsupportedVersionInProduceRequest."""
    with SenderWorld() as world:
        batch = world.append()
        refused = UnsupportedVersionError("PRODUCE: no", code=ErrorCode.UNSUPPORTED_VERSION)
        world.client.prepare(ProduceRequest, error=refused)
        world.round(2)
        assert isinstance(error_of(batch), UnsupportedVersionError)


def test_a_failed_authentication_fails_the_producer_at_once() -> None:
    with SenderWorld() as world:
        batch = world.append()
        world.client.unready = {1: NEVER}
        refused = AuthenticationError("SASL authentication failed")
        world.client.authentication_errors = {1: refused}
        world.round()
        assert world.manager is not None
        assert world.lifecycle.fatal is refused, "a call that waits for an id must end, too"
        world.sender.run()
        assert world.lifecycle.fatal is refused
        assert batch.error is refused


def test_an_unexpected_exception_reaches_every_batch_once() -> None:
    with SenderWorld() as world:
        batches = [world.append(), world.append(TP2)]
        calls = []

        def explode() -> None:
            calls.append(1)
            raise ZeroDivisionError("boom")

        world.client.on_poll = explode
        world.sender.run()
        assert len(calls) == 1
        fatal = world.lifecycle.fatal
        assert isinstance(fatal, KafkaError)
        assert "ZeroDivisionError: boom" in fatal.message
        assert isinstance(fatal.__cause__, ZeroDivisionError)
        assert [batch.error for batch in batches] == [fatal, fatal]
        assert world.client.closed
        with pytest.raises(KafkaError, match="ZeroDivisionError"):
            world.metadata.await_topics(["other"], world.clock.now_ms() + 1_000)
