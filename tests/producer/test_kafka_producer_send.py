"""KafkaProducer.send: one record at a time, its future, its callback, and what can go wrong."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import (
    BufferExhaustedError,
    ConfigError,
    DataError,
    DeliveryError,
    ErrorCode,
    IllegalStateError,
    InvalidRecordError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SchemaError,
    SerializationError,
)
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import Headers, ProducerRecord, RecordMetadata
from spark_kafka_sink.producer.record_future import RecordFuture
from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition
from spark_kafka_sink.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    RecordError,
)
from tests.fakes.accumulator_world import cluster_of
from tests.fakes.answering_client import HOLD, AnsweringClient
from tests.fakes.clock import FakeClock
from tests.fakes.sender_world import metadata_answer
from tests.real_kafka import Consumed, RealKafka

CLUSTER = cluster_of([1, 2, 1, 2])
TP0 = TopicPartition("test", 0)


class Producers:
    """Makes producers over an AnsweringClient; closes what a test leaves open."""

    def __init__(self) -> None:
        self.made: list[KafkaProducer] = []

    def __call__(
        self, cluster: Cluster = CLUSTER, **options: object
    ) -> tuple[KafkaProducer, AnsweringClient]:
        given: dict[str, object] = {"bootstrap.servers": "127.0.0.1:9092", "linger.ms": 0}
        given |= {name.replace("_", "."): value for name, value in options.items()}
        client = AnsweringClient(cluster)
        producer = KafkaProducer(given, cluster=cluster, client=client)
        self.made.append(producer)
        return producer, client


@pytest.fixture
def producers() -> Iterator[Producers]:
    factory = Producers()
    yield factory
    for producer in factory.made:
        producer.close(0)
        assert not producer._thread.is_alive()


def to0(value: object = b"v", **fields: object) -> ProducerRecord:
    return ProducerRecord("test", value, partition=0, **fields)  # type: ignore[arg-type]


def refuse(code: ErrorCode, *record_errors: RecordError) -> Callable[[object], object]:
    """Every Produce request is answered with ``code`` for each of its partitions."""

    def answer(request: object) -> object:
        if not isinstance(request, ProduceRequest):
            return None
        return ProduceResponse(
            tuple(
                PartitionProduceResponse(piece.tp, code, -1, record_errors=record_errors)
                for piece in request.data
            )
        )

    return answer


def hold(request: object) -> object:
    return HOLD if isinstance(request, ProduceRequest) else None


class Heard:
    """A callback that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[RecordMetadata, KafkaError | None]] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        self.calls.append((metadata, error))
        self.threads.add(threading.current_thread())


# ---- a record, there and back --------------------------------------------------------------------


def test_a_future_tells_where_its_record_was_written(producers: Producers):
    producer, client = producers(linger_ms=60_000)
    futures = [producer.send(to0(b"%d" % n, key=b"key", timestamp=1000 + n)) for n in range(5)]
    assert not futures[0].done()
    producer.flush()
    assert futures[3].done()
    assert futures[3].result(60) == RecordMetadata("test", 0, 3, 1003, 3, 1)
    assert futures[3].exception() is None
    (batch,) = client.logs[TP0]
    assert [(r.key, r.value, r.timestamp) for r in batch.records] == [
        (b"key", b"%d" % n, 1000 + n) for n in range(5)
    ]


def test_a_record_has_null_and_empty_keys_values_and_headers_as_they_were_given(
    producers: Producers,
):
    producer, client = producers()
    headers = [("h", b"1"), ("h", None), ("empty", b"")]
    producer.send(to0(None, key=b"", headers=headers))
    producer.send(to0(b"", key=None))
    producer.flush()
    first, second = (record for batch in client.logs[TP0] for record in batch.records)
    assert (first.key, first.value, first.headers) == (b"", None, tuple(headers))
    assert (second.key, second.value, second.headers) == (None, b"", ())


def test_timestamps_may_go_back(producers: Producers):
    producer, client = producers(linger_ms=60_000)
    for timestamp in (5000, 4000, 6000):
        producer.send(to0(timestamp=timestamp))
    producer.flush()
    (batch,) = client.logs[TP0]
    assert [r.timestamp for r in batch.records] == [5000, 4000, 6000]
    assert batch.header.max_timestamp == 6000


def test_records_go_to_the_partition_of_their_key_as_columns_do(producers: Producers):
    producer, client = producers()
    keys = [b"k%d" % n for n in range(200)] + [b"", b"\xff" * 7]
    for key in keys:
        producer.send(ProducerRecord("test", b"one", key=key))
    producer.send_batch(pa.record_batch({"key": keys, "value": [b"col"] * len(keys)}), "test")
    producer.flush()
    for partition in range(4):
        records = [
            (r.key, r.value)
            for batch in client.logs[TopicPartition("test", partition)]
            for r in batch.records
        ]
        single = [key for key, value in records if value == b"one"]
        assert single == [key for key, value in records if value == b"col"]
        assert single


def test_an_open_batch_lingers_from_its_creation(producers: Producers):
    """RecordAccumulatorTest#testLinger. For send() linger.ms is Java's: nobody has to wait for
    input.
    """
    producer, client = producers(linger_ms=200)
    start = time.monotonic()
    producer.send(to0())
    client.await_produced(1)
    assert time.monotonic() - start >= 0.19  # the clock counts whole milliseconds


def test_a_full_batch_goes_before_linger_is_over(producers: Producers):
    """RecordAccumulatorTest#testFull."""
    producer, client = producers(linger_ms=60_000, batch_size=1000)
    for _ in range(20):
        producer.send(to0(b"x" * 100))
    client.await_produced(1)
    producer.flush()
    sizes = client.batch_sizes[TP0]
    assert len(sizes) == 3
    assert all(size <= 1000 for size in sizes)


def test_a_record_larger_than_a_batch_has_its_own(producers: Producers):
    """RecordAccumulatorTest#testAppendLargeNonCompressed."""
    producer, client = producers(linger_ms=60_000, batch_size=1000)
    producer.send(to0(b"small"))
    producer.send(to0(b"x" * 5000))
    producer.send(to0(b"small"))
    producer.flush()
    assert [len(batch.records) for batch in client.logs[TP0]] == [1, 1, 1]


def test_many_threads_may_send_each_in_its_own_order(producers: Producers):
    """RecordAccumulatorTest#testStressfulSituation. Beside them, another thread writes columns."""
    producer, client = producers(batch_size=5000, buffer_memory=200_000)
    count = 2000

    def send(name: int) -> None:
        for n in range(count):
            producer.send(to0(b"%d-%d" % (name, n)))

    threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for first in range(0, count, 50):
        values = [b"columns-%d" % n for n in range(first, first + 50)]
        producer.send_batch(
            pa.record_batch({"value": values, "partition": pa.array([0] * 50, pa.int32())}), "test"
        )
    for thread in threads:
        thread.join(30)
    producer.flush()
    values = client.values(TP0)
    assert len(values) == 5 * count
    for name in [b"0", b"1", b"2", b"3", b"columns"]:
        mine = [v for v in values if v is not None and v.partition(b"-")[0] == name]
        assert mine == [b"%b-%d" % (name, n) for n in range(count)]
    assert producer._accumulator.pool.available == producer._config.buffer_memory


@pytest.mark.parametrize("options", [{}, {"partitioner_class": "RoundRobinPartitioner"}])
def test_a_topic_may_grow_while_a_record_is_on_its_way(
    producers: Producers, options: dict[str, object]
):
    """The record looked at one partition; while it is serialized there come to be 2000, and load
    chooses among these.
    """

    class Grows:
        def serialize(self, topic: str, data: object, headers: Headers) -> bytes:
            metadata = producer._metadata
            if len(metadata.fetch().topics[topic]) == 1:
                _, token = metadata.new_request(0)
                metadata.update(token, metadata_answer([1] * 2000, topic=topic), 0)
            return b"v"

    producer, client = producers(cluster_of([1]), value_serializer=Grows(), **options)
    producer.send(ProducerRecord("test", 1)).result(60)
    assert sum(map(len, client.logs.values())) == 1


def test_null_keys_leave_no_fractions_of_batches(producers: Producers):
    """RecordAccumulatorTest#testBuiltInPartitionerFractionalBatches."""
    producer, client = producers(batch_size=10_000, linger_ms=60_000)
    for _ in range(40):
        for _ in range(100):
            producer.send(ProducerRecord("test", b"x" * 55))  # 6400 bytes of records
        producer.flush()
    sizes = [size for sizes in client.batch_sizes.values() for size in sizes]
    assert len(client.batch_sizes) > 1  # it did move on
    assert len(sizes) < 60
    assert sum(size > 3_000 for size in sizes) >= len(sizes) * 0.9
    assert all(size <= 10_000 for size in sizes)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
def test_records_are_compressed_as_a_whole_batch(producers: Producers, codec: str):
    producer, client = producers(linger_ms=60_000, compression_type=codec)
    values = [b"%05d" % n * 20 for n in range(3000)]
    for value in values:
        producer.send(to0(value))
    producer.flush()
    assert client.values(TP0) == values
    assert sum(client.batch_sizes[TP0]) < 100_000
    assert producer._accumulator.pool.available == producer._config.buffer_memory


# ---- callbacks -----------------------------------------------------------------------------------


def test_callbacks_run_once_on_the_network_thread_in_the_order_of_the_records(
    producers: Producers,
):
    """ProducerBatchTest#testBatchCannotCompleteTwice."""
    producer, _ = producers(batch_size=1000)
    heard = Heard()
    for n in range(300):
        producer.send(to0(b"%d" % n), heard)
    producer.flush()
    assert [metadata.offset for metadata, _ in heard.calls] == list(range(300))
    assert {error for _, error in heard.calls} == {None}
    assert heard.threads == {producer._thread}


def test_flush_returns_after_the_callbacks(producers: Producers):
    producer, _ = producers()
    heard = Heard()
    for round_ in range(1, 50):
        producer.send(to0(), heard)
        producer.flush()
        assert len(heard.calls) == round_


def test_a_callback_that_raises_is_logged_without_what_it_says(
    producers: Producers, caplog: pytest.LogCaptureFixture
):
    producer, _ = producers(linger_ms=60_000)
    heard = Heard()

    def broken(metadata: RecordMetadata, error: KafkaError | None) -> None:
        raise ValueError("a secret of the row")

    producer.send(to0(), broken)
    producer.send(to0(), heard)
    producer.flush()
    assert len(heard.calls) == 1
    assert "user-provided callback" in caplog.text
    assert "ValueError in broken (test_kafka_producer_send.py:" in caplog.text
    assert "secret" not in caplog.text


def test_a_done_callback_gets_the_future_before_or_after_its_end(producers: Producers):
    producer, _ = producers(linger_ms=60_000)
    future = producer.send(to0())
    seen: list[RecordFuture] = []
    future.add_done_callback(seen.append)
    assert seen == []
    producer.flush()
    assert seen == [future]
    future.add_done_callback(seen.append)
    assert seen == [future, future]


def test_flush_in_a_callback_is_refused(producers: Producers):
    producer, _ = producers()
    caught: list[BaseException] = []

    def flush(metadata: RecordMetadata, error: KafkaError | None) -> None:
        try:
            producer.flush()
        except IllegalStateError as refused:
            caught.append(refused)

    producer.send(to0(), flush).result(60)
    assert "inside a callback is not permitted" in str(caught[0])
    producer.flush()


def test_close_in_a_callback_drops_everything_with_a_warning(
    producers: Producers, caplog: pytest.LogCaptureFixture
):
    producer, client = producers(batch_size=200, max_in_flight_requests_per_connection=1)
    client.answer = hold
    first = producer.send(to0(b"x" * 200), lambda metadata, error: producer.close(5000))
    last = producer.send(to0(b"x" * 200))
    client.await_produced(1)
    client.release()
    assert first.result(60).offset == 0
    error = last.exception(10)
    assert "closed before" in str(error)
    producer._thread.join(60)
    assert not producer._thread.is_alive()
    assert "Overriding close timeout 5000 ms to 0 ms" in caplog.text


def test_a_callback_may_send(producers: Producers):
    producer, client = producers()
    again: list[RecordFuture] = []
    producer.send(to0(b"1"), lambda metadata, error: again.append(producer.send(to0(b"2"))))
    producer.flush()
    again[0].result(60)
    assert client.values(TP0) == [b"1", b"2"]


# ---- errors of one record ------------------------------------------------------------------------


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


def test_a_partition_out_of_range_is_waited_for_and_then_named(producers: Producers):
    """KafkaProducerTest#testMetadataTimeoutWithMissingTopic, second half."""
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


def test_the_wait_for_memory_is_limited_and_its_error_is_the_futures(producers: Producers):
    """KafkaProducer#doSend. Metadata and memory share max.block.ms."""
    producer, client = producers(buffer_memory=2000, max_block_ms=200)
    client.answer = hold
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
    clock = FakeClock()
    client = AnsweringClient(CLUSTER)

    class NoThread:
        def is_alive(self) -> bool:
            return False

        def join(self, timeout: float | None = None) -> None:
            pass

    given = {"bootstrap.servers": "127.0.0.1:9092", "max.block.ms": 1000, "buffer.memory": 10_000}
    producer = KafkaProducer(
        given,
        cluster=CLUSTER,
        client=client,
        clock=clock,
        start_thread=lambda run, name: NoThread(),
    )
    producer._accumulator.pool.allocate(10_000, 0)
    metadata = producer._metadata
    waited = metadata.await_topics

    def slow(topics: object, deadline: int) -> Cluster:
        clock.advance(700)
        return metadata.fetch()

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


def test_numpys_whole_numbers_are_whole_numbers(producers: Producers):
    producer, client = producers()
    stamp = np.int64(1_700_000_000_000)
    producer.send(ProducerRecord("test", b"v", partition=np.int32(0), timestamp=stamp)).result(60)
    (record,) = client.logs[TP0][0].records
    assert record.timestamp == int(stamp)


@pytest.mark.parametrize("topic", ["x" * 40_000, "t\udcff"], ids=["too long", "no text"])
def test_a_topic_that_no_request_can_carry_harms_no_other(producers: Producers, topic: str):
    """Else metadata could never be asked for again: each question names every topic in use."""
    producer, client = producers()
    heard = Heard()
    error = producer.send(ProducerRecord(topic, b"v"), heard).exception(10)
    assert isinstance(error, InvalidTopicError)
    assert [told for _, told in heard.calls] == [error]
    with pytest.raises(InvalidTopicError):
        producer.partitions_for(topic)
    producer.send(to0()).result(60)
    producer._metadata.refresh(producer._clock.now_ms() + 10_000)
    assert len(client.logs[TP0]) == 1
    assert topic not in producer._metadata._topics


def test_headers_are_read_only_after_send(producers: Producers):
    """KafkaProducerTest#testPartitionAddedToTransaction."""
    producer, client = producers()
    record = to0(headers=[("a", b"1")])
    assert isinstance(record.headers, Headers)
    record.headers.add("b", None)
    producer.send(record).result(60)
    with pytest.raises(IllegalStateError, match="sent"):
        record.headers.add("c", b"3")
    with pytest.raises(IllegalStateError, match="sent"):
        record.headers.remove("a")
    assert client.logs[TP0][0].records[0].headers == (("a", b"1"), ("b", None))
    assert record.headers.last("b") is None
    assert record.headers.last("a") == b"1"


# ---- errors of a batch ---------------------------------------------------------------------------


def test_without_idempotence_a_refused_batch_fails_its_records_and_no_others(
    producers: Producers,
):
    producer, client = producers(enable_idempotence="false")
    client.answer = refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    heard = Heard()
    future = producer.send(to0(), heard)
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        future.result(60)
    assert heard.calls[0][0] == RecordMetadata("test", 0)
    client.release()
    assert producer.send(to0()).result(60).offset == 0
    producer.flush()


def test_an_attempt_without_idempotence_tells_of_records_that_failed_alone(producers: Producers):
    """It is no bug: each future has said so. The producer goes on, with the next attempt."""
    producer, client = producers(enable_idempotence="false")
    client.answer = refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    failed = producer.send(to0())
    assert isinstance(failed.exception(10), KafkaError)
    client.release()
    producer.send(to0()).result(60)
    with pytest.raises(DeliveryError, match=r"1 of 2 rows .*TOPIC_AUTHORIZATION_FAILED") as caught:
        producer.finish_attempt()
    assert caught.value.hint is not None
    assert "future" in caught.value.hint
    assert "bug" not in caught.value.hint
    assert caught.value.__cause__ is failed.exception(0)
    producer.start_attempt()
    producer.send(to0()).result(60)
    assert producer.finish_attempt().rows == 1


def test_an_idempotent_producer_goes_on_after_a_refused_batch_under_a_new_id(
    producers: Producers,
):
    """As Java's. What was not sent before the refusal came goes out, each record of it once."""
    producer, client = producers(linger_ms=60_000, batch_size=2000)
    client.answer = hold
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
    assert producer.producer_id_and_epoch != before
    with pytest.raises(DeliveryError, match="of 100 rows were not acknowledged"):
        producer.finish_attempt()


def test_one_topic_that_refuses_costs_the_others_nothing(producers: Producers):
    producer, client = producers(linger_ms=0)
    other = ProducerRecord("test", b"1", partition=1)
    producer.send(other).result(10)

    def refuse_partition_0(request: object) -> object:
        if not isinstance(request, ProduceRequest):
            return None
        answers = [
            PartitionProduceResponse(
                item.tp,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED if item.tp == TP0 else ErrorCode.NONE,
                -1 if item.tp == TP0 else 1,
            )
            for item in request.data
        ]
        return ProduceResponse(tuple(answers))

    client.answer = refuse_partition_0
    denied = producer.send(to0())
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        denied.result(10)
    client.release()
    producer.send(other).result(10)
    producer.send(to0()).result(10)
    producer.flush()


def test_a_failed_batch_of_columns_still_ends_an_idempotent_producer(producers: Producers):
    """Rule 5.2: rows have no futures, and their attempt is lost as a whole."""
    producer, client = producers()
    client.answer = refuse(ErrorCode.INVALID_RECORD)
    producer.send_batch(pa.record_batch({"value": ["1"], "partition": [0]}), topic="test")
    with pytest.raises(DeliveryError, match="INVALID_RECORD"):
        producer.flush()
    with pytest.raises(DeliveryError):
        producer.send(to0())
    producer.close(1000)


def test_a_broker_that_names_records_fails_each_with_its_own_error(producers: Producers):
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


def test_a_single_named_record_keeps_the_class_of_the_partitions_error(producers: Producers):
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


def test_futures_follow_their_records_into_the_halves_of_a_split(producers: Producers):
    """RecordAccumulatorTest#testSplitAndReenqueue,
    RecordAccumulatorTest#testSplitBatchOffAccumulator. Somebody waits for each of them already.
    """
    producer, client = producers(linger_ms=60_000)
    client.answer = hold
    heard = Heard()
    futures = [producer.send(to0(b"%d" % n, timestamp=n), heard) for n in range(10)]
    offsets: dict[int, int] = {}
    threads = [
        threading.Thread(target=lambda n=n: offsets.update({n: futures[n].result(60).offset}))
        for n in range(10)
    ]
    for thread in threads:
        thread.start()

    def too_large(request: object) -> object:
        if not isinstance(request, ProduceRequest):
            return None
        (piece,) = request.data
        if piece.size <= 61 + 3 * 10:
            return None
        return refuse(ErrorCode.MESSAGE_TOO_LARGE)(request)

    client.answer = too_large
    producer.flush()
    for thread in threads:
        thread.join(60)
    assert offsets == {n: n for n in range(10)}
    assert [metadata.offset for metadata, _ in heard.calls] == list(range(10))
    assert [metadata.timestamp for metadata, _ in heard.calls] == list(range(10))
    assert len(client.logs[TP0]) > 2
    assert producer._accumulator.pool.available == producer._config.buffer_memory


def test_a_future_waits_no_longer_than_asked(producers: Producers):
    producer, client = producers()
    client.answer = hold
    future = producer.send(to0())
    with pytest.raises(KafkaTimeoutError, match=r"not completed within 0\.05 s"):
        future.result(0.05)
    client.release()
    assert future.result(60).offset == 0


def test_close_now_fails_what_has_no_outcome(producers: Producers):
    """RecordAccumulatorTest#testAbortIncompleteBatches."""
    producer, client = producers(linger_ms=60_000, batch_size=500)
    client.answer = hold
    heard = Heard()
    futures = [producer.send(to0(b"x" * 50), heard) for _ in range(100)]
    client.await_produced(1)
    producer.close(0)
    assert all("closed before" in str(future.exception(0)) for future in futures)
    assert len(heard.calls) == 100
    assert producer._accumulator.pool.available == producer._config.buffer_memory


def test_sends_that_race_with_close_end_every_one(producers: Producers):
    """RecordAccumulatorTest#testAbortIncompleteBatches. Concurrent appends: refused, or failed, but
    never without an outcome.
    """
    for _ in range(20):
        producer, client = producers(batch_size=500)
        client.answer = hold
        futures: list[RecordFuture] = []

        def send(producer: KafkaProducer = producer, into: list[RecordFuture] = futures) -> None:
            try:
                while True:
                    into.append(producer.send(to0(b"x" * 50)))
            except KafkaError:
                pass

        threads = [threading.Thread(target=send) for _ in range(2)]
        for thread in threads:
            thread.start()
        client.await_produced(1)
        producer.close(0)
        for thread in threads:
            thread.join(60)
        assert all(future.exception(5) is not None for future in futures)


def test_an_interrupt_while_it_waits_for_memory_leaves_the_producer_as_it_was(
    producers: Producers,
):
    producer, client = producers(buffer_memory=2000)
    client.answer = hold
    writer = threading.current_thread()

    def interrupt() -> None:
        if threading.current_thread() is writer and producer._accumulator.pool.waiters:
            client.on_wakeup = lambda: None
            raise KeyboardInterrupt

    client.on_wakeup = interrupt

    def send_without_end() -> None:
        for _ in range(100):
            producer.send(to0(b"x" * 300))

    with pytest.raises(KeyboardInterrupt):
        send_without_end()
    client.release()
    producer.flush()
    producer.send(to0(b"after")).result(60)
    assert client.values(TP0)[-1] == b"after"
    assert producer._accumulator.pool.available == producer._config.buffer_memory


def test_an_interrupt_behind_an_append_gives_no_memory_back_that_the_batch_has(
    producers: Producers,
):
    """It lands where the sender is woken: the record is in its batch then, and is sent."""
    producer, client = producers(linger_ms=60_000)
    writer = threading.current_thread()

    def interrupt() -> None:
        if threading.current_thread() is writer:
            client.on_wakeup = lambda: None
            raise KeyboardInterrupt

    client.on_wakeup = interrupt
    with pytest.raises(KeyboardInterrupt):
        producer.send(to0(b"v"))
    producer.flush()
    assert client.values(TP0) == [b"v"]
    assert producer._accumulator.pool.available == producer._config.buffer_memory


def test_close_may_wait_for_ever(producers: Producers):
    """Java's close() without a time-out means Long.MAX_VALUE milliseconds."""
    producer, client = producers(linger_ms=60_000)
    producer.send(to0(b"v"))
    producer.close(2**63 - 1)
    assert client.values(TP0) == [b"v"]


def test_a_failing_network_thread_ends_every_future(producers: Producers):
    producer, client = producers()
    client.answer = hold
    future = producer.send(to0())

    def broken() -> None:
        raise RuntimeError("a bug")

    client.on_poll = broken
    client.wakeup()
    assert "a bug" in str(future.exception(10))
    with pytest.raises(DeliveryError, match="a bug"):
        producer.send(to0())


# ---- options and batches -------------------------------------------------------------------------


class Shout:
    """A serializer of one's own, which adds a header."""

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes:
        headers.add("by", topic.encode())
        return str(data).upper().encode()


@pytest.mark.parametrize(
    "given", [Shout(), Shout, f"{__name__}:Shout", f"{__name__}.Shout"], ids=str
)
def test_a_serializer_may_be_an_object_a_class_or_an_import_path(
    producers: Producers, given: object
):
    producer, client = producers(value_serializer=given)
    producer.send(to0("hello")).result(60)
    (record,) = client.logs[TP0][0].records
    assert (record.value, record.headers) == (b"HELLO", (("by", b"test"),))


def test_wrong_options_are_said_at_once():
    with pytest.raises(ConfigError, match=r"key\.serializer: nonsense is not known"):
        KafkaProducer({"bootstrap.servers": "127.0.0.1:9092", "key.serializer": "nonsense"})
    with pytest.raises(ConfigError, match=r"interceptor\.classes: no\.such:Thing can't be"):
        KafkaProducer(
            {"bootstrap.servers": "127.0.0.1:9092", "interceptor.classes": "no.such:Thing"}
        )
    with pytest.raises(ConfigError, match="Unknown option 'lingerms'"):
        KafkaProducer({"bootstrap.servers": "127.0.0.1:9092", "lingerms": "1"})


def test_partitions_for_tells_the_topics_partitions(producers: Producers):
    producer, _ = producers(max_block_ms=50)
    assert [info.tp.partition for info in producer.partitions_for("test")] == [0, 1, 2, 3]
    with pytest.raises(KafkaTimeoutError, match="Topic nowhere"):
        producer.partitions_for("nowhere")


def test_a_batch_needs_the_columns_of_the_sink(producers: Producers):
    producer, client = producers()
    batch = pa.record_batch({"value": ["a", "b"], "key": ["k", None], "partition": [0, 0]})
    producer.send_batch(batch, "test")
    producer.flush()
    (found,) = client.logs[TP0]
    assert [(r.key, r.value) for r in found.records] == [(b"k", b"a"), (None, b"b")]
    with pytest.raises(SchemaError, match="topic option required"):
        producer.send_batch(batch)
    with pytest.raises(SchemaError, match="Required attribute 'value' not found"):
        producer.send_batch(pa.record_batch({"key": ["k"]}), "test")
    with pytest.raises(SchemaError, match="value attribute unsupported type int64"):
        producer.send_batch(pa.record_batch({"value": [1]}), "test")
    with pytest.raises(DataError, match=r"takes a pyarrow\.RecordBatch"):
        producer.send_batch(pa.table({"value": ["a"]}), "test")
    with pytest.raises(DataError, match="does not fit"):
        producer.send_batch(pa.record_batch({"value": ["a"], "partition": [2**40]}), "test")
    producer.send_batch(batch, "test")  # none of this has harmed it
    producer.flush()


def test_transactional_calls_need_a_transactional_id(producers: Producers):
    """TransactionManagerTest#testFailIfNotReadyForSendNoOngoingTransaction."""
    producer, _ = producers()
    for call in (
        producer.init_transactions,
        producer.begin_transaction,
        producer.commit_transaction,
        producer.abort_transaction,
    ):
        with pytest.raises(IllegalStateError, match=r"transactional\.id"):
            call()


# ---- a real broker -------------------------------------------------------------------------------


def test_a_real_broker_takes_records_and_tells_their_offsets(
    kafka: RealKafka, consume: Callable[..., Consumed]
):
    topic = kafka.unique_topic("send", partitions=3)
    heard = Heard()
    options = {"bootstrap.servers": kafka.bootstrap, "value.serializer": "long"}
    with KafkaProducer(options) as producer:
        futures = [producer.send(ProducerRecord(topic, n, b"k%d" % n), heard) for n in range(3000)]
        producer.flush()
        found = [future.result(0) for future in futures]
    assert len(heard.calls) == 3000
    rows = consume(topic)
    written = {
        (partition, offset): (key, value)
        for partition, offset, key, value in zip(
            rows.partitions, rows.offsets, rows.keys, rows.values, strict=True
        )
    }
    assert written == {
        (metadata.partition, metadata.offset): (b"k%d" % n, n.to_bytes(8, "big"))
        for n, metadata in enumerate(found)
    }


def test_the_log_shows_no_payload(producers: Producers, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    producer, client = producers(enable_idempotence="false")
    client.answer = refuse(ErrorCode.INVALID_RECORD)
    producer.send(to0(b"a secret", key=b"another secret", headers=[("h", b"third secret")]))
    producer.flush()
    assert "secret" not in caplog.text
    assert "secret" not in repr(to0(b"secret", key=b"secret", headers=[("h", b"secret")]))
