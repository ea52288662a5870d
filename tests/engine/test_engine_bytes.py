"""What was sent is what others read: codecs, levels, nulls, headers, times, sizes, Arrow types."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from spark_kafka_sink.records.record_columns import CHUNK_BYTES, ColumnPlan
from tests.engine.rows import (
    Row,
    arrow,
    check_sequences,
    dump_log,
    in_pieces,
    now_ms,
    plan,
    stored,
    values_batch,
    write,
)

CODECS = [
    {"compression.type": "none"},
    {"compression.type": "gzip", "compression.gzip.level": "-1"},
    {"compression.type": "gzip", "compression.gzip.level": "1"},
    {"compression.type": "gzip", "compression.gzip.level": "9"},
    {"compression.type": "snappy"},
    {"compression.type": "lz4", "compression.lz4.level": "1"},
    {"compression.type": "lz4", "compression.lz4.level": "9"},
    {"compression.type": "lz4", "compression.lz4.level": "17"},
    {"compression.type": "zstd", "compression.zstd.level": "-131072"},
    {"compression.type": "zstd", "compression.zstd.level": "3"},
    {"compression.type": "zstd", "compression.zstd.level": "22"},
]
#: Lengths where a varint gets a byte longer, of the value and of the record around it.
BORDERS = [
    size + near
    for size in (0, 1, 12, 13, 63, 64, 127, 128, 8191, 8192, 16383, 16384, 65535, 65536)
    for near in (-9, -8, -7, -1, 0, 1)
    if size + near >= 0
]
BASE = 1_700_000_000_000


def content(size: int, seed: int) -> bytes:
    """Half noise, half zeros: compressible, but not to nothing."""
    return random.Random(seed).randbytes(size // 2 + size % 2) + bytes(size // 2)


def edge_rows() -> list[Row]:
    rows = [
        Row(value, key, headers)
        for value in (None, b"", b"v", b"a value of more than twelve bytes")
        for key in (None, b"", b"k", b"a key of more than twelve bytes")
        for headers in (
            None,
            [],
            [("h", b"1")],
            [("h", b"1"), ("h", None), ("h", b"1"), ("", b""), ("größe", b"\x00\xff")],
            [(f"header {i}", None if i % 3 else content(i * 40, i)) for i in range(130)],
        )
    ]
    rows += [Row(content(size, size), b"%d" % size) for size in BORDERS]
    rows += [Row(b"v", content(size, size)) for size in BORDERS if size < 20_000]
    rows += [Row(content(size, size)) for size in (100_000, 524_288, 999_000)]
    # Timestamps: going back, all alike, in any order, extreme, and absent.
    times = [BASE, BASE - 10**9, BASE - 10**9, BASE, BASE + 1, BASE - 1, 0, 1, BASE, None, BASE]
    times += [random.Random(5).randrange(BASE) for _ in range(50)]
    return rows + [Row(b"t%d" % i, time=time) for i, time in enumerate(times)]


@pytest.mark.long
def test_every_codec_and_level_keeps_every_kind_of_record(kafka, consume):
    """Read by librdkafka; and by Java, whose log tool unpacks every batch of every codec."""
    rows = edge_rows()
    random.Random(1).shuffle(rows)
    topics = []
    for number, options in enumerate(CODECS):
        topic = kafka.unique_topic(options["compression.type"])
        topics.append(topic)
        sent_from = now_ms()
        report = write(
            kafka.bootstrap,
            plan(topic),
            in_pieces(rows, (7, 61, len(rows))[number % 3]),
            {"batch.size": (16_384, 262_144, 1_048_576)[number % 3], **options},
        )
        assert report.rows == len(rows)
        for row, found in zip(rows, stored(consume(topic)), strict=True):
            assert (found.value, found.key, found.headers) == (
                row.value,
                row.key,
                row.headers or [],
            )
            if row.time is None:
                assert sent_from <= found.time <= now_ms()
            else:
                assert found.time == row.time
    if kafka.cluster is None:
        return  # the broker's disk is in a container
    logs = dump_log(kafka.cluster, topics)
    for topic, options in zip(topics, CODECS, strict=True):
        batches = logs[topic]
        check_sequences(batches)
        assert {b.codec for b in batches} == {options["compression.type"]}
        sizes = [(key, value) for b in batches for _, _, key, value in b.records]
        assert sizes == [(_size(row.key), _size(row.value)) for row in rows]


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def test_rows_around_the_chunk_limit_and_a_batch_of_many_chunks(kafka, consume):
    """4 MiB of input is a chunk: rows just below, at and above it, and a 64 MB Arrow batch."""
    sizes = [CHUNK_BYTES + near for near in (-2, -1, 0, 1, 2)] + [1, CHUNK_BYTES, 1, 1]
    big = {"max.request.size": 5_000_000}
    topic = kafka.unique_topic("chunks", configs={"max.message.bytes": "6000000"})
    rows = [content(size, size) for size in sizes]
    columns = ColumnPlan(topic, value_column=0)
    write(kafka.bootstrap, columns, [values_batch(rows)], {**big, "buffer.memory": 16_000_000})
    assert consume(topic).values == rows

    topic = kafka.unique_topic("batch-of-64-mb")
    rows = [b"%010d" % i + bytes(6390) for i in range(10_000)]
    columns = ColumnPlan(topic, value_column=0)
    report = write(kafka.bootstrap, columns, [values_batch(rows)])
    assert report.rows == 10_000
    assert consume(topic).values == rows


@pytest.mark.long
def test_columns_whose_bytes_lie_beyond_two_gibibytes_are_sent(kafka, consume):
    """A slice at the end of a large_binary column: offsets no 32-bit number holds."""
    import numpy as np

    zeros = np.zeros(2**31 + 2**20, np.uint8)  # pages that nobody touches cost nothing
    tail = b"the last bytes of the column"
    zeros[-len(tail) :] = np.frombuffer(tail, np.uint8)
    end = len(zeros)
    offsets = np.array([0, end - len(tail), end - len(tail), end - 10, end], np.int64)
    column = pa.Array.from_buffers(
        pa.large_binary(), 4, [None, pa.py_buffer(offsets), pa.py_buffer(zeros)]
    ).slice(1)
    topic = kafka.unique_topic("far")
    write(kafka.bootstrap, ColumnPlan(topic, value_column=0), [values_batch(column)])
    assert consume(topic).values == [b"", tail[:-10], tail[-10:]]


def test_an_empty_batch_and_rows_of_nulls_alone(kafka, consume):
    topic = kafka.unique_topic("nulls")
    nulls = [Row() for _ in range(5)]
    batches = [arrow([]), arrow(nulls), arrow([]), arrow([Row(b"end")])]
    assert write(kafka.bootstrap, plan(topic), batches).rows == 6
    assert [row.value for row in stored(consume(topic))] == [None] * 5 + [b"end"]
