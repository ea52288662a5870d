"""Columns and values that don't fit a schema of Avro or JSON Schema. (Refused rows of every format:
``test_formats_refused_rows.py``.)
"""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from jsonschema.validators import validator_for

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.records.formats.avro_format import AvroFormat
from spark_kafka_sink.records.formats.binary.encoder import payloads_of
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.json_schema import JsonSchemaFormat

K = ColumnKind
PREFIX = b"\0\0\0\0\7"


def struct(*, nullable=True, **kinds):
    children = tuple(ColumnType(kind, kind.name, nullable, precision=10, scale=2)
                     for kind in kinds.values())  # fmt: skip
    return ColumnType(K.STRUCT, "struct", False, children, tuple(kinds))


def together(**columns):
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def avro(kind, column_kind):
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    return AvroFormat().plan(json.dumps(schema), PREFIX, struct(a=column_kind))


MONEY = pa.decimal128(10, 2)


def decimal(precision, scale):
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def test_a_decimal_takes_the_scale_of_the_schema():
    column = together(a=pa.array([Decimal("1.50")], MONEY))
    payloads = payloads_of(avro(decimal(12, 4), K.DECIMAL), column, "")
    assert payloads.array[0].as_py() == PREFIX + b"\x04" + (15000).to_bytes(2, "big")


@pytest.mark.parametrize(
    ("kind", "column_kind"),
    [("string", K.LONG), ("float", K.DOUBLE), ("double", K.LONG), ("bytes", K.STRING),
     ("long", K.TIMESTAMP), ("int", K.DATE), ({"type": "array", "items": "int"}, K.INT)],
)  # fmt: skip
def test_a_type_that_avro_can_t_promote_is_an_error_at_planning(kind, column_kind):
    with pytest.raises(SchemaError, match="column a is of type"):
        avro(kind, column_kind)


@pytest.mark.parametrize(
    "schema",
    ["{", "[]", '["int", "int"]', '["int", ["null"]]', '"nothing"', '{"type": "record"}',
     '{"type": "enum", "name": "e", "symbols": ["a", "a"]}', '{"type": "fixed", "name": "f"}',
     '{"type": "fixed", "name": "f", "size": 0}',
     '{"type": "fixed", "name": "f", "size": 1%s, "logicalType": "decimal", "precision": 3}'
     % ("0" * 400),
     '{"type":"array","items":' * 100_000 + '"int"' + "}" * 100_000],
)  # fmt: skip
def test_an_avro_schema_that_no_reader_accepts_is_an_error(schema):
    with pytest.raises(SchemaError, match="can't be used"):
        AvroFormat().name_of(schema)


@pytest.mark.parametrize("space", ["", "my-company.shop"])
def test_an_avro_schema_may_have_any_namespace(space):
    """As Java's Avro: a hyphen, or none within one."""
    inner = {"type": "record", "name": "r", "namespace": space, "fields": []}
    fields = [{"name": "a", "type": {"type": inner}}]
    schema = {"type": "record", "name": "shop.r", "fields": fields}
    assert AvroFormat().name_of(json.dumps(schema)) == "shop.r"


JSON = JsonSchemaFormat()


def test_json_has_the_prefix_and_the_schema_of_its_columns():
    column = struct(a=K.LONG, b=K.STRING)
    plan = JSON.plan(JSON.derive(column, "order"), PREFIX, column)
    payloads = payloads_of(plan, together(a=pa.array([1, None]), b=pa.array([None, "x"])), "")
    assert payloads.array.to_pylist() == [PREFIX + b'{"a":1}', PREFIX + b'{"b":"x"}']


def test_json_refuses_rows_without_a_property_that_is_required():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    plan = JSON.plan(json.dumps(schema), PREFIX, struct(a=K.LONG))
    (refusal,) = payloads_of(plan, together(a=pa.array([1, None])), "").refusals
    assert (refusal.column, refusal.rows.tolist()) == ("a", [False, True])


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}}}, "and the schema has string"),
        ({"type": "object", "additionalProperties": False}, "no such property"),
        ({"type": "object", "required": ["b"]}, "field b is required"),
        ({"$ref": "https://elsewhere"}, "elsewhere is no path in it, and none of its references"),
        ({"properties": {"a": {"$ref": "#name"}}}, "#name is no path in it, and none of its"),
        ({"$ref": "#"}, "nested too deep"),
        ({"type": "string"}, "has string"),
    ],
)
def test_columns_that_a_json_schema_excludes_are_errors(schema, says):
    with pytest.raises(SchemaError, match=says):
        JSON.plan(json.dumps(schema), PREFIX, struct(a=K.LONG))


@pytest.mark.parametrize("name", ["n", "a/b ~"])
def test_a_json_schema_may_have_references_and_alternatives(name):
    schema = {
        "definitions": {name: {"oneOf": [{"type": "null"}, {"type": "number"}]}},
        "properties": {"a": {"$ref": f"#/definitions/{'n' if name == 'n' else 'a~1b ~0'}"}},
    }
    assert JSON.plan(json.dumps(schema), PREFIX, struct(a=K.LONG))


@pytest.mark.parametrize(
    ("dialect", "refused"),
    [
        ("http://json-schema.org/draft-07/schema#", [False, False, True]),
        ("https://json-schema.org/draft/2019-09/schema", [False, True, True]),
        ("https://json-schema.org/draft/2020-12/schema", [False, True, True]),
    ],
)
def test_what_is_beside_a_reference_counts_since_2019(dialect, refused):
    schema = {
        "$schema": dialect,
        "$defs": {"base": {"required": ["a"], "properties": {"a": {"type": "integer"}}}},
        "$ref": "#/$defs/base",
        "required": ["b"],
        "properties": {"b": {"type": "integer"}},
    }
    plan = JSON.plan(json.dumps(schema), PREFIX, struct(a=K.LONG, b=K.LONG))
    columns = together(a=pa.array([1, 1, None]), b=pa.array([1, None, 1]))
    found = payloads_of(plan, columns, "").refusals
    assert [any(rows) for rows in zip(*(one.rows for one in found), strict=True)] == refused
    theirs = validator_for(schema)(schema)
    values = [{"a": 1, "b": 1}, {"a": 1}, {"b": 1}]
    assert [not theirs.is_valid(value) for value in values] == refused


def test_what_is_beside_alternatives_of_a_json_schema_counts():
    schema = {
        "properties": {"id": {"type": "integer"}, "a": {"type": "integer"}, "b": {}},
        "required": ["id"],
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    with pytest.raises(SchemaError, match="column a is of type STRING, and the schema has integer"):
        JSON.plan(json.dumps(schema), PREFIX, struct(id=K.LONG, a=K.STRING, b=K.STRING))
    plan = JSON.plan(json.dumps(schema), PREFIX, struct(id=K.LONG, a=K.LONG, b=K.STRING))
    columns = together(id=pa.array([1, None]), a=pa.array([None, 1]), b=pa.array(["x", None]))
    # Which alternative a row is of is not checked.
    (refusal,) = payloads_of(plan, columns, "").refusals
    assert (refusal.column, refusal.rows.tolist()) == ("id", [False, True])


@pytest.mark.parametrize("kind", [K.MAP, K.STRUCT])
def test_a_json_schema_may_have_patterns_of_names(kind):
    schema = {"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}
    column = struct(a=K.LONG)
    if kind is K.MAP:
        children = (ColumnType(K.STRING, "string"), ColumnType(K.LONG, "bigint"))
        column = ColumnType(kind, "map", False, children)
    assert JSON.plan(json.dumps(schema), PREFIX, column)


def test_items_by_position_are_an_error_that_says_so():
    schema = {"properties": {"a": {"type": "array", "items": [{"type": "integer"}]}}}
    kind = ColumnType(K.ARRAY, "array", True, struct(i=K.LONG).children)
    column = ColumnType(K.STRUCT, "struct", False, (kind,), ("a",))
    with pytest.raises(SchemaError, match="items of a is a list, a schema for each position"):
        JSON.plan(json.dumps(schema), PREFIX, column)


@pytest.mark.parametrize(
    ("items", "allowed"),
    [
        ({"type": "integer"}, False),
        ({"$ref": "#/d/int"}, False),
        ({"$ref": "#/d/any"}, True),
        ({"oneOf": [{"$ref": "#/d/int"}, {"type": "null"}]}, True),
        ({}, True),
        (True, True),
    ],
)
def test_a_null_in_an_array_must_be_allowed_by_a_json_schema(items, allowed):
    schema = {
        "properties": {"a": {"type": "array", "items": items}},
        "d": {"int": {"type": "integer"}, "any": {"type": ["integer", "null"]}},
    }
    item = ColumnType(K.LONG, "bigint", True)
    column = ColumnType(
        K.STRUCT, "struct", False, (ColumnType(K.ARRAY, "array", True, (item,)),), ("a",)
    )
    plan = JSON.plan(json.dumps(schema), PREFIX, column)
    refusals = payloads_of(plan, together(a=pa.array([[1], [1, None]])), "").refusals
    assert [one.rows.tolist() for one in refusals] == ([] if allowed else [[False, True]])
