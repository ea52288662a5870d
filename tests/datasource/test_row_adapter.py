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
    DataType,
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


MAP = MapType(StringType(), BinaryType())
DOUBLED = [Row(key="a", value=b"1"), Row(key="a", value=None)]
IN_ORDER = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]


@pytest.mark.parametrize(
    ("name", "data_type", "cells", "expected"),
    [
        *(
            ("value", text, ["ä", "", None], ["ä", "", None])
            for text in (StringType(), StringType("UTF8_LCASE"), CharType(4))
        ),
        # Either of Spark's two Python types.
        ("value", BinaryType(), [b"\x00\xff", None], [b"\x00\xff", None]),
        ("value", BinaryType(), [bytearray(b"\x00\xff")], [b"\x00\xff"]),
        ("partition", IntegerType(), [3, None], [3, None]),
        ("timestamp", LongType(), [2**40, None], [2**40, None]),
        ("headers", HEADERS, [DOUBLED, None, [], [None]], [IN_ORDER, None, [], [None]]),
        ("headers", MAP, [{"b": b"1", "a": None}, None], [[("b", b"1"), ("a", None)], None]),
    ],
    ids=lambda given: given.simpleString() if isinstance(given, DataType) else "",
)
def test_a_column_is_what_rows_had(name, data_type, cells, expected):
    assert column(data_type, *cells, name=name).to_pylist() == expected


def test_a_timestamp_is_the_same_instant_in_any_time_zone():
    instant = dt.datetime(2026, 3, 29, 1, 30, tzinfo=dt.UTC)
    as_spark_gives_it = instant.astimezone().replace(tzinfo=None)
    (cell,) = column(TimestampType(), as_spark_gives_it, name="timestamp").cast("int64").to_pylist()
    assert cell == int(instant.timestamp()) * 1_000_000


def test_a_timestamp_without_time_zone_is_read_as_utc():
    day = dt.datetime(1970, 1, 2)  # noqa: DTZ001 - that is the point
    cells = column(TimestampNTZType(), day, name="timestamp")
    assert cells.cast("int64").to_pylist() == [86_400 * 1_000_000]
