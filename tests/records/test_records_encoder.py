"""Columns to record bytes and back: cuts, deltas, groups, both ways of joining pieces."""

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import RecordTooLargeError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records import record_headers, row_pieces
from spark_kafka_sink.records.encoded_slice import OpenPosition
from spark_kafka_sink.records.gather import VIEWS_WORK, TakeGather, ViewGather
from spark_kafka_sink.records.record_columns import (
    ChunkSize,
    ColumnPlan,
    RecordColumns,
    from_record_batch,
)
from spark_kafka_sink.records.record_encoder import (
    encode_groups,
    encode_slices_again,
    group_rows,
)
from tests.fakes.record_reader import parse_records
from tests.programs import run_python

NOW = 1_700_000_000_000
GATHERS = [ViewGather, TakeGather] if VIEWS_WORK else [TakeGather]
NONE_OPEN = OpenPosition(0, 0, 0, 0)
LIMIT = 2**31 - 1


@pytest.fixture(params=GATHERS, ids=lambda g: g.__name__, autouse=True)
def gather(request, monkeypatch):
    """Both ways of joining pieces: which one runs depends on the Arrow that is installed."""
    monkeypatch.setattr(row_pieces, "new_gather", request.param)
    monkeypatch.setattr(record_headers, "new_gather", request.param)


def rows_of(columns, now=NOW):
    """(topic, timestamp, key, value) of each row, in order."""
    n = columns.rows
    topic = [columns.topic] * n if isinstance(columns.topic, str) else columns.topic.to_pylist()
    key = [None] * n if columns.key is None else columns.key.to_pylist()
    value = [None] * n if columns.value is None else columns.value.to_pylist()
    time = [now] * n if columns.timestamp is None else columns.timestamp.tolist()
    return list(zip(topic, time, key, value, strict=True))


def parsed(piece):
    """The records of a slice, checked against what the slice says of them."""
    records = parse_records(
        piece.data,
        piece.record_count,
        piece.base_timestamp,
        first_offset_delta=piece.first_offset_delta,
    )
    assert piece.max_timestamp == max(r.timestamp for r in records)
    return records


def encode(columns, partitions, positions=None, limits=LIMIT, max_request_size=LIMIT):
    groups = group_rows(columns, np.array(partitions, np.int32))
    if positions is None:
        positions = [NONE_OPEN] * len(groups.tps)
    return groups, encode_groups(
        columns, groups, positions, limits, NOW, max_request_size=max_request_size
    )


def check(columns, partitions, slices):
    """Every row is in its partition, once, in order; deltas and counts are right."""
    found = {}
    for piece in slices:
        found.setdefault(piece.tp, []).extend(
            (piece.tp.topic, r.timestamp, r.key, r.value) for r in parsed(piece)
        )
    wanted = {}
    for row, partition in zip(rows_of(columns), partitions, strict=True):
        wanted.setdefault(TopicPartition(row[0], partition), []).append(row)
    assert found == wanted


CELL = st.one_of(st.none(), st.binary(max_size=30), st.integers(0, 300).map(lambda n: b"x" * n))


@st.composite
def some_columns(draw):
    n = draw(st.integers(1, 40))
    skipped = draw(st.integers(0, 3))

    def column():
        if draw(st.booleans()):
            return None
        kind = draw(st.sampled_from([pa.binary(), pa.large_binary()]))
        cells = draw(st.lists(CELL, min_size=n + skipped, max_size=n + skipped))
        return pa.array(cells, kind).slice(skipped)

    topic = "t"
    if draw(st.booleans()):
        names = draw(st.lists(st.sampled_from(["a", "bb", "c"]), min_size=n, max_size=n))
        topic = pa.array(names).dictionary_encode()
    timestamp = None
    if draw(st.booleans()):
        most = draw(st.sampled_from([NOW, 2**62, 100]))
        times = draw(st.lists(st.integers(0, most), min_size=n, max_size=n))
        timestamp = np.array(times, np.int64)
    partitions = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    return (
        RecordColumns(n, topic, key=column(), value=column(), timestamp=timestamp),
        partitions,
    )


@settings(max_examples=120, deadline=None)
@given(some_columns(), st.sampled_from([1, 30, 100, 500, LIMIT]))
def test_every_row_comes_back_in_its_partition_in_order(case, limit):
    """MemoryRecordsBuilderTest#testSmallWriteLimit.

    And MemoryRecordsBuilderTest#buildUsingCreateTime: a slice says its largest time, not its last.
    """
    columns, partitions = case
    _, slices = encode(columns, partitions, limits=limit)
    check(columns, partitions, slices)
    for piece in slices:
        assert piece.generation == 0
        assert piece.first_offset_delta == 0
        assert len(piece.data) <= limit or piece.record_count == 1


@settings(max_examples=80, deadline=None)
@given(some_columns(), st.data())
def test_an_open_batch_is_continued_where_it_stands(case, data):
    columns, partitions = case
    groups = group_rows(columns, np.array(partitions, np.int32))
    positions = [
        OpenPosition(
            generation=data.draw(st.integers(0, 1)) * (7 + i),
            record_count=data.draw(st.sampled_from([1, 63, 64, 9000, 2_200_000])),
            base_timestamp=data.draw(st.integers(0, 2 * NOW)),
            room=data.draw(st.integers(-5, 200)),
        )
        for i in range(len(groups.tps))
    ]
    slices = encode_groups(columns, groups, positions, 150, NOW, max_request_size=LIMIT)
    check(columns, partitions, slices)
    at = dict(zip(groups.tps, positions, strict=True))
    seen = set()
    for piece in slices:
        position = at[piece.tp]
        if piece.generation:
            assert piece.tp not in seen
            assert piece.generation == position.generation
            assert piece.first_offset_delta == position.record_count
            assert piece.base_timestamp == position.base_timestamp
            assert len(piece.data) <= position.room
        else:
            assert piece.first_offset_delta == 0
            assert piece.base_timestamp == parsed(piece)[0].timestamp
        seen.add(piece.tp)


@settings(max_examples=60, deadline=None)
@given(some_columns(), st.integers(1, 400), st.integers(30, 300))
def test_chunking_changes_nothing(case, chunk_bytes, limit):
    columns, partitions = case
    slices, first = [], 0
    for chunk in columns.chunks(ChunkSize(max_bytes=chunk_bytes)):
        slices += encode(chunk, partitions[first : first + chunk.rows], limits=limit)[1]
        first += chunk.rows
    check(columns, partitions, slices)


@settings(max_examples=60, deadline=None)
@given(some_columns(), st.integers(1, 300), st.data())
def test_a_refused_slice_is_encoded_again_from_the_open_position(case, limit, data):
    columns, partitions = case
    groups, slices = encode(columns, partitions)
    refused = [piece for piece in slices if data.draw(st.booleans())]
    out = [piece for piece in slices if piece not in refused]
    if refused:
        positions = [OpenPosition(9, 70, NOW - 5, data.draw(st.integers(0, 400))) for _ in refused]
        limits = [limit] * len(refused)
        again = encode_slices_again(columns, groups, refused, positions, limits, NOW)
        for piece in refused:
            own = [p for p in again if p.tp == piece.tp]
            assert sum(p.record_count for p in own) == piece.record_count
            assert [p.first_row for p in own] == (
                piece.first_row + np.cumsum([0] + [p.record_count for p in own])[:-1]
            ).tolist()
        out += again
    check(columns, partitions, out)


@pytest.mark.parametrize("spread", [1, 70_000, 2_000_000_000])
def test_groups_are_stable_for_any_range_of_partitions(spread):
    rng = np.random.default_rng(spread)
    codes = (rng.integers(0, 50, 5000) * (spread // 50 or 1)).astype(np.int32)
    groups = group_rows(RecordColumns(5000, "t"), codes)
    order = np.arange(5000) if groups.order is None else groups.order
    assert order.tolist() == np.argsort(codes, kind="stable").tolist()
    for g, tp in enumerate(groups.tps):
        assert set(codes[order[groups.bounds[g] : groups.bounds[g + 1]]].tolist()) == {tp.partition}


def test_headers_end_up_in_their_records():
    struct = pa.struct([("key", pa.string()), ("value", pa.binary())])
    lists = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, []]
    batch = pa.RecordBatch.from_pydict(
        {"value": ["x", None, "z"], "headers": pa.array(lists, pa.list_(struct))}
    )
    columns = from_record_batch(batch, ColumnPlan("t", value_column=0, headers_column=1), NOW)
    _, slices = encode(columns, [1, 0, 1])
    by_tp = {s.tp.partition: parsed(s) for s in slices}
    assert [r.headers for r in by_tp[1]] == [(("a", b"1"), ("a", None)), ()]
    assert by_tp[0][0].headers == ()
    assert by_tp[0][0].value is None


@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 65_535, 65_536, 3_000_000])
def test_values_of_any_size_next_to_each_other(size):
    values = [b"a" * size, b"", None, b"b" * size, b"c"]
    columns = RecordColumns(5, "t", key=pa.array(values[::-1]), value=pa.array(values))
    partitions = [0, 1, 0, 1, 0]
    check(columns, partitions, encode(columns, partitions)[1])


def test_a_value_of_100_mb_is_one_record():
    value = pa.array([b"x" * 100_000_000])
    columns = RecordColumns(1, "t", value=value)
    _, (piece,) = encode(columns, [0], limits=262_083)
    assert piece.last
    assert len(piece.data) == 100_000_000 + 4 + 4 + 5
    assert bytes(piece.data[-3:]) == b"xx\x00"


def test_bytes_under_a_null_are_not_sent():
    offsets = pa.py_buffer(np.array([0, 20, 40], np.int32))
    column = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), offsets, pa.py_buffer(b"s" * 20 + b"v" * 20)]
    )
    columns = RecordColumns(2, "t", key=column, value=column)
    _, slices = encode(columns, [0, 0])
    assert b"s" not in bytes(slices[0].data)
    check(columns, [0, 0], slices)


def test_a_batch_is_last_when_another_record_would_not_fit():
    """MemoryRecordsBuilderTest#testSmallWriteLimit."""
    columns = RecordColumns(10, "t", value=pa.array([b"x" * 90] * 10))
    _, slices = encode(columns, [0] * 10, limits=400)
    assert [s.record_count for s in slices] == [4, 4, 2]
    assert [s.last for s in slices] == [True, True, False]


def test_an_open_batch_without_room_gets_nothing():
    """MemoryRecordsBuilderTest#testSmallWriteLimit."""
    columns = RecordColumns(2, "t", value=pa.array([b"x" * 90] * 2))
    position = OpenPosition(5, 10, NOW, 50)
    _, slices = encode(columns, [0, 0], [position], limits=1000)
    assert [(s.generation, s.record_count) for s in slices] == [(0, 2)]


def test_a_record_above_max_request_size_names_row_and_option():
    values = pa.array([b"", b"x" * 1000, b"x" * 2000])
    columns = replace(RecordColumns(3, "t", value=values), first_row=100)
    with pytest.raises(RecordTooLargeError) as caught:
        encode(columns, [0, 0, 0], max_request_size=1000)
    # Java's bound: 61 of the batch, 21 of the record, null key, length and bytes, no headers.
    assert caught.value.message == (
        "Row 101 of the Arrow batch (topic t): The message is 1086 bytes when serialized which is"
        " larger than 1000, which is the value of the max.request.size configuration."
    )
    assert pickle.loads(pickle.dumps(caught.value)).message == caught.value.message
    encode(columns.slice(0, 2), [0, 0], max_request_size=1086)


def test_no_rows_encode_to_nothing():
    """MemoryRecordsBuilderTest#testWriteEmptyRecordSet."""
    columns = RecordColumns(0, "t", value=pa.array([], pa.binary()))
    groups, slices = encode(columns, [])
    assert groups.tps == ()
    assert len(slices) == 0


def test_a_worker_process_does_not_import_pandas():
    """pa.array() and its like do; that is half a second in each of Spark's Python workers."""
    import pandas as pd

    assert pd, "without it nothing is proven: pyspark[sql] brings it into the dev group"
    code = "import sys, spark_kafka_sink.producer.kafka_producer; print('pandas' in sys.modules)"
    assert run_python("-c", code).stdout.strip() == "False"
