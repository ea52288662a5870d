"""Rows to Arrow, for streams on pyspark 4.0."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_kafka_sink.datasource.write.row_adapter import RowAdapter
from spark_kafka_sink.datasource.write.schema import plan_columns

HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))


def adapt(schema, rows, topic="t", **limits):
    adapter = RowAdapter(schema, plan_columns(schema, topic))
    return adapter.plan, list(adapter.batches(rows, **limits))


def column(data_type, *cells, name="value"):
    schema = StructType().add("other", "date").add(name, data_type)
    if name != "value":
        schema = schema.add("value", "string")
    plan, (batch,) = adapt(schema, [(None, cell, "v") for cell in cells])
    assert batch.num_columns == (1 if name == "value" else 2), "extra columns are left out"
    return batch.column(getattr(plan, f"{name}_column"))


def test_the_plan_fits_the_batches_and_not_the_rows():
    schema = StructType().add("extra", "date").add("value", "string").add("key", "binary")
    plan, (batch,) = adapt(schema, [(None, "v", b"k")])
    assert plan.topic == "t"
    assert batch.column(plan.value_column).to_pylist() == ["v"]
    assert batch.column(plan.key_column).to_pylist() == [b"k"]


def test_rows_are_cut_into_batches_in_order():
    schema = StructType().add("value", "string")
    _, batches = adapt(schema, (Row(value=str(n)) for n in range(7)), rows_per_batch=3)
    assert [b.num_rows for b in batches] == [3, 3, 1]
    assert pa.Table.from_batches(batches).column(0).to_pylist() == list("0123456")


def test_no_rows_make_no_batch():
    assert adapt(StructType().add("value", "string"), [])[1] == []


@pytest.mark.parametrize("data_type", [StringType(), StringType("UTF8_LCASE"), CharType(4)])
def test_strings(data_type):
    assert column(data_type, "ä", "", None).to_pylist() == ["ä", "", None]


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_binaries_as_either_of_sparks_two_python_types(kind):
    assert column(BinaryType(), kind(b"\x00\xff"), None).to_pylist() == [b"\x00\xff", None]


def test_partitions_and_milliseconds():
    partitions = column(IntegerType(), 3, None, name="partition")
    assert (partitions.type, partitions.to_pylist()) == (pa.int32(), [3, None])
    assert column(LongType(), 2**40, None, name="timestamp").to_pylist() == [2**40, None]


def test_a_timestamp_is_the_same_instant_in_any_time_zone():
    instant = dt.datetime(2026, 3, 29, 1, 30, tzinfo=dt.UTC)
    as_spark_gives_it = instant.astimezone().replace(tzinfo=None)
    (cell,) = column(TimestampType(), as_spark_gives_it, name="timestamp").cast("int64").to_pylist()
    assert cell == int(instant.timestamp()) * 1_000_000


def test_a_timestamp_without_time_zone_is_read_as_utc():
    day = dt.datetime(1970, 1, 2)  # noqa: DTZ001 - that is the point
    cells = column(TimestampNTZType(), day, name="timestamp")
    assert cells.cast("int64").to_pylist() == [86_400 * 1_000_000]


def test_headers_as_an_array_keep_order_and_doubles_and_nulls():
    cells = column(
        HEADERS,
        [Row(key="a", value=b"1"), Row(key="a", value=None)],
        None,
        [],
        [None],
        name="headers",
    )
    assert cells.to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        None,
        [],
        [None],
    ]


def test_headers_as_a_map():
    cells = column(
        MapType(StringType(), BinaryType()), {"b": b"1", "a": None}, None, name="headers"
    )
    assert cells.to_pylist() == [[("b", b"1"), ("a", None)], None]
