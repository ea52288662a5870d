"""Columns against an Avro schema: which column is which field, and how its values are written.

Owns: :func:`match`, whose result the encoder follows, and the errors that planning can find. Never:
Arrow, a value of a row: what only values show is left to the encoder (numbers that are too large, a
null where a value is required).

A field is found by its name, then by its aliases. One that no column is for takes its default.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.base.documentation import page_address
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import SchemaError, named, safe_text
from spark_kafka_sink.records.formats.avro.avro_nodes import (
    Array,
    Constant,
    Decimal,
    Field,
    Fixed,
    Map,
    Node,
    Number,
    Record,
    Scalar,
    Symbols,
    Value,
)
from spark_kafka_sink.records.formats.avro.avro_schema import NO_DEFAULT, AvroField, AvroType
from spark_kafka_sink.records.formats.avro.derived_schema import check_map_key
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType, find_name
from spark_kafka_sink.records.varint import varint

_K = ColumnKind
#: What a column of a kind may be written as: the Avro type and its logical type ("": none), the
#: first is exact. Integers are also written as logical types of numbers, as what they are.
_TIMES: Final = (
    *("date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros"),
    *("timestamp-nanos", "local-timestamp-millis", "local-timestamp-micros"),
    "local-timestamp-nanos",
)
_MICROS: Final = Number()
_MILLIS: Final = Number(divisor=1000)
_NODES: Final[Mapping[ColumnKind, Mapping[tuple[str, str], Node]]] = {
    _K.BOOLEAN: {("boolean", ""): Scalar.BOOLEAN},
    _K.INT: {(kind, logical): Number() for logical in ("", *_TIMES) for kind in ("int", "long")},
    _K.LONG: {
        (kind, logical): Number(is_int=kind == "int")
        for logical in ("", *_TIMES)
        for kind in ("long", "int")
    },
    _K.FLOAT: {("float", ""): Scalar.FLOAT, ("double", ""): Scalar.DOUBLE},
    _K.DOUBLE: {("double", ""): Scalar.DOUBLE},
    _K.STRING: {("string", ""): Scalar.STRING, ("string", "uuid"): Scalar.STRING},
    _K.BINARY: {("bytes", ""): Scalar.BYTES},
    _K.DATE: {("int", "date"): Number()},
    _K.TIMESTAMP: {("long", "timestamp-micros"): _MICROS, ("long", "timestamp-millis"): _MILLIS},
    _K.TIMESTAMP_NTZ: {
        ("long", "local-timestamp-micros"): _MICROS,
        ("long", "local-timestamp-millis"): _MILLIS,
    },
}


def match(kind: AvroType, column: ColumnType, path: str) -> Value:
    """How ``column`` is written as ``kind``. Raises SchemaError, which names ``path``."""
    if kind.kind != "union":
        if column.kind is _K.NULL and kind.kind == "null":
            return Value(Scalar.NULL, null=b"")
        return Value(_node(kind, column, path))
    null = next((varint(i) for i, one in enumerate(kind.inner) if one.kind == "null"), None)
    if column.kind is _K.NULL and null is not None:
        return Value(Scalar.NULL, null=null)
    found: tuple[int, Node] | None = None
    problem: SchemaError | None = None
    for index, branch in enumerate(kind.inner):
        try:
            node = _node(branch, column, path)
        except SchemaError as error:
            if branch.kind != "null":
                problem = problem or error
            continue
        if found is None or _is_exact(branch, column):
            found = index, node
        if _is_exact(branch, column):
            break
    if found is None:
        single = len(kind.inner) - (null is not None) == 1
        raise problem if single and problem is not None else _unfit(kind, column, path)
    return Value(found[1], varint(found[0]), null)


def _is_exact(branch: AvroType, column: ColumnType) -> bool:
    first = next(iter(_NODES.get(column.kind, {})), None)
    return first is None or first == (branch.kind, branch.logical)


def _node(kind: AvroType, column: ColumnType, path: str) -> Node:
    if column.kind is _K.STRUCT and kind.kind == "record":
        return match_record(kind, column, path)
    if column.kind is _K.ARRAY and kind.kind == "array":
        return Array(match(kind.inner[0], column.children[0], f"{path}[]"))
    if column.kind is _K.MAP and kind.kind == "map":
        check_map_key(column, path)
        return Map(match(kind.inner[0], column.children[1], f"{path}[]"))
    if column.kind is _K.DECIMAL and kind.logical == "decimal":
        checked = (
            column.scale != kind.scale
            or column.precision - column.scale > kind.precision - kind.scale
        )
        size = kind.size if kind.kind == "fixed" else None
        return Decimal(kind.precision, kind.scale, size, checked)
    if column.kind is _K.STRING and kind.kind == "enum":
        return Symbols(kind.symbols)
    if column.kind is _K.BINARY and kind.kind == "fixed" and kind.logical != "decimal":
        return Fixed(kind.size)
    node = _NODES.get(column.kind, {}).get((kind.kind, kind.logical))
    if node is None:
        raise _unfit(kind, column, path)
    return node


def match_record(kind: AvroType, column: ColumnType, path: str) -> Record:
    """The fields of a struct, or of columns, as those of a record."""
    fields: list[Field] = []
    used: dict[int, str] = {}
    for field in kind.fields:
        below = f"{path}.{field.name}" if path else field.name
        index = find_name(column.names, (field.name, *field.aliases))
        if index is None:
            fields.append(Field(field.name, -1, Constant(_default(field, below))))
            continue
        if index in used:
            raise _misfit(
                f"column {safe_text(column.names[index])} is both {used[index]} and {below} of the"
                " schema",
                hint="rename the column to the intended one",
            )
        used[index] = below
        fields.append(Field(field.name, index, match(field.type, column.children[index], below)))
    extra = [name for i, name in enumerate(column.names) if i not in used]
    if extra:
        inside = f" of {safe_text(path)}" if path else ""
        raise _misfit(
            f"the schema has no field for {safe_text(named(extra, 10), 300)}{inside}",
            hint="drop these, or write with a schema that has them (its record is"
            f" {kind.name}: {safe_text(named([f.name for f in kind.fields], 20), 300)})",
        )
    return Record(tuple(fields))


def _default(field: AvroField, path: str) -> bytes:
    if field.default is NO_DEFAULT:
        raise _misfit(
            f"the schema's field {safe_text(path)} has no default, and there is no column for it",
            hint="add a column of that name, or give the field a default in the schema",
        )
    try:
        return encoded_default(field.type, field.default)
    except (ValueError, TypeError, KeyError, AttributeError, struct.error):
        raise _misfit(
            f"the default of the schema's field {safe_text(path)} is not of its type",
            hint="add a column of that name, or correct the schema",
        ) from None


def encoded_default(kind: AvroType, value: object) -> bytes:
    """A default of a schema's JSON, encoded. Raises ValueError and its like when it is none."""
    if kind.kind == "union":
        return _default_of_union(kind, value)
    if kind.kind == "null" and value is None:
        return b""
    if kind.kind == "boolean" and isinstance(value, bool):
        return bytes([value])
    if kind.kind in ("float", "double") and isinstance(value, int | float):
        return struct.pack("<f" if kind.kind == "float" else "<d", value)
    if kind.kind in ("int", "long") and isinstance(value, int) and not isinstance(value, bool):
        bits = 31 if kind.kind == "int" else 63
        if not -(1 << bits) <= value < 1 << bits:
            raise ValueError
        return varint(value)
    if kind.kind == "array" and isinstance(value, list):
        items = [encoded_default(kind.inner[0], one) for one in value]
        return (varint(len(items)) if items else b"") + b"".join(items) + b"\x00"
    if kind.kind == "map" and isinstance(value, dict):
        entries = [_text(k) + encoded_default(kind.inner[0], v) for k, v in value.items()]
        return (varint(len(entries)) if entries else b"") + b"".join(entries) + b"\x00"
    if kind.kind == "record" and isinstance(value, dict):
        given = [value.get(one.name, one.default) for one in kind.fields]
        pairs = zip(kind.fields, given, strict=True)
        return b"".join(encoded_default(one.type, inner) for one, inner in pairs)
    if isinstance(value, str):
        return _default_of_text(kind, value)
    raise ValueError


def _default_of_text(kind: AvroType, value: str) -> bytes:
    if kind.kind == "string":
        return _text(value)
    if kind.kind == "enum":
        return varint(kind.symbols.index(value))
    data = value.encode("latin-1")
    if kind.kind == "bytes":
        return varint(len(data)) + data
    if kind.kind != "fixed" or len(data) != kind.size:
        raise ValueError
    return data


def _default_of_union(kind: AvroType, value: object) -> bytes:
    """Of the first branch that it fits."""
    for index, branch in enumerate(kind.inner):
        try:
            return varint(index) + encoded_default(branch, value)
        except (ValueError, TypeError, KeyError, AttributeError, struct.error):
            continue
    raise ValueError


def _text(value: str) -> bytes:
    data = value.encode()
    return varint(len(data)) + data


def _unfit(kind: AvroType, column: ColumnType, path: str) -> SchemaError:
    return _misfit(
        f"column {safe_text(path) or 'of the payload'} is of type {safe_text(column.text, 200)},"
        f" and the schema has {safe_text(kind.text, 200)} there",
        hint=f"cast the column; what can be written as what is in {page_address('formats')}",
    )


def _misfit(message: str, hint: str) -> SchemaError:
    return SchemaError(message, hint=hint, kind=Kind.COLUMNS_AND_SCHEMA)
