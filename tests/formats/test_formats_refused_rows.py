"""Rows that a schema refuses: what a batch says of them, and the bytes of the others."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import DataError
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows, Reason
from spark_kafka_sink.records.column_plan import ColumnPlan, ComposedColumns, NamedColumn
from spark_kafka_sink.records.formats.avro_format import AvroFormat
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.composed_columns import with_composed
from spark_kafka_sink.records.formats.json_schema import JsonSchemaFormat
from spark_kafka_sink.records.formats.protobuf_format import ProtobufFormat

K = ColumnKind
PREFIX = b"\0\0\0\0\7"
MONEY = pa.decimal128(10, 2)
FEW = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}
UUID = "04a8a52b-6149-4831-b75f-b9a451e2d3fa"
FIXED_UUID = {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}
ENUM = {"type": "enum", "name": "e", "symbols": ["x", "y"]}


def of(kind, *children, names=()):
    return ColumnType(kind, kind.name, True, children, names, precision=10, scale=2)


def avro(schema):
    return AvroFormat(), json.dumps({"type": "record", "name": "r", "fields": [
        {"name": "id", "type": "long"}, {"name": "a", "type": schema}]})  # fmt: skip


def protobuf(field):
    used = 'import "google/protobuf/timestamp.proto";' if "." in field else ""
    fields = f"int64 id = 1; {field} = 2; enum E {{ X = 0; Y = 1; }}"
    return ProtobufFormat(None), f'syntax = "proto3"; {used} message M {{ {fields} }}'


REQUIRED = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
N = of(K.STRUCT, of(K.LONG), names=("n",))
STRUCT = pa.struct([("n", pa.int64())])
#: Format and schema, the type of the column a, and its values: every second one is refused.
CASES = {
    "a null": (avro("string"), of(K.STRING), pa.array(["a", None, "b", None])),
    "32 bits": (avro(["null", "int"]), of(K.LONG), pa.array([1, 2**31, None, -(2**31) - 1, 300])),
    "a symbol": (avro(["null", ENUM]), of(K.STRING), pa.array(["y", "z", None, "", "x"])),
    "a fixed": (avro({"type": "fixed", "name": "f", "size": 2}), of(K.BINARY),
                pa.array([b"ab", b"abc", b"cd", b"", b"ef", None])),
    "a UUID": (avro(["null", {"type": "string", "logicalType": "uuid"}]), of(K.STRING), pa.array(
        [UUID, UUID[:-1] + "g", None, UUID.replace("-", ""), UUID.upper(), f"{{{UUID}}}"])),
    "a UUID of 16 bytes": (avro(FIXED_UUID), of(K.STRING), pa.array(
        [UUID, UUID.replace("-", "_"), UUID.upper(), None, UUID])),
    "a time in milliseconds": (avro({"type": "int", "logicalType": "time-millis"}), of(K.LONG),
                               pa.array([0, -1, 86_399_999, 86_400_000, 1])),
    "a time in microseconds": (avro(["null", {"type": "long", "logicalType": "time-micros"}]),
                               of(K.LONG), pa.array([0, 86_400_000_000, None, -1, 86_399_999_999])),
    "a decimal": (avro(["null", FEW]), of(K.DECIMAL), pa.array(
        [*map(Decimal, ("1.50", "1.55")), None, *map(Decimal, ("99999999.99", "-999.9"))], MONEY)),
    "text": (avro("string"), of(K.STRING), pa.array([b"a", b"\xff", b"\xc3\xa4", b"\xc3"])),
    "items": (avro({"type": "array", "items": "int"}), of(K.ARRAY, of(K.LONG)),
              pa.array([[1, 2], [1, 2**40], [], [None], [3]])),
    "a map's values": (avro({"type": "map", "values": ENUM}), of(K.MAP, of(K.STRING), of(K.STRING)),
                       pa.array([[("a", "x")], [("b", "q"), ("c", "y")], []],
                                pa.map_(pa.string(), pa.string()))),
    "a field": (avro(["null", {"type": "record", "name": "i", "fields": [
        {"name": "n", "type": "int"}]}]), N,
        pa.array([{"n": 1}, {"n": None}, None, {"n": 2**40}, {"n": 2}], STRUCT)),
    "a number of Protobuf": (protobuf("optional uint32 a"), of(K.LONG),
                             pa.array([1, -1, None, 2**32, 7])),
    "a symbol of Protobuf": (protobuf("optional E a"), of(K.STRING),
                             pa.array(["Y", "z", None, ""])),
    "a number without presence": (protobuf("uint32 a"), of(K.LONG),
                                  pa.array([0, -1, None, 2**32, 7])),
    "a symbol without presence": (protobuf("E a"), of(K.STRING), pa.array(["X", "", None, "x"])),
    "items of Protobuf": (protobuf("repeated int64 a"), of(K.ARRAY, of(K.LONG)),
                          pa.array([[1, 2], [None], None, [3, None, 4], []])),
    "texts of Protobuf": (protobuf("repeated string a"), of(K.ARRAY, of(K.STRING)),
                          pa.array([[b"a"], [b"b", b"\xff"], [], [None], [b"c"]])),
    "a year of Protobuf": (protobuf("google.protobuf.Timestamp a"), of(K.TIMESTAMP),
                           pa.array([0, 253402300800000000, None, -62135596800000001],
                                    pa.timestamp("us", "UTC"))),
    "a property": ((JsonSchemaFormat(), json.dumps({"properties": {"a": REQUIRED}})), N,
                   pa.array([{"n": 1}, {"n": None}, None, {"n": None}, {"n": 2}], STRUCT)),
}  # fmt: skip


#: What is said of the rows of a case.
SAYS = {
    "a null": ["it is null"],
    "32 bits": ["can't hold"],
    "a symbol": ["enum's symbols"],
    "a fixed": ["is not 2 bytes long"],
    "a UUID": ["is not a UUID"],
    "a time in milliseconds": ["can't hold"],
    "a decimal": ["has more digits", "decimal places"],
    "text": ["is not UTF-8"],
    "a number of Protobuf": ["can't hold"],
    "a symbol of Protobuf": ["is not one of"],
    "items of Protobuf": ["is null"],
    "texts of Protobuf": ["is null", "is not UTF-8"],
}


def encoded(name, rows):
    (format_, schema), kind, values = CASES[name]
    column = ColumnType(K.STRUCT, "struct", False, (of(K.LONG), kind), ("id", "a"))
    encoding = format_.plan(schema, PREFIX, column)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(np.arange(len(values)), pa.int64()), values], ["id", "a"]
    ).take(pa.array(rows, pa.int64()))
    part = ComposedColumns((NamedColumn("id", 0), NamedColumn("a", 1)), encoding=encoding)
    bad = BadRows(len(batch))
    made, plan = with_composed(batch, ColumnPlan(topic="t", value=part), bad)
    return made.column(plan.value_column).to_pylist(), bad


@pytest.mark.parametrize("name", CASES)
def test_refused_rows_change_no_byte_of_the_others(name):
    rows = np.arange(len(CASES[name][2]))
    payloads, bad = encoded(name, rows)
    refused = bad.which > 0
    assert refused.tolist() == [bool(row % 2) for row in rows]
    assert {one.reason for one in bad.found} == {Reason.VALUE_REFUSED}
    assert all(one.text.startswith(("column a:", "column a.", "column a[")) for one in bad.found)
    told = "\n".join(one.text for one in bad.found)
    assert [says for says in SAYS.get(name, ()) if says not in told] == []
    assert [json.loads(payloads[row])["id"] for row in rows[refused]] == rows[refused].tolist()
    alone, none = encoded(name, rows[~refused])
    assert not none.found
    assert [payloads[row] for row in rows[~refused]] == alone


@pytest.mark.parametrize("name", CASES)
def test_a_batch_of_refused_rows_only_has_a_reason_for_each(name):
    rows = np.arange(len(CASES[name][2]))[1::2]
    _, bad = encoded(name, rows)
    assert (bad.which > 0).all()


def test_a_refused_value_has_no_header_of_a_schema():
    """Its letter's value is JSON: a reader must not look for the schema of its bytes."""
    (format_, schema), kind, values = CASES["a null"]
    column = ColumnType(K.STRUCT, "struct", False, (of(K.LONG), kind), ("id", "a"))
    encoding = format_.plan(schema, b"", column)
    batch = pa.RecordBatch.from_arrays([pa.array(range(4), pa.int64()), values], ["id", "a"])
    columns = (NamedColumn("id", 0), NamedColumn("a", 1))
    value = ComposedColumns(columns, encoding=encoding, header=("__value_schema_id", b"7"))
    key = ComposedColumns(columns[:1], header=("__key_schema_id", b"8"))
    plan = ColumnPlan(topic="t", value=value, key=key)
    bad = BadRows(4)
    made, made_plan = with_composed(batch, plan, bad)
    assert [int(one) for one in bad.which] == [0, 1, 0, 1]
    headers = made.column(made_plan.headers_column).to_pylist()
    named = [[header["key"] for header in row] for row in headers]
    both = ["__value_schema_id", "__key_schema_id"]
    assert named == [both, ["__key_schema_id"], both, ["__key_schema_id"]]


def test_a_refusal_says_whether_the_key_or_the_value_is_missing():
    (format_, schema), kind, values = CASES["a null"]
    column = ColumnType(K.STRUCT, "struct", False, (of(K.LONG), kind), ("id", "a"))
    encoding = format_.plan(schema, PREFIX, column)
    batch = pa.RecordBatch.from_arrays([pa.array(range(4), pa.int64()), values], ["id", "a"])
    part = ComposedColumns((NamedColumn("id", 0), NamedColumn("a", 1)), encoding=encoding)
    for plan, lacks in ((ColumnPlan(value=part), "value"), (ColumnPlan(key=part), "key")):
        with pytest.raises(
            DataError, match="row 1 of the Arrow batch: column a: it is null"
        ) as one:
            with_composed(batch, plan)
        assert one.value.message.endswith(f"so the row has no {lacks}")
        assert one.value.kind is Kind.REFUSED_BY_SCHEMA
