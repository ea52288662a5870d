"""The errors of KafkaProducer.send_columns: one loses the attempt."""

from __future__ import annotations

import threading

import pytest

from spark_kafka_sink.base.errors import (
    BufferExhaustedError,
    DataError,
    DeliveryError,
    ErrorCode,
    KafkaTimeoutError,
    RecordTooLargeError,
)
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from tests.fakes.answering_client import HOLD
from tests.producer.answered_producers import (
    PARTITIONS,
    Producers,
    hold,
    numbered,
    refuse,
    rows_of,
    to0,
)

pytestmark = pytest.mark.usefixtures("small_batches")


def send_without_end(producer: KafkaProducer) -> None:
    """Rows for partition 0, until something stops it."""
    for first in range(0, 1_000_000, 100):
        producer.send_columns(rows_of(numbered(first, 100), 0))


def test_the_first_failure_names_partition_cause_and_age(producers: Producers):
    producer, _ = producers(answer=refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    producer.send_columns(rows_of(numbered(0, 10), 2))
    with pytest.raises(DeliveryError) as caught:
        producer.finish_attempt()
    text = str(caught.value)
    assert "test-2: 10 rows were not acknowledged (attempts: 1, age: " in text
    assert "TOPIC_AUTHORIZATION_FAILED" in text
    assert "WRITE on the topic" in text  # the hint
    assert not producer.reusable
    for call in (
        producer.flush,
        producer.start_attempt,
        producer.park,
        lambda: producer.send(to0()),
    ):
        with pytest.raises(DeliveryError):
            call()
    with pytest.raises(DeliveryError):
        producer.send_columns(rows_of([b"x"], 0))


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_failure_reaches_a_writer_that_waits_for_memory(
    producers: Producers, *, idempotent: bool
):
    """It must not sit out the wait for memory that will not come; and nothing more is sent."""
    producer, client = producers(buffer_memory=20_000, enable_idempotence=str(idempotent).lower())
    client.answer = hold

    def write() -> None:
        with pytest.raises(DeliveryError, match="INVALID_RECORD"):
            send_without_end(producer)
        failed.set()

    failed = threading.Event()
    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    client.await_produced(1)
    client.answer = refuse(ErrorCode.INVALID_RECORD)
    client.wakeup()
    assert failed.wait(60)
    assert not producer._accumulator.has_undrained


def test_a_failure_ends_a_flush_although_others_are_in_flight(producers: Producers):
    """Without idempotence the sender goes on; the writer must not wait for the other answers."""
    producer, client = producers(enable_idempotence="false", answer=hold)
    for partition in range(PARTITIONS):
        producer.send_columns(rows_of(numbered(0, 200), partition))
    client.await_produced(2)  # one for each leader: what is not sent yet fails with the first
    requests: list[object] = []

    def refuse_the_first(request: object) -> object:
        requests.append(request)
        return refuse(ErrorCode.INVALID_RECORD)(request) if request is requests[0] else HOLD

    def answer() -> None:
        client.answer = refuse_the_first

    client.on_wakeup = answer  # flush wakes the sender when it has begun
    failed = threading.Event()

    def flush() -> None:
        with pytest.raises(DeliveryError, match="INVALID_RECORD"):
            producer.flush()
        failed.set()

    threading.Thread(target=flush, daemon=True).start()
    assert failed.wait(60)
    assert producer._accumulator.incomplete


def test_rows_without_acknowledgement_fail_at_delivery_timeout(producers: Producers):
    producer, _ = producers(delivery_timeout_ms=300, request_timeout_ms=200, answer=hold)
    producer.send_columns(rows_of(numbered(0, 10), 0))
    with pytest.raises(DeliveryError, match="Expiring 10 record"):
        producer.flush()


def test_exhausted_memory_names_its_options_and_the_last_answer(producers: Producers):
    producer, client = producers(
        buffer_memory=10_000, max_block_ms=200, retry_backoff_ms=10, retry_backoff_max_ms=10
    )
    client.answer = refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    producer.send_columns(rows_of(numbered(0, 100), 0))
    client.await_produced(10)  # more than there are batches: the first answers were seen
    with pytest.raises(BufferExhaustedError) as caught:
        send_without_end(producer)
    text = str(caught.value)
    assert "buffer.memory (10000 bytes)" in text
    assert "max.block.ms is 200" in text
    assert "delivery.timeout.ms 120000" in text
    assert "test-0" in text
    assert "NOT_ENOUGH_REPLICAS" in text


def test_a_record_beyond_max_request_size_has_javas_message(producers: Producers):
    producer, _ = producers(max_request_size=5000)
    with pytest.raises(
        RecordTooLargeError,
        match=r"when serialized which is larger than 5000, which is the value of the "
        r"max\.request\.size configuration\.",
    ):
        producer.send_columns(rows_of([b"x", b"y" * 6000], 0))


def test_a_record_beyond_both_limits_is_refused_at_once(producers: Producers):
    """It must not wait for all of the memory first, which others still hold."""
    producer, _ = producers(max_request_size=5000, buffer_memory=6000, answer=hold)
    producer.send_columns(rows_of(numbered(0, 100), 0))
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
        producer.send_columns(rows_of([b"y" * 7000], 0))


def test_a_record_that_just_fits_into_buffer_memory_is_sent(producers: Producers):
    producer, _ = producers(buffer_memory=6000)
    producer.send_columns(rows_of([b"x" * 5900], 0))
    assert producer.finish_attempt().rows == 1


def test_a_record_beyond_buffer_memory_is_refused_in_javas_words(producers: Producers):
    producer, _ = producers(buffer_memory=5000, batch_size=1000)
    with pytest.raises(RecordTooLargeError, match=r"buffer\.memory configuration\."):
        producer.send_columns(rows_of([b"x", b"y" * 6000], 0))


def test_a_row_that_cannot_be_sent_loses_the_attempt(producers: Producers):
    """The rows before it may be in batches: nothing more of this attempt may go."""
    # However long this takes, the first row is in an open batch.
    producer, client = producers(max_block_ms=50, linger_ms=60_000)
    producer.send_columns(rows_of([b"x"], 0))
    with pytest.raises(DataError, match="Partition 9 of topic test"):
        producer.send_columns(rows_of([b"y"], 9))
    assert not producer.reusable
    assert not producer._accumulator.has_undrained
    producer.close(10_000)
    assert client.produced == 0


def test_an_unknown_topic_ends_at_max_block_ms(producers: Producers):
    """KafkaProducerTest#testMetadataTimeoutWithMissingTopic."""
    producer, _ = producers(max_block_ms=50)
    with pytest.raises(KafkaTimeoutError, match="Topic nowhere not present in metadata after 50"):
        producer.send_columns(rows_of([b"x"], 0, topic="nowhere"))


@pytest.mark.parametrize("idempotent", ["true", "false"])
def test_an_exception_in_the_network_thread_reaches_every_waiter(
    producers: Producers, idempotent: str
):
    producer, client = producers(answer=hold, enable_idempotence=idempotent)
    producer.send_columns(rows_of(numbered(0, 10), 0))

    def broken() -> None:
        raise RuntimeError("a bug")

    client.on_poll = broken
    with pytest.raises(DeliveryError, match="a bug"):
        producer.flush()
    with pytest.raises(DeliveryError, match="a bug"):
        producer.send_columns(rows_of([b"x"], 0))
    assert not producer.reusable
