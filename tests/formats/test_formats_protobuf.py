"""Columns as Protobuf, against upb, on schemas and rows that Hypothesis makes."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pyarrow as pa
import pytest
from google.protobuf import json_format, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.records.formats.binary.encoder import payloads_of
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.protobuf_format import ProtobufFormat, message_of

_K = ColumnKind
PREFIX = b"\0\0\0\0\7"
SCHEMA = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Unused { message Within { optional string a = 1; } }
enum Size { option allow_alias = true; NONE = 0; NO = 0; SMALL = 7; LARGE = -1; }
message Part { optional double d = 2; repeated string tags = 1; }
message Order {
  optional int32 i32 = 1; optional int64 i64 = 2; optional uint32 u32 = 3; optional uint64 u64 = 4;
  optional sint32 s32 = 5; optional sint64 s64 = 6; optional fixed32 f32 = 7;
  optional fixed64 f64 = 8; optional sfixed32 sf32 = 9; optional sfixed64 sf64 = 10;
  optional bool flag = 11; optional float single = 12; optional double both = 13;
  optional string text = 14; optional bytes data = 15; optional Size size = 16;
  optional google.protobuf.Timestamp at = 17; optional Part part = 18;
  repeated int64 numbers = 19; repeated sint32 unpacked = 20 [packed = false];
  repeated string words = 21; repeated Part parts = 22; map<string, Part> named = 23;
  map<int32, bool> flags = 24; oneof either { string left = 25; int64 right = 2000; }
}
"""


def plain(kind, *, nullable=True):
    return ColumnType(kind, kind.name, nullable)


def numbers(bits, *, signed=True):
    return st.integers(-(2**bits) if signed else 0, 2**bits - 1)


INT = plain(_K.INT), pa.int32()
LONG = plain(_K.LONG), pa.int64()
STRING = plain(_K.STRING), pa.string()
TEXT = st.text(max_size=9)
PART = (
    ColumnType(_K.STRUCT, "struct", True, (plain(_K.DOUBLE), ColumnType(
        _K.ARRAY, "array", True, (plain(_K.STRING),))), ("d", "tags")),
    pa.struct([("d", pa.float64()), ("tags", pa.list_(pa.string()))]),
)  # fmt: skip
PARTS = st.fixed_dictionaries(
    {"d": st.none() | st.floats(allow_nan=False), "tags": st.none() | st.lists(TEXT, max_size=3)}
)


def array(column, arrow):
    return ColumnType(_K.ARRAY, "array", True, (column,)), pa.list_(arrow)


def map_of(key, value):
    column = ColumnType(_K.MAP, "map", True, (replace(key[0], nullable=False), value[0]))
    return column, pa.map_(key[1], value[1])


FIRST, LAST = dt.datetime(1901, 1, 1), dt.datetime(2200, 1, 1)  # noqa: DTZ001 - Hypothesis wants it
INSTANTS = st.datetimes(FIRST, LAST, timezones=st.just(dt.UTC))
#: Of each field a column that it takes, and values.
FIELDS = {
    "i32": (*INT, numbers(31)),
    "i64": (*LONG, numbers(63)),
    "u32": (*LONG, numbers(32, signed=False)),
    "u64": (*LONG, numbers(63, signed=False)),
    "s32": (*LONG, numbers(31)),
    "s64": (*LONG, numbers(63)),
    "f32": (*INT, numbers(31, signed=False)),
    "f64": (*LONG, numbers(63, signed=False)),
    "sf32": (*INT, numbers(31)),
    "sf64": (*LONG, numbers(63)),
    "flag": (plain(_K.BOOLEAN), pa.bool_(), st.booleans()),
    "single": (plain(_K.FLOAT), pa.float32(), st.floats(width=32, allow_nan=False)),
    "both": (plain(_K.FLOAT), pa.float32(), st.floats(width=32, allow_nan=False)),
    "text": (*STRING, TEXT),
    "data": (plain(_K.BINARY), pa.binary(), st.binary(max_size=9)),
    "size": (*STRING, st.sampled_from(["NONE", "NO", "SMALL", "LARGE"])),
    "at": (plain(_K.TIMESTAMP), pa.timestamp("us", "UTC"), INSTANTS),
    "part": (*PART, PARTS),
    "numbers": (*array(*LONG), st.lists(numbers(63), max_size=4)),
    "unpacked": (*array(*INT), st.lists(numbers(31), max_size=4)),
    "words": (*array(*STRING), st.lists(TEXT, max_size=4)),
    "parts": (*array(*PART), st.lists(PARTS, max_size=3)),
    "named": (*map_of(STRING, PART), st.dictionaries(TEXT, PARTS, max_size=3)),
    "flags": (
        *map_of(INT, (plain(_K.BOOLEAN), pa.bool_())),
        st.dictionaries(numbers(31), st.booleans(), max_size=3),
    ),
}
#: Of one oneof.
CHOICE = {"left": STRING, "right": LONG}
#: The same fields, none of which knows whether it is set.
WITHOUT_PRESENCE = SCHEMA.replace("optional ", "")
MESSAGE, PLAIN_MESSAGE = (
    message_factory.GetMessageClass(message_of(schema, "shop.Order")[0])
    for schema in (SCHEMA, WITHOUT_PRESENCE)
)


def fill(message, row):
    """As users of upb would."""
    for name, value in row.items():
        field = message.DESCRIPTOR.fields_by_name[name]
        if value is None:
            continue
        if name == "size":
            message.size = field.enum_type.values_by_name[value].number
        elif isinstance(value, dt.datetime):
            message.at.FromDatetime(value)
        elif isinstance(value, dict) and name in ("named", "flags"):
            for key, one in value.items():
                if name == "flags":
                    message.flags[key] = one
                else:
                    fill(message.named[key], one)
                    message.named[key].SetInParent()
        elif isinstance(value, dict):
            fill(getattr(message, name), value)
            getattr(message, name).SetInParent()
        elif isinstance(value, list):
            for one in value:
                if isinstance(one, dict):
                    fill(getattr(message, name).add(), one)
                else:
                    getattr(message, name).append(one)
        else:
            setattr(message, name, value)
    return message


@st.composite
def rows(draw):
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, unique=True))
    row = st.fixed_dictionaries({name: st.none() | FIELDS[name][2] for name in names})
    table = draw(st.lists(row, min_size=1, max_size=5))
    return names, table, draw(st.integers(0, 2)), draw(st.booleans())


def struct_of(names):
    kinds = tuple((FIELDS | CHOICE)[name][0] for name in names)
    return ColumnType(_K.STRUCT, "struct", False, kinds, tuple(names))


def check(names, given_rows, slack=0, presence=True):
    schema, message = (SCHEMA, MESSAGE) if presence else (WITHOUT_PRESENCE, PLAIN_MESSAGE)
    form = ProtobufFormat("shop.Order")
    plan = form.plan(schema, PREFIX + form.indexes(schema), struct_of(names))
    around = given_rows[:1] * slack
    table = [*around, *given_rows, *around]
    columns = [
        pa.array([row[name] for row in table], FIELDS[name][1]).slice(slack, len(given_rows))
        for name in names
    ]
    payloads = payloads_of(plan, pa.StructArray.from_arrays(columns, names), "")
    assert not payloads.refusals
    for row, payload in zip(given_rows, payloads.array.to_pylist(), strict=True):
        assert payload[:7] == PREFIX + b"\x02\x04"  # one index, the third message
        oracle = fill(message(), row)
        assert message.FromString(payload[7:]) == oracle
        # The entries of a map are in the row's order.
        if all(len(row.get(name) or ()) < 2 for name in ("named", "flags")):
            assert payload[7:] == oracle.SerializeToString(deterministic=True)


@given(rows())
@settings(max_examples=100)
def test_protobuf_has_the_bytes_that_upb_writes(example):
    check(*example)


@pytest.mark.parametrize("presence", [True, False])
@pytest.mark.parametrize("zero", [0, -0.0])
def test_zeros_have_upb_s_bytes_with_and_without_presence(zero, presence):
    """Other bytes of a key are another partition. -0.0 is no zero; items and entries stay."""
    part = {"d": zero, "tags": ["", "a"]}
    row = dict.fromkeys(set(FIELDS) - {"at", "part"}, 0) | {
        "flag": False, "single": zero, "both": zero, "text": "", "data": b"", "size": "NONE",
        "at": dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "part": part, "numbers": [0, 1],
        "unpacked": [0], "words": [""], "parts": [part, {"d": None, "tags": None}],
        "named": {"": part}, "flags": {0: False},
    }  # fmt: skip
    nulls = dict.fromkeys(row)
    ones = nulls | {"i32": 1, "flag": True, "text": "a", "data": b"\0", "size": "SMALL"}
    check(sorted(row), [row, nulls, ones, row], 1, presence)
    check(sorted(row), [row], 0, presence)


@pytest.mark.long
@pytest.mark.timeout(3600)
@given(rows())
@settings(max_examples=5_000)
def test_protobuf_has_the_bytes_of_upb_in_5000_cases(example):
    check(*example)


def test_a_derived_schema_has_a_message_of_the_columns():
    column = ColumnType(
        _K.STRUCT, "struct", False,
        (plain(_K.LONG, nullable=False), PART[0], array(*PART)[0], map_of(STRING, INT)[0]),
        ("_id", "part", "parts", "counts"),
    )  # fmt: skip
    form = ProtobufFormat(None)
    schema = form.derive(column, "shop.order")
    assert form.name_of(schema) == "shop.order"
    plan = form.plan(schema, PREFIX + form.indexes(schema), column)
    part = {"d": 1.5, "tags": ["a"]}
    columns = [
        pa.array([1]), pa.array([part], PART[1]), pa.array([[part, part]], pa.list_(PART[1])),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
    ]  # fmt: skip
    payload = (
        payloads_of(plan, pa.StructArray.from_arrays(columns, column.names), "").array[0].as_py()
    )
    assert payload[:6] == PREFIX + b"\0"
    read = message_factory.GetMessageClass(message_of(schema, None)[0]).FromString(payload[6:])
    assert json_format.MessageToDict(read, preserving_proto_field_name=True) == {
        "_id": "1", "part": part, "parts": [part, part], "counts": {"a": 1},
    }  # fmt: skip


def test_a_message_within_another_has_the_indexes_on_the_way():
    column = ColumnType(_K.STRUCT, "struct", False, (plain(_K.STRING),), ("a",))
    form = ProtobufFormat("shop.Unused.Within")
    plan = form.plan(SCHEMA, PREFIX + form.indexes(SCHEMA), column)
    payload = payloads_of(plan, pa.array([{"a": "x"}]), "").array[0].as_py()
    assert payload == PREFIX + b"\x04\0\0" + b"\x0a\x01x"


def test_maps_do_not_count_among_the_messages_within_one():
    """Java's reader finds messages in the text, which has none for a map."""
    schema = "message M { map<string, bool> m = 1; message A { map<int32, int32> b = 1; } }"
    assert ProtobufFormat("M.A").indexes(f'syntax = "proto3"; {schema}') == b"\x04\0\0"


@pytest.mark.parametrize(
    ("names", "kinds", "says"),
    [
        (("nope",), (_K.STRING,), "no field for nope"),
        (("text",), (_K.LONG,), "can't hold it"),
        (("text",), (_K.DATE,), "can't hold it"),
        (("i64", "I64"), (_K.LONG, _K.LONG), "no field for I64"),
    ],
)
def test_columns_that_don_t_fit_are_an_error_at_planning(names, kinds, says):
    column = ColumnType(_K.STRUCT, "struct", False, tuple(map(plain, kinds)), names)
    with pytest.raises(SchemaError, match=says):
        ProtobufFormat("Order").plan(SCHEMA, PREFIX, column)


@pytest.mark.parametrize("order", ["message B {{ {0} }} {0}", "{0} message B {{ {0} }}"])
def test_a_full_name_of_a_message_is_not_that_of_one_within(order):
    schema = 'syntax = "proto3"; ' + order.format("message A { int64 a = 1; }")
    assert ProtobufFormat("A").name_of(schema) == "A"
    assert ProtobufFormat("B.A").name_of(schema) == "B.A"


def test_two_fields_of_a_oneof_are_refused_where_a_row_has_both():
    """The reader keeps the last one only."""
    plan = ProtobufFormat("Order").plan(SCHEMA, PREFIX, struct_of(["left", "right"]))
    columns = [pa.array(["a", None, "c", None]), pa.array([None, 2, 3, None])]
    made = payloads_of(plan, pa.StructArray.from_arrays(columns, ["left", "right"]), "")
    (refusal,) = made.refusals
    assert refusal.rows.tolist() == [False, False, True, False]
    read = [MESSAGE.FromString(one[5:]) for one in made.array.to_pylist()]
    assert [one.WhichOneof("either") for one in read] == ["left", "right", "right", None]


def test_two_fields_of_a_oneof_are_refused_within_lists():
    schema = """syntax = "proto3"; message M { repeated P parts = 1; }
        message P { oneof o { int64 a = 1; int64 b = 2; } }"""
    kind = ColumnType(_K.STRUCT, "struct", True, (LONG[0], LONG[0]), ("a", "b"))
    column = ColumnType(
        _K.STRUCT, "struct", False, (ColumnType(_K.ARRAY, "array", True, (kind,)),), ("parts",)
    )
    plan = ProtobufFormat(None).plan(schema, PREFIX, column)
    arrow = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.int64())]))
    values = pa.array([[{"a": 1, "b": None}], None, [{"b": 1, "a": None}, {"a": 2, "b": 2}]], arrow)
    (refusal,) = payloads_of(plan, pa.StructArray.from_arrays([values], ["parts"]), "").refusals
    assert (refusal.rows.tolist(), refusal.column) == ([False, False, True], "parts[]")
