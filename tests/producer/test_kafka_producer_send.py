"""KafkaProducer.send: one record at a time, there and back."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import ErrorCode, IllegalStateError, KafkaTimeoutError
from spark_kafka_sink.producer.producer_record import Headers, ProducerRecord, RecordMetadata
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.produce import ProduceRequest
from tests.fakes.accumulator_world import cluster_of
from tests.fakes.sender_world import metadata_answer
from tests.producer.answered_producers import TP0, Heard, Producers, await_memory, hold, refuse, to0


def test_a_future_has_the_offset_of_its_record(producers: Producers):
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


def test_null_and_empty_keys_values_and_headers_are_preserved(producers: Producers):
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


def test_numpys_whole_numbers_are_whole_numbers(producers: Producers):
    producer, client = producers()
    stamp = np.int64(1_700_000_000_000)
    producer.send(ProducerRecord("test", b"v", partition=np.int32(0), timestamp=stamp)).result(60)
    (record,) = client.logs[TP0][0].records
    assert record.timestamp == int(stamp)


def test_headers_are_read_only_after_send(producers: Producers):
    """KafkaProducerTest#testHeaders."""
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
    await_memory(producer)


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
            if len(metadata.cluster.topics[topic]) == 1:
                _, token = metadata.new_request(0)
                metadata.update(token, metadata_answer([1] * 2000, topic=topic), 0)
            return b"v"

    producer, client = producers(cluster_of([1]), value_serializer=Grows(), **options)
    producer.send(ProducerRecord("test", 1)).result(60)
    assert sum(map(len, client.logs.values())) == 1


def test_a_topic_that_has_fewer_partitions_now_gets_its_records(producers: Producers):
    """It was deleted and created again, and no longer has the sticky partition."""
    producer, client = producers(cluster_of([1] * 2000))
    while producer.send(ProducerRecord("test", b"v")).result(60).partition == 0:
        pass
    _, token = producer._metadata.new_request(0)
    producer._metadata.update(token, metadata_answer([1], topic="test"), 0)
    assert producer.send(ProducerRecord("test", b"w")).result(60).partition == 0
    assert client.values(TP0) == [b"w"]


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
    await_memory(producer)


def test_partitions_for_lists_the_topics_partitions(producers: Producers):
    producer, _ = producers(max_block_ms=50)
    assert [info.tp.partition for info in producer.partitions_for("test")] == [0, 1, 2, 3]
    with pytest.raises(KafkaTimeoutError, match="Topic nowhere"):
        producer.partitions_for("nowhere")


def test_a_future_waits_no_longer_than_asked(producers: Producers):
    producer, client = producers(answer=hold)
    future = producer.send(to0())
    with pytest.raises(KafkaTimeoutError, match=r"not completed within 0\.05 s"):
        future.result(0.05)
    client.release()
    assert future.result(60).offset == 0


def test_futures_follow_their_records_into_the_halves_of_a_split(producers: Producers):
    """RecordAccumulatorTest#testSplitAndReenqueue,
    RecordAccumulatorTest#testSplitBatchOffAccumulator. Somebody waits for each of them already.
    """
    producer, client = producers(linger_ms=60_000, answer=hold)
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
    await_memory(producer)
