"""Schemas as registries hold them: with references, imports that need none, logical types that are
none, and nulls that only values show.
"""

from __future__ import annotations

import decimal
import io
import json
import uuid

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.confluent import meta_pb2
from google.protobuf import message_factory
from jsonschema.validators import validator_for

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.records.formats.avro_format import AvroFormat
from spark_kafka_sink.records.formats.binary.encoder import payloads_of
from spark_kafka_sink.records.formats.binary.matching import WITH_REFERENCES
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.json_schema import JsonSchemaFormat
from spark_kafka_sink.records.formats.protobuf_format import (
    ProtobufFormat,
    file_descriptor,
    message_of,
)

K = ColumnKind
AVRO, JSON, PROTOBUF = AvroFormat(), JsonSchemaFormat(), ProtobufFormat(None)


def of(kind, *children, names=(), **more):
    return ColumnType(kind, kind.name, True, children, names, **more)


def struct(**fields):
    return of(K.STRUCT, *fields.values(), names=tuple(fields))


def written(format_, schema, column, rows, references=()):
    """The payloads, None for refused rows, and the reasons by path."""
    made = payloads_of(format_.plan(schema, b"", column, references), rows, "")
    refused = [any(flags) for flags in zip(*(one.rows for one in made.refusals), strict=True)]
    texts = made.array.to_pylist()
    kept = [
        None if no else one for no, one in zip(refused or [False] * len(texts), texts, strict=True)
    ]
    return kept, {one.column: one.reason for one in made.refusals}


# -- references

PART = json.dumps({"type": "record", "name": "shop.Part", "fields": [{"name": "n", "type": "int"}]})
LINE = json.dumps({
    "type": "record", "name": "shop.Line", "fields": [{"name": "part", "type": "shop.Part"}],
})  # fmt: skip
ORDER = json.dumps({
    "type": "record", "name": "shop.Order",
    "fields": [{"name": "line", "type": "Line"}, {"name": "part", "type": "Part"}],
})  # fmt: skip
NESTED = struct(line=struct(part=struct(n=of(K.INT))), part=struct(n=of(K.INT)))
ROW = {"line": {"part": {"n": 1}}, "part": {"n": 2}}


def test_avro_is_written_with_the_types_of_its_references():
    references = (("shop.Part", PART), ("shop.Line", LINE))
    payloads, _ = written(AVRO, ORDER, NESTED, pa.array([ROW]), references)
    named: dict[str, object] = {}
    for text in (PART, LINE):
        fastavro.parse_schema(json.loads(text), named)
    schema = fastavro.parse_schema(json.loads(ORDER), named)
    assert fastavro.schemaless_reader(io.BytesIO(payloads[0]), schema, None) == ROW
    assert AVRO.name_of(ORDER, references) == "shop.Order"
    with pytest.raises(SchemaError, match="type Part is not declared"):
        AVRO.plan(ORDER, b"", NESTED, (("shop.Line", LINE.replace("shop.Part", "int")),))


def test_a_text_alone_that_refers_to_others_leads_to_the_registry():
    """As confluent-kafka has it: references are given beside a text, and no option has them."""
    price = json.dumps({"type": "object", "properties": {"price": {"$ref": "money.json"}}})
    for format_, text in ((AVRO, ORDER), (PROTOBUF, ORDER_PROTO), (JSON, price)):
        with pytest.raises(SchemaError) as raised:
            format_.plan(text, b"", struct(price=struct(n=of(K.INT))), ())
        assert raised.value.kind.kp_code == "KP0223"
        assert WITH_REFERENCES in str(raised.value.hint)


PROTO = 'syntax = "proto3"; package shop; '
FILES = (
    ("shop/part.proto", f"{PROTO} message Part {{ optional int32 n = 1; }}"),
    ("line.proto", f'{PROTO} import "shop/part.proto"; message Line {{ Part part = 1; }}'),
)
ORDER_PROTO = (
    f'{PROTO} import "line.proto"; import "shop/part.proto";'
    " message Order { Line line = 1; Part part = 2; }"
)


def test_protobuf_is_written_with_the_files_of_its_references():
    payloads, _ = written(PROTOBUF, ORDER_PROTO, NESTED, pa.array([ROW]), FILES)
    assert payloads == [bytes([0x0A, 4, 0x0A, 2, 0x08, 1, 0x12, 2, 0x08, 2])]
    assert PROTOBUF.name_of(ORDER_PROTO, FILES) == "shop.Order"
    assert PROTOBUF.indexes(ORDER_PROTO, FILES) == b"\0"


@pytest.mark.parametrize("name", ["../a.proto", "/tmp/a.proto", "a/../../b", "", "a\\b", "a\0"])
def test_a_reference_leads_out_of_no_directory(name):
    with pytest.raises(SchemaError, match="which is no path"):
        file_descriptor(f"{PROTO} message M {{}}", ((name, PROTO),))


SHOP = "https://shop.example/"
OTHERS = (
    ("money.json", json.dumps({
        "$id": f"{SHOP}money.json",
        "definitions": {"cents": {"type": "integer"}}, "type": "object", "required": ["amount"],
        "properties": {"amount": {"$ref": "#/definitions/cents"}},
    })),
)  # fmt: skip


@pytest.mark.parametrize(
    "address", ["money.json", "https://shop.example/money.json", "./money.json#"]
)
def test_json_schema_follows_references_to_other_documents(address):
    schema = json.dumps({
        "$id": f"{SHOP}order.json", "definitions": {"cents": {"type": "string"}},
        "type": "object", "properties": {"price": {"$ref": address}},
    })  # fmt: skip
    rows = pa.array([{"price": {"amount": 5}}, {"price": {"amount": None}}, {"price": None}])
    column = struct(price=struct(amount=of(K.LONG)))
    payloads, why = written(JSON, schema, column, rows, OTHERS)
    assert payloads == [b'{"price":{"amount":5}}', None, b"{}"]
    assert list(why) == ["price.amount"]
    with pytest.raises(SchemaError, match=r"price\.amount is of type STRING, and .* integer"):
        JSON.plan(schema, b"", struct(price=struct(amount=of(K.STRING))), OTHERS)


def test_a_branch_is_resolved_in_its_own_document():
    schema = json.dumps({
        "$id": f"{SHOP}order.json", "definitions": {"free": {"type": "string"}},
        "type": "object",
        "properties": {
            "price": {"oneOf": [{"$ref": "money.json"}, {"$ref": "#/definitions/free"}]},
        },
    })  # fmt: skip
    rows = pa.array([{"price": "free"}])
    payloads, _ = written(JSON, schema, struct(price=of(K.STRING)), rows, OTHERS)
    assert payloads == [b'{"price":"free"}']


# -- imports that registries know

KNOWN = [
    *("confluent/meta.proto", "confluent/type/decimal.proto", "google/protobuf/any.proto"),
    *("google/type/money.proto", "google/type/date.proto", "google/api/annotations.proto"),
]


def test_imports_that_registries_know_need_no_reference_used_or_not():
    imports = "".join(f'import "{one}"; ' for one in KNOWN)
    text = (
        f"{PROTO}{imports} message Sale {{ google.type.Money price = 1;"
        ' string id = 2 [(confluent.field_meta) = { doc: "of the till", tags: "PII" }];'
        " confluent.type.Decimal tax = 3; }"
    )
    columns = struct(
        price=struct(units=of(K.LONG)), id=of(K.STRING),
        tax=struct(value=of(K.BINARY), precision=of(K.INT), scale=of(K.INT)),
    )  # fmt: skip
    row = {"price": {"units": 7}, "id": "a", "tax": {"value": b"\1", "precision": 4, "scale": 2}}
    payloads, _ = written(PROTOBUF, text, columns, pa.array([row]))
    assert payloads == [b"\n\2\x10\7\x12\1a\x1a\7\n\1\1\x10\4\x18\2"]
    meta = next(one for one in file_descriptor(text).dependencies if one.name == KNOWN[0])
    theirs = meta_pb2.DESCRIPTOR
    for name in theirs.message_types_by_name:
        ours = meta.message_types_by_name[name].fields
        fields = theirs.message_types_by_name[name].fields
        assert [(f.name, f.number, f.type) for f in ours] == [
            (f.name, f.number, f.type) for f in fields
        ]
    assert {n: e.number for n, e in meta.extensions_by_name.items()} == {
        n: e.number for n, e in theirs.extensions_by_name.items()
    }


WRAPPED = {
    "Double": (K.DOUBLE, [1.5, 0.0, None]), "Float": (K.FLOAT, [0.5, -0.0, None]),
    "Int64": (K.LONG, [-(2**63), 0, None]), "UInt64": (K.LONG, [2**63 - 1, 0, None, -1]),
    "Int32": (K.INT, [-1, 0, None]), "UInt32": (K.LONG, [2**32 - 1, 0, None, 2**32]),
    "Bool": (K.BOOLEAN, [True, False, None]), "String": (K.STRING, ["a" * 300, "", None]),
    "Bytes": (K.BINARY, [b"\xff", b"", None]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapper_of_protobuf_takes_a_plain_column(name):
    """As Spark's to_protobuf: a null is no message, zero is an empty one."""
    kind, values = WRAPPED[name]
    of_wrapper = f"google.protobuf.{name}Value"
    text = (
        f'syntax = "proto3"; import "google/protobuf/wrappers.proto"; message M {{ {of_wrapper} a'
        f" = 1; repeated {of_wrapper} r = 2; map<string, {of_wrapper}> m = 3; }}"
    )
    arrow = {K.FLOAT: pa.float32(), K.INT: pa.int32()}.get(kind, pa.array(values).type)
    column = struct(a=of(kind), r=of(K.ARRAY, of(kind)), m=of(K.MAP, of(K.STRING), of(kind)))
    of_rows = pa.struct([("a", arrow), ("r", pa.list_(arrow)), ("m", pa.map_(pa.string(), arrow))])
    plain = [one for one in values[:2] if one is not None]
    rows = pa.array([{"a": None}] + [{"a": a, "r": plain, "m": [("k", a)] if a is not None else []}
                     for a in values], of_rows).slice(1)  # fmt: skip
    payloads, why = written(PROTOBUF, text, column, rows)
    message = message_factory.GetMessageClass(message_of(text, None)[0])
    for value, payload in zip(values[:3], payloads[:3], strict=True):
        read = message.FromString(payload)
        assert (read.a.value if read.HasField("a") else None) == value
        assert [one.value for one in read.r] == plain
        assert {k: one.value for k, one in read.m.items()} == (
            {} if value is None else {"k": value}
        )
    assert payloads[3:] == [None] * len(values[3:])
    assert bool(why) is (len(values) > 3)
    # A struct with the field, as before.
    same = struct(a=struct(value=of(kind)))
    of_same = pa.struct([("a", pa.struct([("value", arrow)]))])
    wrapped = pa.array([{"a": {"value": values[0]}}], of_same)
    alone = pa.array([{"a": values[0]}], pa.struct([("a", arrow)]))
    only = struct(a=of(kind))
    assert written(PROTOBUF, text, same, wrapped) == written(PROTOBUF, text, only, alone)


def test_a_wrapper_of_another_type_is_refused():
    text = 'syntax = "proto3"; import "google/protobuf/wrappers.proto";'
    text += " message M { google.protobuf.StringValue a = 1; }"
    for kind in (of(K.INT), of(K.ARRAY, of(K.STRING))):
        with pytest.raises(SchemaError, match=r"field google\.protobuf\.StringValue\.value can't"):
            PROTOBUF.plan(text, b"", struct(a=kind))


def test_protocs_reason_is_in_the_error_and_nowhere_else(capfd):
    with pytest.raises(SchemaError, match=r'schema\.proto:1:\d+: "Nothing" is not defined'):
        file_descriptor(f"{PROTO} message M {{ Nothing a = 1; }}")
    assert capfd.readouterr() == ("", "")


def test_messages_of_columns_never_clash_with_fields():
    inner = struct(Type1=of(K.INT), Type2=struct(n=of(K.INT)))
    columns = struct(
        Type2=of(K.STRING), s=inner, Type5=of(K.LONG), google=of(K.TIMESTAMP),
        l=of(K.ARRAY, inner), at=of(K.MAP, of(K.STRING), of(K.TIMESTAMP)),
    )  # fmt: skip
    schema = PROTOBUF.derive(columns, "google.shop.Order")
    message, _ = message_of(schema, None)
    assert [field.name for field in message.fields] == list(columns.names)
    row = {"s": {"Type1": 1, "Type2": {"n": 2}}}
    names = {"s": pa.struct([("Type1", pa.int32()), ("Type2", pa.struct([("n", pa.int32())]))])}
    of_one = struct(s=inner)
    payloads, _ = written(
        PROTOBUF, PROTOBUF.derive(of_one, "M"), of_one, pa.array([row], pa.struct(names.items()))
    )
    assert payloads == [bytes([0x0A, 6, 0x08, 1, 0x12, 2, 0x08, 2])]


# -- Avro's logical types and unions

FIXED = {"type": "fixed", "name": "f", "size": 2}


@pytest.mark.parametrize(
    "given",
    [
        {"precision": 4, "scale": 9}, {}, {"precision": 0}, {"precision": "4"}, {"precision": 4.5},
        {"precision": 4, "scale": -1}, {"precision": True}, {"precision": 4, "scale": None},
    ],
)  # fmt: skip
def test_an_invalid_logical_type_is_ignored(given):
    field = {"name": "b", "type": {"type": "bytes", "logicalType": "decimal"} | given}
    schema = json.dumps({"type": "record", "name": "r", "fields": [field]})
    payloads, _ = written(AVRO, schema, struct(b=of(K.BINARY)), pa.array([{"b": b"xy"}]))
    assert payloads == [b"\4xy"]
    with pytest.raises(SchemaError, match="column b is of type DECIMAL, and the schema has bytes"):
        AVRO.plan(schema, b"", struct(b=of(K.DECIMAL, precision=4, scale=2)))


def test_a_fixed_that_is_too_short_for_its_decimal_is_a_fixed():
    kind = FIXED | {"logicalType": "decimal", "precision": 9}
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "b", "type": kind}]})
    payloads, _ = written(AVRO, schema, struct(b=of(K.BINARY)), pa.array([{"b": b"xy"}]))
    assert payloads == [b"xy"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
@pytest.mark.parametrize("size", [16, 17])
def test_a_uuid_is_written_as_the_bytes_of_a_fixed(kind, size):
    """Avro 1.12. Of another size the logical type is none, and the fixed takes bytes only."""
    declared = FIXED | {"size": size, "logicalType": "uuid"}
    schema = json.dumps({
        "type": "record", "name": "r", "fields": [{"name": "u", "type": ["null", declared]}],
    })  # fmt: skip
    values = [uuid.UUID(int=0), None, uuid.UUID(int=2**128 - 1), uuid.uuid4()]
    texts = pa.array(["before", *(one and str(one) for one in values)]).cast(kind)
    rows = pa.StructArray.from_arrays([texts], ["u"]).slice(1)
    if size != 16:
        with pytest.raises(SchemaError, match=r"column u is of type STRING, and .* fixed f"):
            AVRO.plan(schema, b"", struct(u=of(K.STRING)))
        return
    payloads, why = written(AVRO, schema, struct(u=of(K.STRING)), rows)
    assert payloads == [b"\0" if one is None else b"\2" + one.bytes for one in values]
    assert not why


NUMBERS = ["1.25", "-99.99", "123456.5", "-0.001", "0", None, "99999999", "0.0001"]


@pytest.mark.parametrize("null", [[], ["null"]])
def test_a_union_of_decimals_takes_the_one_that_holds_the_value(null):
    decimals = [
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        FIXED | {"size": 4, "logicalType": "decimal", "precision": 7, "scale": 1},
        FIXED | {"name": "g", "size": 3, "logicalType": "decimal", "precision": 3, "scale": 3},
    ]
    field = {"name": "d", "type": [*null, *decimals]}
    schema = {"type": "record", "name": "r", "fields": [field]}
    values = [None if one is None else decimal.Decimal(one) for one in NUMBERS]
    rows = pa.StructArray.from_arrays([pa.array(values, pa.decimal128(18, 4))], ["d"])
    column = struct(d=of(K.DECIMAL, precision=18, scale=4))
    payloads, why = written(AVRO, json.dumps(schema), column, rows)
    reader = fastavro.parse_schema(schema)
    read = [
        one and fastavro.schemaless_reader(io.BytesIO(one), reader, None)["d"] for one in payloads
    ]
    wanted = [*values[:5], None, None, None]
    assert read == wanted
    branches = [None if one is None else one[0] // 2 - len(null) for one in payloads]
    assert branches[:5] == [0, 0, 1, 2, 0]
    assert (payloads[5] is None) is not bool(null)
    assert why["d"]


# -- nulls that a JSON schema judges by value

TAGS = {"type": "array", "items": {"type": "string"}}
PAIRS = {"type": "object", "additionalProperties": {"type": "integer"}}
PARTS = {
    "type": "array",
    "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}},
}
N = struct(n=of(K.LONG))
BY_VALUE = [
    (TAGS, of(K.ARRAY, of(K.STRING)), pa.list_(pa.string()),
     [["a"], ["a", None], [], None], "x[]"),
    (PAIRS, of(K.MAP, of(K.STRING), of(K.LONG)), pa.map_(pa.string(), pa.int64()),
     [[("a", 1)], [("a", 1), ("b", None)], [], None], "x[]"),
    (PARTS, of(K.ARRAY, N), pa.list_(pa.struct([("n", pa.int64())])),
     [[{"n": 1}], [{"n": 1}, {"n": None}], [], None], "x[].n"),
    ({"type": "array", "items": TAGS}, of(K.ARRAY, of(K.ARRAY, of(K.STRING))),
     pa.list_(pa.list_(pa.string())), [[["a"]], [["a"], ["b", None]], [[]], None], "x[][]"),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "column", "kind", "cells", "path"), BY_VALUE)
def test_nulls_within_a_column_are_judged_by_value(declared, column, kind, cells, path):
    schema = {"type": "object", "properties": {"x": declared}}
    rows = pa.StructArray.from_arrays([pa.array(cells, kind)], ["x"])
    payloads, why = written(JSON, json.dumps(schema), struct(x=column), rows)
    assert [one is None for one in payloads] == [False, True, False, False]
    assert path in why
    theirs = validator_for(schema)(schema)
    assert all(theirs.is_valid(json.loads(one)) for one in payloads if one is not None)
    # In a slice the rows are others.
    payloads, _ = written(JSON, json.dumps(schema), struct(x=column), rows.slice(1, 2))
    assert [one is None for one in payloads] == [True, False]


OPTIONAL = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
INNER = {"type": "object", "required": ["n"], "properties": {"n": OPTIONAL}}


def test_a_required_property_that_allows_null_gets_the_null():
    """As pydantic declares ``a: int | None``, which has no default."""
    schema = {
        "type": "object", "required": ["a", "i", "e"],
        "properties": {"a": OPTIONAL, "o": OPTIONAL, "i": INNER, "e": {},
                       "l": {"type": "array", "items": INNER},
                       "m": {"type": "object", "additionalProperties": INNER}},
    }  # fmt: skip
    n = pa.struct([("n", pa.int64())])
    kind = pa.struct([
        ("a", pa.int64()), ("o", pa.int64()), ("i", n), ("e", pa.string()), ("l", pa.list_(n)),
        ("m", pa.map_(pa.string(), n)),
    ])  # fmt: skip
    none = {"n": None}
    rows = pa.array([
        {"a": 1, "o": 2, "i": {"n": 3}, "e": "x", "l": [{"n": 4}], "m": [("k", {"n": 5})]},
        {"a": None, "o": None, "i": none, "e": None, "l": [none], "m": [("k", none)]},
        {"a": 1, "o": None, "i": None, "e": "x", "l": None, "m": None},
    ], kind)  # fmt: skip
    column = struct(
        a=of(K.LONG), o=of(K.LONG), i=N, e=of(K.STRING), l=of(K.ARRAY, N),
        m=of(K.MAP, of(K.STRING), N),
    )  # fmt: skip
    payloads, why = written(JSON, json.dumps(schema), column, rows)
    assert payloads == [
        b'{"a":1,"o":2,"i":{"n":3},"e":"x","l":[{"n":4}],"m":{"k":{"n":5}}}',
        b'{"a":null,"i":{"n":null},"e":null,"l":[{"n":null}],"m":{"k":{"n":null}}}',
        None,
    ]
    assert list(why) == ["i"]
    theirs = validator_for(schema)(schema)
    assert all(theirs.is_valid(json.loads(one)) for one in payloads if one is not None)
    sliced, _ = written(JSON, json.dumps(schema), column, rows.slice(1, 1))
    assert sliced == payloads[1:2]


@pytest.mark.parametrize("inner", [of(K.NULL), of(K.LONG), of(K.ARRAY, of(K.NULL))])
def test_nulls_are_valid_by_the_schema_that_their_columns_make(inner):
    nothing = pa.list_(pa.null()) if inner.children else pa.null()
    kind = pa.struct([("a", pa.list_(nothing)), ("m", pa.map_(pa.string(), nothing))])
    rows = pa.array([{"a": [None, None], "m": [("k", None)]}, {"a": None, "m": []}], kind)
    column = struct(a=of(K.ARRAY, inner), m=of(K.MAP, of(K.STRING), inner))
    schema = JSON.derive(column, "x")
    payloads, why = written(JSON, schema, column, rows)
    assert not why
    theirs = validator_for(json.loads(schema))(json.loads(schema))
    assert all(theirs.is_valid(json.loads(one)) for one in payloads)
