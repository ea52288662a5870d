"""KafkaProducer: columns in, acknowledged rows out, with its real network thread.

The first half talks to a client that answers at once, the second to a real broker.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.errors import (
    BufferExhaustedError,
    DataError,
    DeliveryError,
    ErrorCode,
    IllegalStateError,
    KafkaTimeoutError,
    RecordTooLargeError,
)
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition
from spark_kafka_sink.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from spark_kafka_sink.records.record_columns import RecordColumns
from tests.fakes.accumulator_world import cluster_of
from tests.fakes.answering_client import HOLD, AnsweringClient
from tests.real_kafka import Consumed, RealKafka

CLUSTER = cluster_of([1, 2, 1, 2])
PARTITIONS = 4


def rows_of(
    values: list[bytes] | pa.Array,
    partition: int | list[int] | None = None,
    topic: str = "test",
    keys: list[bytes | None] | None = None,
) -> RecordColumns:
    count = len(values)
    partitions = None if partition is None else np.full(count, partition, np.int32)
    if isinstance(partition, list):
        partitions = np.array(partition, np.int32)
    return RecordColumns(
        rows=count,
        topic=topic,
        partition=partitions,
        key=None if keys is None else pa.array(keys, pa.binary()),
        value=values if isinstance(values, pa.Array) else pa.array(values, pa.binary()),
    )


def numbered(first: int, count: int, size: int = 20) -> list[bytes]:
    return [b"%0*d" % (size, n) for n in range(first, first + count)]


class Producers:
    """Makes producers over an AnsweringClient; closes what a test leaves open."""

    def __init__(self) -> None:
        self.made: list[KafkaProducer] = []

    def __call__(
        self, cluster: Cluster = CLUSTER, **options: object
    ) -> tuple[KafkaProducer, AnsweringClient]:
        given = {"bootstrap.servers": "127.0.0.1:9092", "batch.size": 1000, "linger.ms": 0}
        given |= {name.replace("_", "."): value for name, value in options.items()}
        client = AnsweringClient(cluster)
        producer = KafkaProducer(ProducerConfig.parse(given), cluster=cluster, client=client)
        self.made.append(producer)
        return producer, client


@pytest.fixture
def producers() -> Iterator[Producers]:
    factory = Producers()
    yield factory
    for producer in factory.made:
        producer.close(0)
        assert not producer._thread.is_alive()


def refuse(code: ErrorCode) -> Callable[[object], object]:
    """Every Produce request is answered with ``code`` for each of its partitions."""

    def answer(request: object) -> object:
        if not isinstance(request, ProduceRequest):
            return None
        return ProduceResponse(
            tuple(PartitionProduceResponse(piece.tp, code, -1) for piece in request.data)
        )

    return answer


def hold(request: object) -> object:
    return HOLD if isinstance(request, ProduceRequest) else None


def send_without_end(producer: KafkaProducer) -> None:
    """Rows for partition 0, until something stops it."""
    for first in range(0, 1_000_000, 100):
        producer.send_columns(rows_of(numbered(first, 100), 0))


# ---- rows ----------------------------------------------------------------------------------------


def test_every_row_arrives_once_in_the_order_of_its_partition(producers: Producers):
    producer, client = producers()
    producer.start_attempt()
    rng = np.random.default_rng(7)
    expected: dict[int, list[bytes]] = {p: [] for p in range(PARTITIONS)}
    for first in range(0, 3000, 300):
        values = numbered(first, 300)
        partitions = rng.integers(0, PARTITIONS, 300).tolist()
        for value, partition in zip(values, partitions, strict=True):
            expected[partition].append(value)
        producer.send_columns(rows_of(values, partitions))
    report = producer.finish_attempt()
    assert report.rows == 3000
    for partition in range(PARTITIONS):
        tp = TopicPartition("test", partition)
        assert client.values(tp) == expected[partition]
        assert report.offsets[tp] == (0, len(expected[partition]) - 1)
    assert producer._accumulator.pool.available == producer._config.buffer_memory


def test_a_batch_spans_many_calls(producers: Producers):
    """Offset deltas go on where the open batch stands."""
    producer, client = producers(batch_size=100_000)
    for n in range(50):
        producer.send_columns(rows_of([b"%d" % n], 0))
    producer.flush()
    (batch,) = client.logs[TopicPartition("test", 0)]
    assert [r.value for r in batch.records] == [b"%d" % n for n in range(50)]


def test_rows_encoded_for_a_batch_that_the_sender_closes_are_encoded_again(producers: Producers):
    """The race of rows with the sender, thousands of times: another thread makes every open batch
    go at any moment. Nothing is lost, doubled or out of order."""
    producer, client = producers(batch_size=2000)
    accumulator = producer._accumulator
    stop = threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            flush = accumulator.begin_flush()
            producer._sender.wakeup()
            accumulator.end_flush(flush)

    thread = threading.Thread(target=disturb, daemon=True)
    thread.start()
    sent: list[bytes] = []
    try:
        for first in range(0, 20_000, 50):
            values = numbered(first, 50, 10)
            sent += values
            producer.send_columns(rows_of(values, 1))
    finally:
        stop.set()
        thread.join(60)
    assert producer.finish_attempt().rows == len(sent)
    assert client.values(TopicPartition("test", 1)) == sent
    assert accumulator.refused_slices > 0  # the race did happen


def test_memory_that_sits_in_open_batches_alone_does_not_block_for_ever(producers: Producers):
    """RecordAccumulatorTest#testFlush: far more rows than buffer.memory, batches that never
    fill.
    """
    producer, client = producers(buffer_memory=20_000, batch_size=20_000, max_block_ms=20_000)
    for first in range(0, 2000, 100):
        values = numbered(first, 100, 100)
        producer.send_columns(rows_of(values, [n % PARTITIONS for n in range(100)]))
    assert producer.finish_attempt().rows == 2000
    assert sum(len(client.values(TopicPartition("test", p))) for p in range(PARTITIONS)) == 2000


def test_rows_of_a_few_bytes_fit_into_a_small_memory_piece_by_piece(producers: Producers):
    """What a record adds to its row may be more than the row: a chunk of them is halved."""
    producer, client = producers(buffer_memory=5_000, batch_size=1000)
    producer.send_columns(rows_of([b""] * 20_000, 0))
    assert producer.finish_attempt().rows == 20_000
    assert len(client.values(TopicPartition("test", 0))) == 20_000


def test_without_acks_rows_count_when_they_are_handed_over(producers: Producers):
    producer, client = producers(acks=0, enable_idempotence="false")
    producer.send_columns(rows_of(numbered(0, 100), 0))
    report = producer.finish_attempt()
    assert report.rows == 100
    assert report.offsets == {}
    assert len(client.values(TopicPartition("test", 0))) == 100


def test_null_keys_leave_no_fractions_of_batches(producers: Producers):
    """RecordAccumulatorTest#testBuiltInPartitionerFractionalBatches: two thirds of a batch for each
    linger; all go to one partition at a time.
    """
    producer, client = producers(batch_size=10_000)
    for first in range(0, 4000, 100):
        producer.send_columns(rows_of(numbered(first, 100, 60)))  # 6800 bytes of records
        producer.flush()
    sizes = [size for sizes in client.batch_sizes.values() for size in sizes]
    assert len(client.batch_sizes) > 1  # it did move on
    assert len(sizes) == 40
    assert all(5_000 < size < 10_000 for size in sizes)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_batches_of_mixed_compressibility_seldom_exceed_batch_size(
    producers: Producers, codec: str
):
    """RecordAccumulatorTest#testSplitFrequency: the estimated ratio rises at once and falls slowly,
    so fewer than one batch in ten comes out larger than planned (and would be split by a broker
    with that limit).
    """
    producer, client = producers(compression_type=codec, batch_size=16_384)
    rng = np.random.default_rng(3)
    for _ in range(60):
        noise = rng.random() < 0.5
        values = [rng.bytes(200) if noise else bytes(200) for _ in range(400)]
        producer.send_columns(rows_of(values, 0))
    assert producer.finish_attempt().rows == 24_000
    sizes = client.batch_sizes[TopicPartition("test", 0)]
    assert len(sizes) > 50
    assert sum(size > 16_384 for size in sizes) < len(sizes) / 10


# ---- linger --------------------------------------------------------------------------------------


def test_an_unfilled_batch_goes_when_the_writer_waits_for_its_input(producers: Producers):
    producer, client = producers(linger_ms=1)
    producer.send_columns(rows_of([b"x"], 0))
    with producer.waiting_for_input():
        client.await_produced(1)


def test_the_sender_is_woken_for_the_writers_wait_only_when_a_batch_is_open(producers: Producers):
    """It may sleep far longer than linger.ms; an idle wait must not cost a system call."""
    producer, client = producers(linger_ms=100_000)
    woken: list[int] = []
    client.on_wakeup = lambda: woken.append(1)
    with producer.waiting_for_input():
        assert len(woken) == 0
    producer.send_columns(rows_of([b"x"], 0))
    before = len(woken)
    with producer.waiting_for_input():
        assert len(woken) == before + 1


def test_an_unfilled_batch_goes_after_a_second_although_nobody_waits(producers: Producers):
    producer, client = producers()
    producer.send_columns(rows_of([b"x"], 0))
    client.await_produced(1)


# ---- failures ------------------------------------------------------------------------------------


def test_the_first_failure_names_partition_cause_attempts_and_age(producers: Producers):
    producer, client = producers()
    client.answer = refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    producer.send_columns(rows_of(numbered(0, 10), 2))
    with pytest.raises(DeliveryError) as caught:
        producer.finish_attempt()
    text = str(caught.value)
    assert "test-2: 10 rows were not acknowledged (attempts: 1, age: " in text
    assert "TOPIC_AUTHORIZATION_FAILED" in text
    assert "WRITE on the topic" in text  # the hint
    assert not producer.reusable
    for call in (producer.flush, producer.start_attempt, producer.park):
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


def test_a_failure_ends_a_flush_at_once_although_others_are_in_flight(producers: Producers):
    """Without idempotence the sender goes on; the writer must not wait for the other answers."""
    producer, client = producers(enable_idempotence="false")
    client.answer = hold
    for partition in range(PARTITIONS):
        producer.send_columns(rows_of(numbered(0, 200), partition))
    client.await_produced(1)
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
    assert producer._accumulator.has_incomplete


def test_rows_that_are_never_acknowledged_fail_at_delivery_timeout(producers: Producers):
    producer, client = producers(delivery_timeout_ms=300, request_timeout_ms=200)
    client.answer = hold
    producer.send_columns(rows_of(numbered(0, 10), 0))
    with pytest.raises(DeliveryError, match="Expiring 10 record"):
        producer.flush()


def test_memory_that_stays_used_up_names_its_options_and_the_brokers_answer(producers: Producers):
    producer, client = producers(
        buffer_memory=10_000, max_block_ms=200, retry_backoff_ms=10, retry_backoff_max_ms=10
    )
    client.answer = refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(BufferExhaustedError) as caught:
        send_without_end(producer)
    text = str(caught.value)
    assert "buffer.memory (10000 bytes)" in text
    assert "max.block.ms is 200" in text
    assert "delivery.timeout.ms 120000" in text
    assert "test-0" in text
    assert "NOT_ENOUGH_REPLICAS" in text


def test_a_record_beyond_max_request_size_is_refused_in_javas_words(producers: Producers):
    producer, _ = producers(max_request_size=5000)
    with pytest.raises(
        RecordTooLargeError,
        match=r"when serialized which is larger than 5000, which is the value of the "
        r"max\.request\.size configuration\.",
    ):
        producer.send_columns(rows_of([b"x", b"y" * 6000], 0))


def test_a_record_beyond_both_limits_is_refused_at_once(producers: Producers):
    """It must not wait for all of the memory first, which others still hold."""
    producer, client = producers(max_request_size=5000, buffer_memory=6000)
    client.answer = hold
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
    producer, client = producers(max_block_ms=50)
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


def test_an_exception_in_the_network_thread_reaches_every_waiter(producers: Producers):
    producer, client = producers()
    client.answer = hold
    producer.send_columns(rows_of(numbered(0, 10), 0))

    def broken() -> None:
        raise RuntimeError("a bug")

    client.on_poll = broken
    with pytest.raises(DeliveryError, match="a bug"):
        producer.flush()
    with pytest.raises(DeliveryError, match="a bug"):
        producer.send_columns(rows_of([b"x"], 0))
    assert not producer.reusable


def test_an_interrupted_send_leaves_a_producer_that_only_closes(producers: Producers):
    """KeyboardInterrupt while the writer wakes the sender to wait for memory."""
    producer, client = producers(buffer_memory=10_000)
    client.answer = hold
    writer = threading.current_thread()

    def interrupt() -> None:
        if threading.current_thread() is writer and producer._accumulator.pool.waiters:
            client.on_wakeup = lambda: None
            raise KeyboardInterrupt

    client.on_wakeup = interrupt
    with pytest.raises(KeyboardInterrupt):
        send_without_end(producer)
    assert producer._accumulator.pool.waiters == 0
    with pytest.raises(IllegalStateError, match="interrupted"):
        producer.flush()
    producer.close(0)
    assert producer._accumulator.pool.available == producer._config.buffer_memory


# ---- from attempt to attempt ---------------------------------------------------------------------


def test_a_warm_producer_keeps_its_id_and_its_sequences(producers: Producers):
    """Rule 5.4."""
    producer, client = producers()
    tp = TopicPartition("test", 0)
    for attempt in range(3):
        producer.start_attempt()
        producer.send_columns(rows_of(numbered(0, 10), 0))
        report = producer.finish_attempt()
        assert (report.rows, report.offsets) == (10, {tp: (attempt * 10, attempt * 10 + 9)})
        assert producer.reusable
        producer.park()
    headers = [batch.header for batch in client.logs[tp]]
    assert [h.base_sequence for h in headers] == [0, 10, 20]
    assert {(h.producer_id, h.producer_epoch) for h in headers} == {(4711, 0)}
    assert producer.producer_id_and_epoch == (4711, 0)
    assert producer._accumulator.pool.available == producer._config.buffer_memory


def test_an_attempt_cannot_begin_or_park_over_rows_without_an_answer(producers: Producers):
    producer, client = producers()
    client.answer = hold
    producer.send_columns(rows_of(numbered(0, 10), 0))
    assert not producer.reusable
    with pytest.raises(IllegalStateError):
        producer.start_attempt()
    with pytest.raises(IllegalStateError):
        producer.park()
    client.release()
    assert producer.finish_attempt().rows == 10


def test_close_sends_the_rest(producers: Producers):
    producer, client = producers()
    producer.send_columns(rows_of(numbered(0, 10), 0))
    producer.close(10_000)
    assert len(client.values(TopicPartition("test", 0))) == 10
    assert client.closed
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send_columns(rows_of([b"x"], 0))


def test_close_with_no_time_drops_everything(producers: Producers):
    producer, client = producers()
    client.answer = hold
    producer.send_columns(rows_of(numbered(0, 100), 0))
    producer.close(0)
    assert client.closed
    assert not producer._accumulator.has_incomplete
    assert producer._accumulator.pool.available == producer._config.buffer_memory


def test_a_forked_child_is_refused(producers: Producers):
    """Its network thread stayed in the parent, and the sockets belong to both."""
    producer, client = producers()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        told = b"nothing"
        try:
            producer.send_columns(rows_of([b"x"], 0))
        except IllegalStateError as error:
            told = error.message.encode()
        finally:
            producer.close()
            os.write(writing, told)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert b"was made in process" in pipe.read()
    os.waitpid(child, 0)
    assert not client.closed
    producer.send_columns(rows_of([b"x"], 0))
    assert producer.finish_attempt().rows == 1


# ---- a real broker -------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_real_broker_takes_every_row_with_every_codec(
    kafka: RealKafka, consume: Callable[..., Consumed], codec: str
):
    topic = kafka.unique_topic(f"codec-{codec}", partitions=3)
    config = ProducerConfig.parse(
        {"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "batch.size": 20_000}
    )
    keys: list[bytes | None] = [b"k%d" % (n % 17) if n % 5 else None for n in range(5000)]
    values = numbered(0, 5000, 60)
    producer = KafkaProducer(config)
    producer.start_attempt()
    for first in range(0, 5000, 1000):
        part = slice(first, first + 1000)
        producer.send_columns(rows_of(values[part], topic=topic, keys=keys[part]))
    report = producer.finish_attempt()
    producer.close(10_000)
    found = consume(topic)
    assert report.rows == len(found) == 5000
    assert sorted(zip(found.keys, found.values, strict=True), key=lambda r: r[1] or b"") == list(
        zip(keys, values, strict=True)
    )
    for in_order in found.by_partition().values():
        keyed = [v for v in in_order if v is not None and int(v) % 5]
        assert keyed == sorted(keyed)
    assert sum(last - first + 1 for first, last in report.offsets.values()) == 5000
    if codec != "none":
        assert report.bytes < report.batch_bytes


def test_batches_beyond_the_brokers_limit_are_split_and_arrive_in_order(
    kafka: RealKafka, consume: Callable[..., Consumed]
):
    """Rule 5.7 on a real broker: sequences keep their ranges, batches behind wait and go again."""
    topic = kafka.unique_topic("split", partitions=2, configs={"max.message.bytes": "3000"})
    config = ProducerConfig.parse({"bootstrap.servers": kafka.bootstrap, "batch.size": 20_000})
    producer = KafkaProducer(config)
    producer.start_attempt()
    values = numbered(0, 4000, 50)
    for first in range(0, 4000, 500):
        producer.send_columns(
            rows_of(values[first : first + 500], [n % 2 for n in range(500)], topic=topic)
        )
    report = producer.finish_attempt()
    assert producer.reusable
    producer.close(10_000)
    assert report.splits > 0
    assert report.rows == 4000
    found = consume(topic).by_partition()
    assert found == {0: values[0::2], 1: values[1::2]}
