"""Arrow columns of every kind that Spark sends, as RecordColumns."""

import itertools
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import DataError
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows, Reason
from spark_kafka_sink.records.gather import lengths_of, span_of
from spark_kafka_sink.records.record_columns import (
    CHUNK_ROWS,
    ChunkSize,
    ColumnPlan,
    RecordColumns,
    from_record_batch,
)
from spark_kafka_sink.records.row_pieces import RowPieces
from spark_kafka_sink.records.varint import varint

NOW = 1_700_000_000_000
VALUE = ColumnPlan(topic="t", value_column=0)

STRINGS = [pa.string(), pa.large_string(), pa.string_view()]
BINARIES = [pa.binary(), pa.large_binary(), pa.binary_view()]


def columns(plan, **arrays):
    return from_record_batch(pa.RecordBatch.from_pydict(arrays), plan, NOW)


def test_the_plan_is_picklable_and_holds_no_arrow():
    assert pickle.loads(pickle.dumps(VALUE)) == VALUE


@pytest.mark.parametrize("kind", STRINGS + BINARIES, ids=str)
def test_a_string_or_binary_of_any_layout_gives_the_same_bytes(kind):
    plain = ["", None, "é", "x" * 50]
    values = plain if kind in STRINGS else [None if v is None else v.encode() for v in plain]
    expected = [b"", None, "é".encode(), b"x" * 50]
    whole = pa.array(values * 2, kind)
    for column in (whole, whole.slice(3, 4), whole.slice(1)):
        got = columns(VALUE, value=column).value
        assert pa.types.is_binary(got.type) or pa.types.is_large_binary(got.type)
        assert got.to_pylist() == [
            v.encode() if isinstance(v, str) else v for v in column.to_pylist()
        ]
    assert columns(VALUE, value=whole).value.to_pylist() == expected * 2


def test_a_binary_of_one_size_is_its_bytes():
    column = pa.array([b"abc", None, b"xyz"], pa.binary(3))
    assert columns(VALUE, value=column.slice(1)).value.to_pylist() == [None, b"xyz"]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string()], ids=str)
def test_a_dictionary_is_written_out(kind):
    values = ["a", None, "b", "a"]
    if pa.types.is_binary(kind):
        values = [None if v is None else v.encode() for v in values]
    column = pa.array(values, kind).dictionary_encode()
    assert columns(VALUE, value=column.slice(1)).value.to_pylist() == [None, b"b", b"a"]


def test_a_null_in_the_dictionary_itself_is_null():
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", None]))
    assert columns(VALUE, value=column).value.to_pylist() == [b"a", None, b"a"]


@pytest.mark.parametrize("column", [pa.nulls(3), pa.nulls(3, pa.string())], ids=str)
def test_a_column_of_nulls_is_no_column(column):
    assert columns(VALUE, value=column).value is None


def test_strings_and_binaries_are_not_copied():
    column = pa.array(["some text of some length"])
    got = columns(VALUE, value=column).value
    assert got.buffers()[2].address == column.buffers()[2].address


# ---- topic ---------------------------------------------------------------------------------


def test_the_option_beats_the_topic_column():
    plan = ColumnPlan(topic="option", value_column=0, topic_column=1)
    got = columns(plan, value=["v"], topic=pa.nulls(1, pa.string()))
    assert got.topic == "option"
    assert got.topics() == ["option"]


@pytest.mark.parametrize("kind", [*STRINGS, pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_a_topic_column_becomes_a_dictionary_made_once(kind):
    plan = ColumnPlan(value_column=0, topic_column=1)
    topic = pa.array(["a", "b", "a"], pa.string()).cast(kind)
    got = columns(plan, value=["1", "2", "3"], topic=topic)
    assert got.topic.to_pylist() == ["a", "b", "a"]
    assert got.topics() == ["a", "b"]
    assert got.slice(1, 1).topics() == ["b"]


def test_one_topic_in_the_whole_column_is_a_name():
    plan = ColumnPlan(value_column=0, topic_column=1)
    assert columns(plan, value=["1", "2"], topic=["a", "a"]).topic == "a"


def test_a_null_topic_is_sparks_error_with_the_row():
    plan = ColumnPlan(value_column=0, topic_column=1)
    with pytest.raises(DataError) as caught:
        columns(plan, value=["1", "2"], topic=["a", None])
    assert caught.value.message == (
        "row 1 of the Arrow batch: The Kafka message data sent to the producer contains a null"
        " topic. Use the `topic` option for setting a default topic."
    )


@pytest.mark.parametrize("kind", [pa.string(), pa.null()], ids=str)
def test_a_topic_column_of_nulls_alone_is_an_error_too(kind):
    with pytest.raises(DataError, match="row 0"):
        columns(ColumnPlan(value_column=0, topic_column=1), value=["1"], topic=pa.nulls(1, kind))


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "..", "x" * 250, "__consumer_offsets"])
def test_an_illegal_topic_name_is_found_with_its_row(name):
    plan = ColumnPlan(value_column=0, topic_column=1)
    with pytest.raises(DataError, match="Topic name is invalid") as caught:
        columns(plan, value=["1", "2", "3"], topic=["a", "a", name])
    assert caught.value.message.startswith("column 'topic', row 2 of the Arrow batch")
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 250


def test_a_row_to_the_commit_log_is_refused_with_its_row():
    plan = ColumnPlan(value_column=0, topic_column=1, log_topics=("log", "__kprod_commits"))
    for log in plan.log_topics:
        with pytest.raises(DataError, match="takes no rows") as caught:
            columns(plan, value=["1", "2"], topic=["a", log])
        assert caught.value.kind.kp_code == "KP0236"
        assert caught.value.message.startswith("column 'topic', row 1 of the Arrow batch")


def test_a_topic_that_is_not_utf8_is_an_error_with_its_row():
    bad = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    plan = ColumnPlan(value_column=0, topic_column=1)
    with pytest.raises(DataError, match=r"column 'topic', row 1 of the Arrow batch: .* not UTF-8"):
        columns(plan, value=["1", "2"], topic=bad)


# ---- partition -------------------------------------------------------------------------------

PARTITION = ColumnPlan(topic="t", value_column=0, partition_column=1)


def test_a_null_partition_is_left_to_the_partitioner():
    got = columns(PARTITION, value=["1", "2", "3"], partition=pa.array([3, None, 0], pa.int32()))
    assert got.partition.tolist() == [3, -1, 0]
    assert got.partition.dtype == np.int32


def test_a_negative_partition_names_row_and_topic():
    with pytest.raises(DataError, match=r"column 'partition', row 2 .*topic t.*-1"):
        columns(PARTITION, value=["1"] * 3, partition=pa.array([0, None, -1], pa.int32()))


# ---- timestamp -------------------------------------------------------------------------------

YEAR_1980 = 315_532_800_000
TIMESTAMP = ColumnPlan(topic="t", value_column=0, timestamp_column=1)


@pytest.mark.parametrize(
    ("unit", "ticks", "millis"),
    [("s", 3, 3000), ("ms", 1999, 1999), ("us", 1_999_999, 1999), ("ns", 1_999_999_999, 1999)],
)
@pytest.mark.parametrize("tz", [None, "UTC", "Europe/Berlin"])
def test_a_timestamp_is_its_whole_milliseconds_in_any_zone(unit, ticks, millis, tz):
    column = pa.array([0, ticks, None], pa.int64()).cast(pa.timestamp(unit, tz))
    got = columns(TIMESTAMP, value=["1"] * 3, timestamp=column)
    assert got.timestamp.tolist() == [0, millis, NOW]
    assert columns(TIMESTAMP, value=["1"] * 2, timestamp=column.slice(1)).timestamp.tolist() == [
        millis,
        NOW,
    ]


def test_a_long_is_milliseconds():
    got = columns(TIMESTAMP, value=["1"] * 2, timestamp=pa.array([YEAR_1980, None], pa.int64()))
    assert got.timestamp.tolist() == [YEAR_1980, NOW]


@pytest.mark.parametrize("given", [0, 1_764_340_000, YEAR_1980 - 1])
def test_a_long_in_seconds_names_the_row_and_how_to_write_it(given):
    long = pa.array([YEAR_1980, None, given], pa.int64())
    with pytest.raises(DataError, match=r"row 2 .*before 1980. Is it in seconds\?") as raised:
        columns(TIMESTAMP, value=["1"] * 3, timestamp=long)
    for way in ("timestamp_seconds", "timestamp_millis", "timestampColumn=ignore"):
        assert way in raised.value.hint
    early = pa.array([given], pa.int64()).cast(pa.timestamp("ms"))
    assert columns(TIMESTAMP, value=["1"], timestamp=early).timestamp.tolist() == [given]


def test_longs_in_seconds_may_become_dead_letters():
    bad, long = BadRows(3), pa.array([YEAR_1980, None, 5], pa.int64())
    batch = pa.RecordBatch.from_pydict({"value": ["1"] * 3, "timestamp": long})
    got = from_record_batch(batch, TIMESTAMP, NOW, bad)
    assert [one.reason for one in bad.found] == [Reason.TIMESTAMP]
    assert bad.which.tolist() == [0, 0, 1]
    assert got.timestamp.tolist() == [YEAR_1980, NOW, -1]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_time_before_1970_names_the_row(unit):
    """MemoryRecordsBuilderTest#buildUsingCreateTime."""
    column = pa.array([0, -1], pa.int64()).cast(pa.timestamp(unit))
    with pytest.raises(DataError, match=r"column 'timestamp', row 1 .*topic t"):
        columns(TIMESTAMP, value=["1"] * 2, timestamp=column)


def test_seconds_that_overflow_milliseconds_are_refused():
    column = pa.array([2**62], pa.int64()).cast(pa.timestamp("s"))
    with pytest.raises(DataError, match="64 bits"):
        columns(TIMESTAMP, value=["1"], timestamp=column)


# ---- headers ---------------------------------------------------------------------------------

HEADERS = ColumnPlan(topic="t", value_column=0, headers_column=1)
STRUCT = pa.struct([("key", pa.string()), ("value", pa.binary())])
LARGE = pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])


def section(headers):
    out = varint(len(headers or ()))
    for key, value in headers or ():
        out += varint(len(key.encode())) + key.encode()
        out += varint(-1) if value is None else varint(len(value)) + value
    return out


def as_list(rows, kind):
    made = [None if r is None else [{"key": k, "value": v} for k, v in r] for r in rows]
    return pa.array(made, kind)


HEADER_ROWS = st.lists(
    st.one_of(
        st.none(),
        st.lists(
            st.tuples(st.text(max_size=20), st.one_of(st.none(), st.binary(max_size=80))),
            max_size=5,
        ),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(HEADER_ROWS, st.integers(0, 5), st.sampled_from(["list", "large_list", "map"]))
def test_headers_of_any_layout_encode_as_one_by_one(rows, skipped, layout):
    if layout == "map":
        column = pa.array(rows, pa.map_(pa.string(), pa.binary()))
    else:
        kind = pa.list_(STRUCT) if layout == "list" else pa.large_list(LARGE)
        column = as_list(rows, kind)
    skipped = min(skipped, len(rows) - 1)
    got = columns(HEADERS, value=["v"] * (len(rows) - skipped), headers=column.slice(skipped))
    if all(r is None for r in rows[skipped:]):
        assert got.headers is None
    else:
        assert got.headers.to_pylist() == [section(r) for r in rows[skipped:]]


def test_many_headers_and_long_values_keep_order_and_duplicates():
    rows = [[("k", b"1"), ("k", b"2"), ("a", b"x" * 70_000)], None, [("z", None)] * 200, []]
    got = columns(HEADERS, value=["v"] * 4, headers=as_list(rows, pa.list_(STRUCT)))
    assert got.headers.to_pylist() == [section(r) for r in rows]


def test_a_map_of_strings_is_headers_too():
    column = pa.array([[("a", "1")], [("b", None)]], pa.map_(pa.string(), pa.string()))
    got = columns(HEADERS, value=["v"] * 2, headers=column)
    assert got.headers.to_pylist() == [section([("a", b"1")]), section([("b", None)])]


def test_a_null_header_names_the_row():
    column = pa.array([[{"key": "a", "value": b""}], [None]], pa.list_(STRUCT))
    with pytest.raises(DataError, match=r"column 'headers', row 1 .*topic t.*null header"):
        columns(HEADERS, value=["v"] * 2, headers=column)


def test_a_null_header_key_names_the_row():
    """DefaultRecordTest#testNullHeaderKey."""
    column = as_list([[], [("a", b"")], [("a", b""), (None, b"")]], pa.list_(STRUCT))
    with pytest.raises(DataError, match=r"row 2 .*null key"):
        columns(HEADERS, value=["v"] * 3, headers=column)
    assert columns(HEADERS, value=["v"] * 2, headers=column.slice(0, 2)).headers is not None


def test_what_lies_under_a_null_list_is_neither_sent_nor_checked():
    values = as_list([[("a", b"1"), (None, b"2")]], pa.list_(STRUCT)).values
    column = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), values, mask=pa.array([False, True])
    )
    got = columns(HEADERS, value=["v"] * 2, headers=column)
    assert got.headers.to_pylist() == [section([("a", b"1")]), section([])]


# ---- chunks ----------------------------------------------------------------------------------


def test_no_rows_give_no_chunks():
    empty = columns(VALUE, value=pa.array([], pa.string()))
    assert empty.rows == 0
    assert list(empty.chunks(ChunkSize())) == []


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=60),
    st.integers(1, 100),
)
def test_chunks_hold_all_rows_in_order_within_the_limit(lengths, limit):
    values = [bytes([i]) * n for i, n in enumerate(lengths)]
    whole = RecordColumns(len(values), "t", value=pa.array(values, pa.binary()))
    chunks = list(whole.chunks(ChunkSize(max_bytes=limit)))
    assert [v for c in chunks for v in c.value.to_pylist()] == values
    assert [c.first_row for c in chunks] == np.cumsum([0] + [c.rows for c in chunks])[:-1].tolist()
    for chunk in chunks:
        assert chunk.rows == 1 or chunk.input_bytes().sum() <= limit
    for one, other in itertools.pairwise(chunks):
        assert one.input_bytes().sum() + other.input_bytes()[0] > limit


def test_rows_without_bytes_are_bounded_by_their_number():
    chunks = list(RecordColumns(CHUNK_ROWS * 2 + 1, "t").chunks(ChunkSize()))
    assert [c.rows for c in chunks] == [CHUNK_ROWS, CHUNK_ROWS, 1]


def test_a_row_of_many_columns_costs_only_those_that_are_used():
    batch = pa.RecordBatch.from_pydict({f"c{i}": [i] for i in range(2000)} | {"value": ["v"]})
    got = from_record_batch(batch, ColumnPlan(topic="t", value_column=2000), NOW)
    assert got.value.to_pylist() == [b"v"]


def bytes_of(rows, order):
    pieces = RowPieces(rows.rows)
    for column in (rows.key, rows.value, rows.headers):
        pieces.add_column(column, order)
    return [one.to_pylist() if isinstance(one, pa.Array) else bytes(one) for one in pieces.joined()]


@given(st.lists(st.tuples(st.none() | st.binary(max_size=30), st.booleans()), min_size=1))
@settings(max_examples=200, deadline=None)
def test_rows_that_are_filtered_are_those_that_are_taken(rows):
    """A filter copies no values: they are views then, inline up to 12 bytes."""
    values = pa.array([b"x" * 20, *(value for value, _ in rows)], pa.binary())[1:]
    kept = np.array([keep for _, keep in rows])
    times = np.arange(len(kept))
    some = RecordColumns(
        len(kept), "t", None, values, values, values.cast(pa.large_binary()), times
    )
    filtered, taken = some.filter(kept), some.take(kept.nonzero()[0])
    assert (filtered.rows, filtered.timestamp.tolist()) == (taken.rows, taken.timestamp.tolist())
    assert lengths_of(filtered.value).tolist() == lengths_of(taken.value).tolist()
    assert span_of(filtered.value) >= int(lengths_of(taken.value).sum())
    order = np.arange(filtered.rows)[::-1]
    for wanted in (None, order):
        assert bytes_of(filtered, wanted) == bytes_of(taken, wanted)
    again = np.arange(filtered.rows) % 2 == 0
    assert bytes_of(filtered.filter(again), None) == bytes_of(taken.filter(again), None)
    assert bytes_of(filtered.take(order), None) == bytes_of(taken.take(order), None)
