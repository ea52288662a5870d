"""The errors of KafkaProducer.send: of one record, and of the batch that it is in."""

from __future__ import annotations

import logging
import time
from array import array
from typing import Any

import numpy as np
import pytest

from spark_kafka_sink.base.errors import (
    BufferExhaustedError,
    DataError,
    DeliveryError,
    ErrorCode,
    IllegalStateError,
    InvalidRecordError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SerializationError,
)
from spark_kafka_sink.producer.producer_record import Headers, ProducerRecord, RecordMetadata
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.protocol.produce import (
    RecordError,
)
from tests.fakes.clock import FakeClock
from tests.producer.answered_producers import (
    TP0,
    Heard,
    Producers,
    hold,
    refuse,
    to0,
    without_thread,
)


def test_what_the_protocol_knows_goes_into_future_and_callback(producers: Producers):
    """KafkaProducerTest#testMetadataTimeoutWithMissingTopic. An unknown topic blocks up to
    max.block.ms.
    """
    producer, _ = producers(max_block_ms=50)
    heard = Heard()
    future = producer.send(ProducerRecord("nowhere", b"v"), heard)
    assert future.done()
    with pytest.raises(KafkaTimeoutError, match="Topic nowhere not present in metadata after 50"):
        future.result()
    ((metadata, error),) = heard.calls
    assert metadata == RecordMetadata("nowhere", -1, -1, -1, -1, -1)
    assert error is future.exception()
    producer.send(to0()).result(60)  # nothing else happened to it


def test_a_topic_in_place_of_a_record_is_named(producers: Producers):
    """As kafka-python and confluent-kafka take it."""
    producer, _ = producers()
    with pytest.raises(TypeError, match=r"^send takes a record: send\(ProducerRecord\(topic, va"):
        producer.send("test", b"v")
    producer.send(to0()).result(60)  # nothing else happened to it


def test_a_partition_out_of_range_is_waited_for_and_then_named(producers: Producers):
    """KafkaProducerTest#testMetadataTimeoutWithPartitionOutOfRange."""
    producer, _ = producers(max_block_ms=50)
    future = producer.send(ProducerRecord("test", b"v", partition=4))
    with pytest.raises(
        KafkaTimeoutError,
        match="Partition 4 of topic test with partition count 4 is not present in metadata after "
        "50 ms",
    ):
        future.result()


def test_a_record_too_large_is_its_futures_error(producers: Producers):
    producer, _ = producers(max_request_size=1000)
    heard = Heard()
    future = producer.send(to0(b"x" * 2000), heard)
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
        future.result()
    assert heard.calls[0][0] == RecordMetadata("test", 0)
    producer, _ = producers(buffer_memory=1000)
    with pytest.raises(RecordTooLargeError, match=r"buffer\.memory"):
        producer.send(to0(b"x" * 2000)).result()


def test_the_wait_for_memory_is_limited_and_fails_the_future(producers: Producers):
    """KafkaProducer#doSend. Metadata and memory share max.block.ms."""
    producer, client = producers(buffer_memory=2000, max_block_ms=200, answer=hold)
    errors = []
    start = time.monotonic()
    while not errors:
        future = producer.send(to0(b"x" * 500))
        if future.done():
            errors.append(future.exception())
    assert isinstance(errors[0], BufferExhaustedError)
    assert 0.19 <= time.monotonic() - start < 30  # the clock counts whole milliseconds
    client.release()
    producer.flush()
    producer.send(to0()).result(60)


def test_metadata_and_memory_share_one_budget(producers: Producers):
    """KafkaProducer#doSend. What the wait for the topic took is not left for the wait for
    memory.
    """
    producer = without_thread(max_block_ms=1000, buffer_memory=10_000)
    clock = producer._clock
    assert isinstance(clock, FakeClock)
    producer._accumulator.pool.allocate(10_000, 0)
    metadata = producer._metadata
    waited = metadata.await_topics

    def slow(topics: object, deadline: int) -> Cluster:
        clock.advance(700)
        return metadata.cluster

    metadata.await_topics = slow  # type: ignore[method-assign, assignment]
    metadata.set_parked(parked=True)  # so that send asks
    start = clock.now_ms()
    error = producer.send(to0()).exception()
    metadata.await_topics = waited  # type: ignore[method-assign]
    assert isinstance(error, BufferExhaustedError)
    assert clock.now_ms() - start == 1000
    producer.close(0)


def test_wrong_types_and_states_are_raised(producers: Producers):
    producer, _ = producers(value_serializer="int")
    with pytest.raises(
        SerializationError,
        match=r"Can't convert value of class str to class IntegerSerializer specified in "
        r"value\.serializer",
    ) as caught:
        producer.send(to0("a secret"))
    assert "secret" not in str(caught.value)
    with pytest.raises(SerializationError):
        producer.send(to0(2**31))
    producer.close(1000)
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send(to0(1))


class Returning:
    """A user's serializer that gives back its argument."""

    def serialize(self, topic: str, data: object, headers: Headers) -> Any:
        return data


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("wrong", ["json.dumps without encode", 17, ["s3cr3t"]])
def test_a_serializer_that_returns_no_bytes_fails_its_record_only(
    producers: Producers, part: str, wrong: object
):
    """It ended the producer: the text was found out while the record was appended."""
    producer, client = producers(**{f"{part}_serializer": Returning()})
    with pytest.raises(SerializationError) as caught:
        producer.send(to0(**{"value": b"v", part: wrong}))
    returned = type(wrong).__name__
    assert caught.value.message == (
        f"class Returning specified in {part}.serializer returned {returned}, not bytes"
    )
    producer.send(to0(b"next")).result(60)
    assert client.values(TP0) == [b"next"]


@pytest.mark.parametrize("made", [bytearray(b"ab"), memoryview(array("H", [0x6161, 0x6161]))])
def test_a_serializer_may_return_a_buffer(producers: Producers, made: object):
    """Its bytes are sent as they are now, and counted as bytes."""
    producer, client = producers(value_serializer=Returning())
    future = producer.send(to0(made))
    if isinstance(made, bytearray):
        made[:] = b"--"
    assert future.result(60).serialized_value_size in (2, 4)
    assert client.values(TP0) in ([b"ab"], [b"aaaa"])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"topic": ""}, "Topic cannot be null"),
        ({"topic": "t", "partition": -1}, "Invalid partition: -1"),
        ({"topic": "t", "timestamp": -1}, "Invalid timestamp: -1"),
        ({"topic": "t", "headers": [(None, b"")]}, "a header is not a pair"),
        ({"topic": "t", "headers": [("k", "text")]}, "the value of header k is str"),
        ({"topic": "t", "headers": [("\udcff", b"")]}, r"the key of header \S+ is no text"),
        ({"topic": b"t"}, "the topic of a record is bytes, not str"),
        ({"topic": 5}, "the topic of a record is int, not str"),
        ({"topic": "t", "timestamp": 2**63}, "does not fit into 64 bits"),
        ({"topic": "t", "timestamp": 1.7e12}, "Invalid timestamp: a whole number is wanted"),
        ({"topic": "t", "timestamp": "now"}, "Invalid timestamp: a whole number is wanted"),
        ({"topic": "t", "partition": 0.0}, "Invalid partition: a whole number is wanted"),
        ({"topic": "t", "partition": np.int64(-1)}, "Invalid partition: -1"),
    ],
)
def test_a_record_that_is_none_is_refused_in_javas_words(fields: dict[str, object], text: str):
    """Before it is a batch's: the network thread would end of a number that no header can hold,
    and the producer with it.
    """
    with pytest.raises(DataError, match=text):
        ProducerRecord(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("topic", ["x" * 40_000, "t\udcff"], ids=["too long", "no text"])
def test_a_topic_that_no_request_can_carry_harms_no_other(producers: Producers, topic: str):
    """KafkaProducerTest#testSendToInvalidTopic: else metadata could never be asked for again: each
    question names every topic in use.
    """
    producer, client = producers()
    heard = Heard()
    error = producer.send(ProducerRecord(topic, b"v"), heard).exception(10)
    assert isinstance(error, InvalidTopicError)
    assert [told for _, told in heard.calls] == [error]
    with pytest.raises(InvalidTopicError):
        producer.partitions_for(topic)
    producer.send(to0()).result(60)
    assert len(client.logs[TP0]) == 1
    asked, _ = producer._metadata.new_request(producer._clock.now_ms())
    assert asked.topics == ("test",)


# ---- of a batch ----------------------------------------------------------------------------------


def test_an_idempotent_producer_continues_in_a_new_epoch(producers: Producers):
    """As Java's. What was not sent before the refusal came goes out, each record of it once."""
    producer, client = producers(linger_ms=60_000, batch_size=2000, answer=hold)
    heard = Heard()
    futures = [producer.send(to0(b"x" * 100), heard) for _ in range(100)]
    client.await_produced(1)
    before = producer.producer_id_and_epoch
    client.answer = refuse(ErrorCode.INVALID_RECORD)
    client.wakeup()
    refused = futures[0].exception(10)
    assert isinstance(refused, KafkaError)
    client.release()
    producer.flush()
    failed = [future for future in futures if future.exception(10) is not None]
    assert 0 < len(failed) < 100
    assert failed == futures[: len(failed)]
    offsets = [future.result(10).offset for future in futures[len(failed) :]]
    assert offsets == list(range(100 - len(failed)))
    assert len(heard.calls) == 100
    now = producer.producer_id_and_epoch
    assert now[0] == before[0]
    assert now[1] > before[1]
    with pytest.raises(DeliveryError, match="of 100 rows were not acknowledged"):
        producer.finish_attempt()


def test_record_errors_fail_each_record_with_its_own(producers: Producers):
    """ProducerBatchTest#testCompleteExceptionallyWithRecordErrors."""
    producer, client = producers(linger_ms=60_000, enable_idempotence="false")
    client.answer = refuse(ErrorCode.INVALID_RECORD, RecordError(1, "no key"), RecordError(3, None))
    futures = [producer.send(to0(b"%d" % n)) for n in range(4)]
    producer.flush()
    errors = [future.exception() for future in futures]
    assert isinstance(errors[1], InvalidRecordError)
    assert "no key" in str(errors[1])
    assert isinstance(errors[3], InvalidRecordError)
    for other in (errors[0], errors[2]):
        assert type(other) is KafkaError
        assert "because it was part of a batch" in str(other)


def test_a_single_record_error_keeps_the_partitions_class(producers: Producers):
    """ProducerBatchTest#testCompleteExceptionallyWithRecordErrors,
    SenderTest#testRecordErrorPropagatedToApplication.
    """
    producer, client = producers(linger_ms=60_000, enable_idempotence="false")
    client.answer = refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, RecordError(0, "so it is"))
    futures = [producer.send(to0(b"%d" % n)) for n in range(2)]
    producer.flush()
    assert isinstance(futures[0].exception(), InvalidTopicError)
    assert "so it is" in str(futures[0].exception())
    assert type(futures[1].exception()) is KafkaError


def test_the_log_shows_no_payload(producers: Producers, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    producer, client = producers(enable_idempotence="false")
    client.answer = refuse(ErrorCode.INVALID_RECORD)
    producer.send(to0(b"a secret", key=b"another secret", headers=[("h", b"third secret")]))
    producer.flush()
    assert "secret" not in caplog.text
    assert "secret" not in repr(to0(b"secret", key=b"secret", headers=[("h", b"secret")]))
