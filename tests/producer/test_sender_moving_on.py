"""What a refused batch of ``send`` costs the others: of its partition, and of other partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest

from spark_kafka_sink.base.errors import (
    DeliveryError,
    ErrorCode,
    InvalidRecordError,
    OutOfOrderSequenceError,
)
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.producer.send.record_future import RecordFuture
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.fakes.answering_client import AnsweringClient
from tests.fakes.record_reader import parse_batch
from tests.producer.answered_producers import TP0, Producers, hold, numbered, rows_of, to0

TP1 = TopicPartition("test", 1)


def as_a_broker(codes: dict[TopicPartition, ErrorCode]) -> Callable[[object], object]:
    """Refuses values that begin with ``bad``, and what is not next in its sequence; the partitions
    of ``codes`` are ill.
    """
    expected: dict[tuple[TopicPartition, int, int], int] = defaultdict(int)

    def answer(request: object) -> object:
        if not isinstance(request, ProduceRequest):
            return None
        (piece,) = request.data
        batch = parse_batch(b"".join(piece.buffers))
        header = batch.header
        key = (piece.tp, header.producer_id, header.producer_epoch)
        code = codes.get(piece.tp, ErrorCode.NONE)
        if any((record.value or b"").startswith(b"bad") for record in batch.records):
            code = ErrorCode.INVALID_RECORD
        elif code is ErrorCode.NONE and header.base_sequence != expected[key]:
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if code is ErrorCode.NONE:
            expected[key] += len(batch.records)
            return None  # appended
        return ProduceResponse((PartitionProduceResponse(piece.tp, code, -1),))

    return answer


def identities(client: AnsweringClient, tp: TopicPartition) -> list[tuple[int, int]]:
    """Epoch and sequence of each batch in the log."""
    headers = [batch.header for batch in client.logs[tp]]
    assert len({header.producer_id for header in headers}) == 1
    return [(header.producer_epoch, header.base_sequence) for header in headers]


def in_flight(
    producer: KafkaProducer, client: AnsweringClient, *values: bytes
) -> list[RecordFuture]:
    """Each value is a batch in flight."""
    futures = []
    for value in values:
        produced = client.produced
        futures.append(producer.send(to0(value)))
        client.wakeup()  # as a socket does when a request is written
        client.await_produced(produced + 1)
    return futures


def test_what_was_sent_behind_a_refused_record_goes_again(producers: Producers):
    """SenderTest#testBumpEpochWhenOutOfOrderSequenceReceived: the broker appended none of it."""
    producer, client = producers(batch_size=1)
    broker = as_a_broker({})
    client.answer = broker
    producer.send(to0(b"first")).result(60)
    client.answer = hold
    futures = in_flight(producer, client, b"bad", b"b", b"c", b"d", b"e")
    futures.append(producer.send(to0(b"f")))  # a sixth waits
    client.answer = broker
    client.wakeup()
    producer.flush()
    assert isinstance(futures[0].exception(60), InvalidRecordError)
    assert [future.result(60).offset for future in futures[1:]] == [1, 2, 3, 4, 5]
    assert client.values(TP0) == [b"first", b"b", b"c", b"d", b"e", b"f"]
    assert identities(client, TP0) == [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]
    with pytest.raises(DeliveryError, match="1 of 7 rows were not acknowledged"):
        producer.finish_attempt()


def test_two_refused_records_in_flight_fail_alone(producers: Producers):
    producer, client = producers(batch_size=1)
    broker = as_a_broker({})
    client.answer = broker
    producer.send(to0(b"first")).result(60)
    client.answer = hold
    futures = in_flight(producer, client, b"b", b"bad1", b"c", b"bad2", b"d")
    client.answer = broker
    client.wakeup()
    producer.flush()
    failed = [isinstance(future.exception(60), InvalidRecordError) for future in futures]
    assert failed == [False, True, False, True, False]
    assert client.values(TP0) == [b"first", b"b", b"c", b"d"]
    assert identities(client, TP0)[-2:] == [(1, 0), (1, 1)]


def in_doubt_beside_a_refusal(producers: Producers, last: ErrorCode) -> RecordFuture:
    """A record that a broker appends, forgets, and answers with ``last``; then ``bad`` after it."""
    producer, client = producers(batch_size=1, retry_backoff_ms=1)
    client.answer = as_a_broker({})
    producer.send(to0(b"first")).result(60)
    client.answer = hold
    doubted, bad = in_flight(producer, client, b"doubted", b"bad")
    codes = [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, last]

    def answer(request: object) -> object:
        assert isinstance(request, ProduceRequest)
        (piece,) = request.data
        if b"bad" in b"".join(piece.buffers):
            return hold(request) if codes else as_a_broker({})(request)
        return ProduceResponse((PartitionProduceResponse(piece.tp, codes.pop(0), -1),))

    client.answer = answer
    client.wakeup()
    assert isinstance(bad.exception(60), InvalidRecordError)
    return doubted


def test_a_record_in_doubt_does_not_fail_as_an_invalid_one(producers: Producers):
    """Its type would show that it is not in the log, and its user would write it again."""
    doubted = in_doubt_beside_a_refusal(producers, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    error = doubted.exception(60)
    assert isinstance(error, OutOfOrderSequenceError)
    assert "not known whether they are, or will be, in the log" in str(error)
    assert "INVALID_RECORD" in str(error)


def test_a_refusal_after_an_unclear_answer_shows_the_doubt(producers: Producers):
    doubted = in_doubt_beside_a_refusal(producers, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert "an earlier attempt had no definite answer" in str(doubted.exception(60))


def test_a_partition_that_is_retried_delays_no_other(producers: Producers):
    """The issue of one sick partition: what another partition was refused made all wait for it."""
    producer, client = producers(retry_backoff_ms=1)
    codes: dict[TopicPartition, ErrorCode] = {}
    client.answer = as_a_broker(codes)
    on_1 = ProducerRecord("test", b"1", partition=1)
    producer.send(on_1).result(60)
    producer.send(to0(b"first")).result(60)
    codes[TP1] = ErrorCode.NOT_ENOUGH_REPLICAS
    sick = producer.send(on_1)
    assert isinstance(producer.send(to0(b"bad")).exception(60), InvalidRecordError)
    sent = client.produced
    client.await_produced(sent + 2)  # it is tried again and again
    assert producer.send(to0(b"next")).result(60).offset == 1
    elsewhere = ProducerRecord("test", b"2", partition=2)
    assert producer.send(elsewhere).result(60).offset == 0
    assert not sick.done()
    codes.clear()
    assert sick.result(60).offset == 1
    assert identities(client, TP1) == [(0, 0), (0, 1)], "it keeps the epoch that it was sent with"


def test_rows_of_columns_behind_a_refused_record_fail_the_producer(producers: Producers):
    """Rule R2: no row of columns takes a new sequence."""
    producer, client = producers()
    broker = as_a_broker({})
    client.answer = broker
    producer.send(to0(b"first")).result(60)
    client.answer = hold
    refused = producer.send(to0(b"bad"))
    client.await_produced(2)
    producer.send_columns(rows_of(numbered(0, 1000), 0))
    client.await_produced(3)
    client.answer = broker
    client.wakeup()
    assert isinstance(refused.exception(60), InvalidRecordError)
    with pytest.raises(DeliveryError):
        producer.flush()
    assert client.values(TP0) == [b"first"]


def with_one_epoch() -> Callable[[object], object]:
    """A broker that keeps one epoch for all partitions of a producer, as franz-go's kfake does."""
    broker, newest = as_a_broker({}), 0

    def answer(request: object) -> object:
        nonlocal newest
        if not isinstance(request, ProduceRequest):
            return None
        (piece,) = request.data
        epoch = parse_batch(b"".join(piece.buffers)).header.producer_epoch
        if epoch < newest:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
            return ProduceResponse((PartitionProduceResponse(piece.tp, code, -1),))
        newest = epoch
        return broker(request)

    return answer


@pytest.mark.parametrize("columns", [False, True])
def test_a_broker_with_one_epoch_takes_the_others_again(producers: Producers, columns: bool):
    """With rows of columns, which take no new sequence, it is an error."""
    producer, client = producers(batch_size=1)
    broker = with_one_epoch()
    client.answer = broker
    on_1 = [ProducerRecord("test", value, partition=1) for value in (b"1", b"2", b"3")]
    producer.send(on_1[0]).result(60)
    producer.send(to0(b"first")).result(60)
    client.answer = lambda request: (
        hold(request)
        if isinstance(request, ProduceRequest) and request.data[0].tp == TP1
        else broker(request)
    )
    futures = []
    for record in on_1[1:]:
        sent = client.produced
        futures.append(producer.send(record))
        client.wakeup()
        client.await_produced(sent + 1)
    if columns:
        producer.send_columns(rows_of(numbered(0, 1), 1))
        client.await_produced(sent + 2)
    assert isinstance(producer.send(to0(b"bad")).exception(60), InvalidRecordError)
    producer.send(to0(b"next")).result(60)
    client.answer = broker
    client.wakeup()
    if columns:
        with pytest.raises(DeliveryError, match="INVALID_PRODUCER_EPOCH"):
            producer.flush()
        assert client.values(TP1) == [b"1"]
    else:
        assert [future.result(60).offset for future in futures] == [1, 2]
        assert identities(client, TP1) == [(0, 0), (1, 0), (1, 1)]
