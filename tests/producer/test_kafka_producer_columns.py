"""KafkaProducer.send_columns and send_batch: columns in, acknowledged rows out."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import DataError, IllegalStateError, SchemaError
from spark_kafka_sink.producer import column_appender
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.producer.answered_producers import (
    PARTITIONS,
    TP0,
    Producers,
    await_memory,
    numbered,
    rows_of,
)
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.usefixtures("small_batches")


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
    await_memory(producer)


def test_a_batch_spans_many_calls(producers: Producers):
    """Offset deltas go on where the open batch stands."""
    # Nothing but the flush ends it, however long the calls take.
    producer, client = producers(batch_size=100_000, linger_ms=60_000)
    for n in range(50):
        producer.send_columns(rows_of([b"%d" % n], 0))
    producer.flush()
    (batch,) = client.logs[TP0]
    assert [r.value for r in batch.records] == [b"%d" % n for n in range(50)]


def test_rows_for_a_batch_that_the_sender_closes_are_re_encoded(
    producers: Producers, monkeypatch: pytest.MonkeyPatch
):
    """The race of rows with the sender, hundreds of times, and until the sender is first: another
    thread makes every open batch go at any moment, and sometimes the encoded rows wait for that.
    Nothing is lost, doubled or out of order.
    """
    producer, client = producers(batch_size=2000)
    accumulator, columns = producer._accumulator, producer._parts.columns
    encode_again, refused = columns._encode_again, 0
    stop = threading.Event()

    def counted(chunk, groups, slices, now_ms):
        nonlocal refused
        refused += len(slices)
        return encode_again(chunk, groups, slices, now_ms)

    columns._encode_again = counted
    encode, turns = column_appender.encode_groups, itertools.count()

    def encoded(*given, **named):
        slices = encode(*given, **named)
        if next(turns) % 50 == 0:
            wait_for(lambda: not accumulator.has_undrained, what="the end of the open batches")
        return slices

    monkeypatch.setattr(column_appender, "encode_groups", encoded)

    def disturb() -> None:
        while not stop.is_set():
            flush = accumulator.begin_flush()
            producer._parts.wakeup()
            accumulator.end_flush(flush)

    thread = threading.Thread(target=disturb, daemon=True)
    thread.start()
    sent: list[bytes] = []
    try:
        deadline = time.monotonic() + 30 * PATIENCE
        for first in itertools.count(0, 50):
            if first >= 20_000 and (refused or time.monotonic() > deadline):
                break
            values = numbered(first, 50, 10)
            sent += values
            producer.send_columns(rows_of(values, 1))
    finally:
        stop.set()
        thread.join(60)
    assert producer.finish_attempt().rows == len(sent)
    assert client.values(TopicPartition("test", 1)) == sent
    assert refused > 0  # the race did happen


def test_memory_in_open_batches_alone_does_not_block_forever(producers: Producers):
    """RecordAccumulatorTest#testFlush: far more rows than buffer.memory, batches that never
    fill.
    """
    producer, client = producers(buffer_memory=20_000, batch_size=20_000, max_block_ms=20_000)
    for first in range(0, 2000, 100):
        values = numbered(first, 100, 100)
        producer.send_columns(rows_of(values, [n % PARTITIONS for n in range(100)]))
    assert producer.finish_attempt().rows == 2000
    assert sum(len(client.values(TopicPartition("test", p))) for p in range(PARTITIONS)) == 2000


def test_rows_of_a_few_bytes_fit_a_small_memory_piecewise(producers: Producers):
    """What a record adds to its row may be more than the row: a chunk of them is halved."""
    producer, client = producers(buffer_memory=5_000, batch_size=1000)
    producer.send_columns(rows_of([b""] * 20_000, 0))
    assert producer.finish_attempt().rows == 20_000
    assert len(client.values(TP0)) == 20_000


def test_without_acks_rows_count_when_they_are_handed_over(producers: Producers):
    producer, client = producers(acks=0, enable_idempotence="false")
    producer.send_columns(rows_of(numbered(0, 100), 0))
    report = producer.finish_attempt()
    assert report.rows == 100
    assert report.offsets == {}
    assert len(client.values(TP0)) == 100


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
def test_batches_of_mixed_compressibility_rarely_exceed_the_size(producers: Producers, codec: str):
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
    sizes = client.batch_sizes[TP0]
    assert len(sizes) > 50
    assert sum(size > 16_384 for size in sizes) < len(sizes) / 10


def test_linger_begins_later_where_the_writer_says_so(producers: Producers):
    """Not before the 300 ms are over, and not only when the batch has been open for a second."""
    producer, client = producers(linger_ms=1)
    producer.send_columns(rows_of([b"x"], 0))
    begun = time.monotonic()
    with producer.waiting_for_input(delay_ms=300):
        client.await_produced(1)
    assert time.monotonic() - begun >= 0.299  # the clock counts whole milliseconds


def test_the_sender_is_woken_for_a_wait_only_with_an_open_batch(producers: Producers):
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


# ---- an iterable of batches ----------------------------------------------------------------------


def test_an_iterable_of_batches_is_sent_small_ones_together(producers: Producers):
    producer, _ = producers(linger_ms=5)
    batches = [
        pa.record_batch({"value": [f"{n}-{i}" for i in range(10)], "partition": [n % 4] * 10})
        for n in range(40)
    ]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    producer.send_batches(reader, topic="test")
    producer.flush()
    assert producer.finish_attempt().rows == 400


@pytest.mark.parametrize("wrong", [b"bytes", pa.table({"value": ["a"]})])
def test_what_is_no_batch_is_refused_among_batches_too(producers: Producers, wrong: object):
    producer, _ = producers(linger_ms=5)
    good = pa.record_batch({"value": ["a"]})
    with pytest.raises(DataError, match=r"takes a pyarrow\.RecordBatch, not"):
        producer.send_batches([good, wrong], topic="test")  # type: ignore[list-item]


def test_an_iterable_that_raises_leaves_the_producer_usable(producers: Producers):
    """Its error is not one of sending: what it returned before is sent, also what was held back."""

    def broken() -> Iterator[pa.RecordBatch]:
        for n in range(4):
            yield pa.record_batch({"value": [f"{n}"]})
        raise OSError("the input broke")

    producer, _ = producers(linger_ms=5)
    with pytest.raises(OSError, match="the input broke"):
        producer.send_batches(broken(), topic="test")
    assert producer.finish_attempt().rows == 4


def test_the_rows_of_an_error_are_counted_over_all_batches(producers: Producers):
    """The message counts those of what was joined, which only the producer knows."""
    producer, _ = producers(linger_ms=5)
    batches = [pa.record_batch({"value": ["a"] * 10, "partition": [0] * 10}) for _ in range(9)]
    batches[7] = pa.record_batch({"value": ["a"] * 10, "partition": [-1] + [0] * 9})
    with pytest.raises(DataError) as raised:
        producer.send_batches(batches, topic="test")
    row = re.search(r"row (\d+) of the Arrow batch", str(raised.value))
    (note,) = raised.value.__notes__
    first = re.fullmatch(r"  while sending rows (\d+) to \d+ of all batches", note)
    assert row is not None
    assert first is not None
    assert int(first[1]) + int(row[1]) == 70


def test_a_closed_producer_takes_no_batch_of_an_iterable(producers: Producers):
    producer, _ = producers()
    producer.close()
    batches = iter([pa.record_batch({"value": ["a"]})])
    with pytest.raises(IllegalStateError):
        producer.send_batches(batches, topic="test")
    assert len(list(batches)) == 1


def test_with_a_linger_of_zero_no_batch_waits_for_others(producers: Producers):
    producer, _ = producers(linger_ms=0)
    taken = []

    def counted() -> Iterator[pa.RecordBatch]:
        for n in range(5):
            taken.append(producer.chunk_size.wanted_rows)
            yield pa.record_batch({"value": [f"{n}"]})

    producer.send_batches(counted(), topic="test")
    assert taken == [1] * 5
