"""JSON of all types beside the texts of Spark's to_json.

Each line of ``json_of_types.jsonl`` is an expression, its type, the Arrow batch of its one row
(base64 of a stream), as Spark 4.2 passes it to Python, and ``to_json`` of it, in America/New_York.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType

from spark_kafka_sink.base.errors import DataError, SchemaError
from spark_kafka_sink.config.named_columns import ColumnFormat, NamedColumns
from spark_kafka_sink.datasource.schemas.column_types import column_type
from spark_kafka_sink.datasource.write.schema import plan_columns
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows
from spark_kafka_sink.records.column_plan import (
    ColumnPlan,
    ComposedColumns,
    JsonOptions,
    NamedColumn,
)
from spark_kafka_sink.records.formats.composed_columns import with_composed
from spark_kafka_sink.records.json.json_text import json_value
from spark_kafka_sink.records.json.variant_text import variant_column

ZONE = "America/New_York"
LINES = Path(__file__).with_name("json_of_types.jsonl").read_text(encoding="utf-8").splitlines()
CASES = [json.loads(line) for line in LINES]
#: Where to_json writes a number that differs in each run.
OURS_ONLY = {"map(cast('ab' as binary), 1)"}


def batch_of(case):
    return pa.ipc.open_stream(base64.b64decode(case["arrow"])).read_next_batch()


def plan_of(case):
    # Types of Spark 4.1 and later are unknown to older versions.
    field = {"name": "x", "type": case["schema"], "nullable": True, "metadata": {}}
    try:
        kind = StructType.fromJson({"type": "struct", "fields": [field]})
    except Exception as error:
        pytest.skip(f"this Spark has no such type: {error}")
    plan = plan_columns(kind, "t", NamedColumns(value=("x",)))
    return replace(plan, value=replace(plan.value, json=JsonOptions(time_zone=ZONE)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["sql"][:60])
def test_a_type_has_the_text_of_to_json(case):
    batch = batch_of(case)
    made, plan = with_composed(batch, plan_of(case))
    assert made.column(plan.value_column).to_pylist() == [case["text"].encode()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["sql"][:60])
def test_nulls_and_slices_of_a_type(case):
    batch = batch_of(case)
    nothing = pa.RecordBatch.from_arrays([pa.nulls(2, batch.schema.field(0).type)], names=["x"])
    column = pa.concat_arrays([nothing.column(0), batch.column(0), nothing.column(0)])
    rows = pa.RecordBatch.from_arrays([column.slice(1, 3)], names=["x"])
    made, plan = with_composed(rows, plan_of(case))
    assert made.column(plan.value_column).to_pylist() == [b"{}", case["text"].encode(), b"{}"]


@pytest.mark.spark
@pytest.mark.long
def test_the_texts_of_types_are_those_of_this_spark(spark):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    try:
        frame = spark.sql("SELECT 1").selectExpr(
            *(f"to_json(struct({one['sql']} AS x)) AS c{n}" for n, one in enumerate(CASES))
        )
        (row,) = frame.collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    for case, text in zip(CASES, row, strict=True):
        assert text == case["text"] or case["sql"] in OURS_ONLY, case["sql"]


VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]
)


@pytest.mark.parametrize("day", ["2026-06-16", "2102-06-16", "2102-12-16", "9999-06-16"])
def test_a_timestamp_in_a_variant_has_the_offset_of_a_column(day):
    """From 2101 on, and in summer and winter."""
    micros = np.datetime64(day, "us").astype(np.int64)
    cell = {"value": b"\x30" + micros.tobytes(), "metadata": b"\x01\x00\x00"}
    for zone in (ZONE, "Australia/Lord_Howe", "Europe/Dublin"):
        (found,) = variant_column(pa.array([cell], VARIANT), zone).to_pylist()
        column = pa.array([micros]).view(pa.timestamp("us", zone))
        (wanted,) = json_value(column).to_pylist()
        assert found == wanted.replace(b"T", b" ").replace(b".000", b"").replace(b"Z", b"+00:00")


@pytest.mark.parametrize(
    "value",
    [
        b"", b"\x02", b"\x02\x01\x00", b"\x02\x01\x07\x00\x01\x00", b"\x10\x01", b"\xfc",
        b"\x1c\x00", b"\x03\x01\x00", b"\x03\x02\x00\x00\x00", b"\x50\x00",
    ],
)  # fmt: skip
def test_bytes_that_are_no_variant_are_an_error(value):
    column = pa.array([{"value": value, "metadata": b"\x01\x01\x00\x01a"}], VARIANT)
    with pytest.raises(DataError, match="no variant") as raised:
        variant_column(column, "UTC")
    assert "errors.tolerance=all with a topic for dead letters" in str(raised.value.hint)


@pytest.mark.parametrize("kept", [0, 1])
def test_bytes_that_are_no_variant_are_an_error_of_their_row(kept):
    """And with errors.tolerance=all, as the hint has it, a dead letter; other rows are written."""
    metadata = b"\x01\x00\x00"
    cells = [b"\x0c\x01", b"\xfc", b"\x0c\x02", None, b"\x02", b"\x0c\x03"]
    column = pa.array([one and {"value": one, "metadata": metadata} for one in cells], VARIANT)
    rows = pa.record_batch({"x": column, "n": pa.array(range(len(cells)))}).slice(kept)
    columns = (NamedColumn("x", 0), NamedColumn("n", 1))
    plan = ColumnPlan(topic="t", value=ComposedColumns(columns))
    with pytest.raises(DataError, match=rf"row {1 - kept}\b.*column x.*no variant"):
        with_composed(rows, plan)
    bad = BadRows(len(rows))
    made, done = with_composed(rows, plan, bad)
    texts = made.column(done.value_column).to_pylist()
    good = [0, 2, 3, 5][kept:]
    wanted = {0: b'{"x":1,"n":0}', 2: b'{"x":2,"n":2}', 3: b'{"n":3}', 5: b'{"x":3,"n":5}'}
    assert [texts[number - kept] for number in good] == [wanted[number] for number in good]


def test_values_within_each_other_end():
    """Each of 100 levels has the next one twice."""
    level = b"\x00"
    for _ in range(100):
        level = b"\x0f\x02" + bytes(8) + len(level).to_bytes(4, "little") + level
    column = pa.array([{"value": level, "metadata": b"\x01\x00\x00"}], VARIANT)
    with pytest.raises(DataError, match="no variant") as raised:
        variant_column(column, "UTC")
    assert "errors.tolerance=all with a topic for dead letters" in str(raised.value.hint)


def plan_type(data_type, format_):
    """What planning does with a column x of this type."""
    if format_ not in (ColumnFormat.JSON, ColumnFormat.STRING):
        column_type(data_type, "x")
        return
    columns = StructType([StructField("x", data_type)])
    plan_columns(columns, "t", NamedColumns(value=("x",), value_format=format_))


def type_of(expression, spark):
    return spark.sql(f"SELECT {expression} AS x").schema[0].dataType


POINT = "X'0101000000000000000000F03F0000000000000040'"
REFUSED = {
    "interval '1-2' year to month": list(ColumnFormat),
    "array(interval '1-2' year to month)": list(ColumnFormat),
    "map(interval '1' month, 1)": list(ColumnFormat),
    f"st_geomfromwkb({POINT})": list(ColumnFormat),
    f"st_geogfromwkb({POINT})": list(ColumnFormat),
    "parse_json('1')": [ColumnFormat.STRING, ColumnFormat.AVRO, ColumnFormat.PROTOBUF],
    "time'12:30:00'": [ColumnFormat.STRING, ColumnFormat.AVRO, ColumnFormat.JSON_SCHEMA],
    "interval '1' day": [ColumnFormat.STRING, ColumnFormat.AVRO, ColumnFormat.JSON_SCHEMA],
}


@pytest.mark.spark
@pytest.mark.parametrize("expression", REFUSED)
def test_the_hint_of_a_refused_type_works(spark, expression):
    """The expression of the hint is run, and what it gives is written."""
    try:
        data_type = type_of(expression, spark)
    except Exception as error:
        pytest.skip(f"this Spark has no such type: {error}")
    for format_ in REFUSED[expression]:
        with pytest.raises(SchemaError, match="column x") as raised:
            plan_type(data_type, format_)
        hinted = raised.value.hint.removeprefix("select ").partition(" in its place")[0]
        frame = spark.sql(f"SELECT {expression} AS x").selectExpr(
            f"{hinted.replace('column', 'x')} AS x"
        )
        assert frame.collect()[0].x
        plan_type(frame.schema[0].dataType, format_)
