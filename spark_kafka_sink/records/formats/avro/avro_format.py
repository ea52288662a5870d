"""Avro behind the seam of formats.

Owns: :class:`AvroFormat`: which column is which field, how its values are written, and the errors
that planning can find. Never: Arrow, a value of a row: what only values show is left to the encoder
(numbers that are too large, a null where a value is required); a registry.

A field is found by its name, then by its aliases. One that no column is for takes its default.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from spark_kafka_sink.base.errors import SchemaError, safe_text
from spark_kafka_sink.records.formats.avro.avro_schema import (
    LOGICAL,
    NO_DEFAULT,
    AvroField,
    AvroType,
    derived_schema,
    parse_schema,
)
from spark_kafka_sink.records.formats.binary import nodes
from spark_kafka_sink.records.formats.binary.matching import (
    below,
    check_map_key,
    columns_of,
    misfit,
    missing,
    unfit,
)
from spark_kafka_sink.records.formats.binary.nodes import Coding, Value
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.schema_format import PayloadPlan, SchemaFormat
from spark_kafka_sink.records.varint import sized, varint

_K = ColumnKind
_LONG: Final = nodes.Number()
_INT: Final = nodes.Number(least=-(1 << 31), most=(1 << 31) - 1)
_MILLIS: Final = nodes.Number(divisor=1000)
_FLOAT: Final = nodes.Number(Coding.FIXED32)
_DOUBLE: Final = nodes.Number(Coding.FIXED64)
_TEXT: Final = nodes.Bytes(Coding.ZIGZAG, is_text=True)
#: Most digits of a decimal of Spark and of Arrow.
_DIGITS: Final = 38
#: Bytes of a fixed that decimals are written to; each row has so many.
_LONGEST_DECIMAL: Final = 256
#: Of defaults: formats of struct, encodings, and errors.
_NUMBERS: Final = {"int": "<i", "long": "<q", "float": "<f", "double": "<d"}
_TEXTS: Final = {"string": "utf-8", "bytes": "latin-1"}
_NOT_OF_TYPE: Final = (ValueError, OverflowError, struct.error)
#: Values in a default: types that hold each other could double them at each level.
_MOST_VALUES: Final = 10_000
#: Integers are also written as logical types of numbers, as what they are.
_WHOLE: Final = {
    (kind, logical): node
    for kind, node in (("int", _INT), ("long", _LONG))
    for logical in ("", *LOGICAL["int"], *LOGICAL["long"])
}
#: What a column of a kind may be written as: the Avro type and its logical type ("": none).
_NODES: Final[Mapping[ColumnKind, Mapping[tuple[str, str], nodes.Node]]] = {
    _K.BOOLEAN: {("boolean", ""): nodes.Boolean()},
    _K.INT: _WHOLE,
    _K.LONG: _WHOLE,
    _K.FLOAT: {("float", ""): _FLOAT, ("double", ""): _DOUBLE},
    _K.DOUBLE: {("double", ""): _DOUBLE},
    _K.STRING: {("string", ""): _TEXT, ("string", "uuid"): _TEXT},
    _K.BINARY: {("bytes", ""): nodes.Bytes(Coding.ZIGZAG)},
    _K.DATE: {("int", "date"): _LONG},
    _K.TIMESTAMP: {("long", "timestamp-micros"): _LONG, ("long", "timestamp-millis"): _MILLIS},
    _K.TIMESTAMP_NTZ: {
        ("long", "local-timestamp-micros"): _LONG,
        ("long", "local-timestamp-millis"): _MILLIS,
    },
}


class AvroFormat(SchemaFormat):
    """``SchemaFormat`` of Avro."""

    schema_type = "AVRO"

    def derive(self, column: ColumnType, name: str) -> str:
        return derived_schema(column, name)

    def name_of(self, schema: str) -> str:
        kind = parse_schema(schema)
        return next((one.name for one in _branches(kind) if one.kind == "record"), "")

    def plan(self, schema: str, prefix: bytes, column: ColumnType) -> PayloadPlan:
        return PayloadPlan(prefix, _match(parse_schema(schema), column, ""))


def _branches(kind: AvroType) -> Sequence[AvroType]:
    return kind.inner if kind.kind == "union" else (kind,)


def _match(kind: AvroType, column: ColumnType, path: str) -> Value:
    """How ``column`` is written as ``kind``. Raises SchemaError, which names ``path``."""
    prefixes = [varint(i) if kind.kind == "union" else b"" for i in range(len(_branches(kind)))]
    branches = list(zip(prefixes, _branches(kind), strict=True))
    null = next((prefix for prefix, one in branches if one.kind == "null"), None)
    if column.kind is _K.NULL and null is not None:
        return Value(nodes.Record(()), null=null)
    found: Value | None = None
    problems: list[SchemaError] = []
    for prefix, branch in branches:
        try:
            if id(column) in branch.problems:  # else branches within each other were endless
                raise branch.problems[id(column)]
            value = Value(_node(branch, column, path), prefix, null)
        except SchemaError as error:
            branch.problems[id(column)] = error
            problems += [error] if branch.kind != "null" else []
            continue
        if column.kind not in _NODES or column.kind.avro == (branch.kind, branch.logical):
            return value
        found = found or value
    if found is None:
        raise problems[0] if len(problems) == 1 else _unfit(kind, column, path)
    return found


def _node(kind: AvroType, column: ColumnType, path: str) -> nodes.Node:
    match column.kind, kind.kind:
        case _K.STRUCT, "record":
            return _record(kind, column, path)
        case _K.ARRAY, "array":
            item = _match(kind.inner[0], column.children[0], f"{path}[]")
            return nodes.Items(item, nodes.Layout.BLOCK)
        case _K.MAP, "map":
            check_map_key(column, path)
            value = _match(kind.inner[0], column.children[1], f"{path}[]")
            entry = nodes.Field("key", 0, Value(_TEXT)), nodes.Field("value", 1, value)
            return nodes.Items(Value(nodes.Record(entry)), nodes.Layout.BLOCK)
        case _K.STRING, "enum":
            return nodes.Symbols(kind.symbols, tuple(range(len(kind.symbols))), Coding.ZIGZAG)
        case _K.BINARY, "fixed" if kind.logical != "decimal":
            return nodes.Bytes(kind.size)
        case _K.DECIMAL, _ if kind.logical == "decimal":
            return _decimal(kind, column, path)
    node = _NODES.get(column.kind, {}).get((kind.kind, kind.logical))
    if node is None:
        raise _unfit(kind, column, path)
    return node


def _decimal(kind: AvroType, column: ColumnType, path: str) -> nodes.Decimal:
    moved = column.scale != kind.scale
    if (moved and kind.precision > _DIGITS) or kind.size > _LONGEST_DECIMAL:
        raise _unfit(kind, column, path)
    fewer = kind.precision - kind.scale < column.precision - column.scale
    size = kind.size if kind.kind == "fixed" else None
    return nodes.Decimal(kind.precision, kind.scale, size, checked=moved or fewer)


def _record(kind: AvroType, column: ColumnType, path: str) -> nodes.Record:
    """The fields of a struct, or of columns, as those of a record."""
    names = [(field.name, *field.aliases) for field in kind.fields]
    found = columns_of(names, column, path, f"record is {kind.name}")
    fields: list[nodes.Field] = []
    for field, index in zip(kind.fields, found, strict=True):
        inside = below(path, field.name)
        if index is None:
            fields.append(nodes.Field(field.name, -1, _default(field, inside)))
        else:
            value = _match(field.type, column.children[index], inside)
            fields.append(nodes.Field(field.name, index, value))
    return nodes.Record(tuple(fields))


def _default(field: AvroField, path: str) -> bytes:
    if field.default is NO_DEFAULT:
        raise missing(path, "has no default", ", or give the field a default in the schema")
    try:
        return _encoded(field.type, field.default, iter(range(_MOST_VALUES)))
    except (*_NOT_OF_TYPE, RecursionError, StopIteration):
        raise misfit(
            f"the default of the schema's field {safe_text(path)} is not of its type, or endless",
            "add a column of that name, or correct the schema",
        ) from None


def _unfit(kind: AvroType, column: ColumnType, path: str) -> SchemaError:
    return unfit(column, path, f"and the schema has {safe_text(kind.text, 200)} there")


# -- defaults


def _encoded(kind: AvroType, value: object, more: Iterator[int]) -> bytes:
    """A default of a schema's JSON, encoded. Raises one of _NOT_OF_TYPE, and StopIteration when it
    has ``more`` values than there may be.
    """
    next(more)
    match kind.kind, value:
        case "union", _:
            return _of_union(kind.inner, value, more)
        case "null", None:
            return b""
        case "boolean", bool():
            return bytes([value])
        case ("int" | "long") as name, int() if type(value) is int:
            struct.pack(_NUMBERS[name], value)  # struct.error when it is out of bounds
            return varint(value)
        case ("float" | "double") as name, int() | float() if type(value) is not bool:
            return struct.pack(_NUMBERS[name], value)
        case ("string" | "bytes") as name, str():
            return sized(value.encode(_TEXTS[name]))
        case "enum", str():
            return varint(kind.symbols.index(value))
        case "fixed", str() if len(value) == kind.size:
            return value.encode(_TEXTS["bytes"])
        case "array", list():
            return _block([_encoded(kind.inner[0], one, more) for one in value])
        case "map", dict():
            inner = kind.inner[0]
            return _block([sized(k.encode()) + _encoded(inner, v, more) for k, v in value.items()])
        case "record", dict():
            given = [(one.type, value.get(one.name, one.default)) for one in kind.fields]
            return b"".join([_encoded(of, one, more) for of, one in given])
    raise ValueError(kind.kind)


def _of_union(branches: Sequence[AvroType], value: object, more: Iterator[int]) -> bytes:
    """As the first branch that it fits."""
    for index, branch in enumerate(branches):
        with suppress(*_NOT_OF_TYPE):
            return varint(index) + _encoded(branch, value, more)
    raise ValueError("union")


def _block(items: Sequence[bytes]) -> bytes:
    return (varint(len(items)) if items else b"") + b"".join(items) + b"\x00"
