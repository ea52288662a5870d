"""Columns that are named for value, key and headers, on their way to RecordColumns."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from spark_kafka_sink.config.named_columns import ColumnFormat
from spark_kafka_sink.records.column_plan import ColumnPlan, ComposedColumns, NamedColumn
from spark_kafka_sink.records.composed_columns import parts_of
from spark_kafka_sink.records.record_columns import from_record_batch

BATCH = pa.RecordBatch.from_pydict(
    {
        "id": pa.array([1, 2, None], pa.int64()),
        "name": pa.array(["a", None, "c"]),
        "trace": pa.array([b"t1", b"", None], pa.binary()),
    }
)
ID, NAME, TRACE = (NamedColumn(name, index) for index, name in enumerate(("id", "name", "trace")))


def columns(batch=BATCH, **plan):
    return from_record_batch(batch, ColumnPlan(topic="t", **plan), 0)


def test_value_and_key_of_several_columns_are_json():
    made = columns(value=ComposedColumns((NAME, ID)), key=ComposedColumns((NamedColumn("Id", 0),)))
    assert made.value.to_pylist() == [b'{"name":"a","id":1}', b'{"id":2}', b'{"name":"c"}']
    assert made.key.to_pylist() == [b'{"Id":1}', b'{"Id":2}', b"{}"]
    assert made.headers is None


def test_value_and_key_of_one_column_may_be_its_text():
    string = ColumnFormat.STRING
    made = columns(value=ComposedColumns((TRACE,), string), key=ComposedColumns((ID,), string))
    assert made.value.to_pylist() == [b"t1", b"", None]
    assert made.key.to_pylist() == [b"1", b"2", None]


def header(key, value):
    return bytes([len(key) * 2]) + key + bytes([len(value) * 2]) + value


def test_headers_have_the_names_of_their_columns_and_a_null_is_none():
    made = columns(value_column=1, headers=(TRACE, NamedColumn("Name", 1)))
    trace, name = header(b"trace", b"t1"), header(b"Name", b"a")
    assert made.headers.to_pylist() == [
        b"\x04" + trace + name,
        b"\x02" + header(b"trace", b""),
        b"\x02" + header(b"Name", b"c"),
    ]


@pytest.mark.parametrize("rows", [0, 3])
def test_headers_of_nothing_but_nulls_are_none(rows):
    batch = pa.RecordBatch.from_pydict({"a": pa.nulls(rows), "b": pa.nulls(rows, pa.string())})
    made = columns(batch, value_column=0, headers=(NamedColumn("a", 0), NamedColumn("b", 1)))
    assert made.rows == rows
    assert made.headers is None or made.headers.to_pylist() == [b"\x00"] * rows


def test_a_batch_without_rows_is_composed():
    made = columns(BATCH.slice(0, 0), value=ComposedColumns((ID, NAME)), headers=(NAME,))
    assert made.rows == 0


def test_a_large_batch_is_composed_in_parts_and_a_huge_row_alone():
    texts = [letter * 5_000_000 for letter in "xyz"]
    batch = pa.RecordBatch.from_pydict({"a": texts})
    parts = list(parts_of(batch))
    assert [part.num_rows for part in parts] == [1, 1, 1]
    plan = ColumnPlan(topic="t", value=ComposedColumns((NamedColumn("a", 0),)))
    told = [json.loads(from_record_batch(part, plan, 0).value[0].as_py())["a"] for part in parts]
    assert told == texts
    assert [part.num_rows for part in parts_of(BATCH)] == [3]
    assert list(parts_of(BATCH.slice(0, 0))) == []
