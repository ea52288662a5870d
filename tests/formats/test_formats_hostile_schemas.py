"""Schemas that a registry or a stranger may give: each is used, or refused in a sentence."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.records.formats.avro_format import AvroFormat
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.json_schema import JsonSchemaFormat
from spark_kafka_sink.records.formats.protobuf_format import ProtobufFormat
from tests.real_kafka import AT_ONCE_S

K = ColumnKind


def of(kind, *children, names=()):
    return ColumnType(kind, kind.name, True, children, names, precision=10, scale=2)


LONG = of(K.LONG)
COLUMNS = of(
    K.STRUCT, LONG, of(K.STRING), of(K.DECIMAL), of(K.ARRAY, of(K.STRUCT, LONG, names=("n",))),
    of(K.MAP, of(K.STRING), of(K.BINARY)), names=("id", "name", "tax", "parts", "more"),
)  # fmt: skip
FORMATS = {"avro": AvroFormat(), "json": JsonSchemaFormat(), "protobuf": ProtobufFormat(None)}


def use(format_, schema, column=COLUMNS):
    """As planning does."""
    FORMATS[format_].name_of(schema)
    FORMATS[format_].is_bare(schema)
    FORMATS[format_].indexes(schema)
    return FORMATS[format_].plan(schema, b"", column)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["record", "string", "null", "#", "#/definitions/a", "decimal", "fixed"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["type", "name", "fields", "items", "symbols", "size", "$ref", "oneOf",
                         "properties", "required", "precision", "default", "aliases"]),
        inner, max_size=4),
    max_leaves=6,
)  # fmt: skip
DERIVED = {name: json.loads(FORMATS[name].derive(COLUMNS, "r")) for name in ("avro", "json")}


def places(schema, path=()):
    yield path
    if isinstance(schema, dict | list):
        for at in schema if isinstance(schema, dict) else range(len(schema)):
            yield from places(schema[at], (*path, at))


def with_other(schema, path, other):
    if not path:
        return other
    made = dict(schema) if isinstance(schema, dict) else list(schema)
    made[path[0]] = with_other(schema[path[0]], path[1:], other)
    return made


@pytest.mark.parametrize("format_", ["avro", "json"])
@given(st.data())
def test_a_schema_of_any_json_is_used_or_refused(format_, data):
    schema = DERIVED[format_]
    path = data.draw(st.sampled_from(list(places(schema))))
    text = json.dumps(with_other(schema, path, data.draw(ANY_JSON)))
    with suppress(SchemaError):
        use(format_, text)


@pytest.mark.parametrize("format_", ["avro", "json"])
@given(st.text(max_size=20) | st.just("\ud800"))
def test_any_text_is_refused_as_a_schema(format_, text):
    with pytest.raises(SchemaError):
        use(format_, text)


def record(*fields, name="r"):
    return {"type": "record", "name": name, "fields": [*fields]}


def field(kind, name="id", **more):
    return {"name": name, "type": kind, **more}


ID = of(K.STRUCT, LONG, names=("id",))
IDS = of(K.STRUCT, of(K.ARRAY, LONG), names=("ids",))


def doubled(count):
    """A default of ``2**count`` bytes: each level has the one below twice."""
    made = record(field("int", "i", default=0), name="r0")
    for level in range(count):
        fields = field(made, "a", default={}), field(f"r{level}", "b", default={})
        made = record(*fields, name=f"r{level + 1}")
    return made


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (record(field("long"), field(doubled(40), "d", default={})), "default of .* d .*endless"),
        (record(field("long"), field("r", "self", default={})), "default of .* self"),
        (record(field("long"), field(["null", "r"], "self", default=None)), None),
        (record(field({"type": "fixed", "name": "f", "size": 2, "logicalType": "decimal",
                       "precision": 10**9})), "has fixed f there"),
        (record(field({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 9})),
         "has bytes there"),
        (record(field("long"), field({"type": "enum", "name": "e", "symbols": ["\ud800"]}, "e",
                                     default="x")), "not legal"),
        (record(field("long"), field("string", "text", default="\ud800")), "default of .* text"),
        (record(field("long"), field("double", "d", default=10**400)), "default of .* d "),
        (record(field("long"), field("int", "i", default=2**31)), "default of .* i "),
        (record(field([record(name=f"r{i}") for i in range(20_000)] + ["long"])), None),
        (record(field("long"), *(field("int", f"f{i}", default=i) for i in range(50_000))), None),
    ],
)  # fmt: skip
def test_an_avro_schema_is_used_or_refused_at_once(schema, says):
    start = time.monotonic()
    if says is None:
        assert use("avro", json.dumps(schema), ID)
    else:
        with pytest.raises(SchemaError, match=says):
            use("avro", json.dumps(schema), ID)
    assert time.monotonic() - start < AT_ONCE_S


def test_branches_that_hold_each_other_are_refused_at_once():
    """None fits, and each is tried within each: ``12**8`` ways."""
    names = [f"r{i}" for i in range(12)]
    declared = record(field([*names[:1]], "x"), field("long", "more"), name="r0")
    inner = [record(field(["null", *names[: i + 1]], "x"), field("long", "more"), name=names[i])
             for i in range(1, 12)]  # fmt: skip
    declared["fields"][0]["type"] = [names[0], *inner]
    columns = of(K.STRING)
    for _ in range(8):
        columns = of(K.STRUCT, columns, names=("x",))
    start = time.monotonic()
    with pytest.raises(SchemaError, match="column x is of type"):
        use("avro", json.dumps(declared), columns)
    assert time.monotonic() - start < AT_ONCE_S


def levels(count):
    """Each level has the next one twice, so that there are 2**count ways through them."""
    made = {f"a{i}": {"oneOf": [{"$ref": f"#/d/a{i + 1}"}] * 2} for i in range(count)}
    return {"d": made | {f"a{count}": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"properties": {"id": {"$ref": "#/properties/id"}}}, "nested too deep"),
        ({"oneOf": [{"$ref": "#"}, {"$ref": "#"}]}, "nested too deep"),
        (levels(28) | {"properties": {"id": {"$ref": "#/d/a0"}}}, "too many alternatives"),
        (levels(28) | {"properties": {"ids": {"items": {"$ref": "#/d/a0"}}}}, "too many"),
        (
            {
                "properties": {
                    "ids": {
                        "items": {
                            "oneOf": [{"type": "integer"}, {"$ref": "#/properties/ids/items"}]
                        }
                    }
                }
            },
            "nested too deep",
        ),
        ({"properties": {"id": {"anyOf": [{"type": "string"}] * 50_000}}}, "and the schema has"),
        ({"properties": 5}, "another type"),
        ({"type": 5}, "another type"),
    ],
)
def test_a_json_schema_is_refused_at_once(schema, says):
    start = time.monotonic()
    with pytest.raises(SchemaError, match=says):
        use("json", json.dumps(schema), IDS if "ids" in str(schema) else ID)
    assert time.monotonic() - start < AT_ONCE_S


@pytest.mark.parametrize(
    "text",
    [
        'syntax = "proto3"; import "/etc/passwd"; message M { int64 id = 1; }',
        'syntax = "proto3"; import "../x.proto"; message M { int64 id = 1; }',
        'syntax = "proto3"; message M { int64 id = 1; int64 id = 2; }',
        'syntax = "proto3"; enum E { A = 0; }',
        'syntax = "proto3"; message M { int64 id = 536870912; }',
        "message {",
        "\0",
        "\ud800",
    ],
)
def test_a_text_that_protoc_refuses_is_an_error(text):
    with pytest.raises(SchemaError, match=r"protoc does not accept|has no message"):
        use("protobuf", text, ID)


def test_a_message_may_hold_itself():
    text = 'syntax = "proto3"; message M { int64 id = 1; M self = 2; repeated M more = 3; }'
    inner = of(K.STRUCT, LONG, names=("id",))
    assert use("protobuf", text, of(K.STRUCT, LONG, inner, names=("id", "self")))


@pytest.mark.parametrize("format_", FORMATS)
def test_names_that_differ_in_case_only_are_told_apart(format_):
    columns = of(K.STRUCT, LONG, LONG, names=("id", "ID"))
    plan = use(format_, FORMATS[format_].derive(columns, "r"), columns)
    if format_ != "json":
        assert [one.index for one in plan.node.fields] == [0, 1]


def test_records_within_others_have_names_of_their_own():
    inner = of(K.STRUCT, LONG, names=("c",))
    columns = of(K.STRUCT, of(K.STRUCT, inner, names=("b",)), inner, inner,
                 names=("a", "a_b", "a_b_"))  # fmt: skip
    assert use("avro", FORMATS["avro"].derive(columns, "r"), columns)
