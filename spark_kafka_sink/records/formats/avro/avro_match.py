"""Columns against an Avro schema: which column is which field, and how its values are written.

Owns: :func:`match`, whose result the encoder follows, and the errors that planning can find. Never:
Arrow, a value of a row: what only values show is left to the encoder (numbers that are too large, a
null where a value is required).

A field is found by its name, then by its aliases. One that no column is for takes its default.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from spark_kafka_sink.base.errors import SchemaError, safe_text
from spark_kafka_sink.records.formats.avro.avro_schema import (
    LOGICAL,
    NO_DEFAULT,
    AvroField,
    AvroType,
)
from spark_kafka_sink.records.formats.binary.matching import (
    below,
    check_map_key,
    columns_of,
    misfit,
    unfit,
)
from spark_kafka_sink.records.formats.binary.nodes import (
    Boolean,
    Bytes,
    Coding,
    Decimal,
    Field,
    Items,
    Layout,
    Node,
    Number,
    Record,
    Symbols,
    Value,
)
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.varint import sized, varint

_K = ColumnKind
_LONG: Final = Number()
_INT: Final = Number(least=-(1 << 31), most=(1 << 31) - 1)
_MILLIS: Final = Number(divisor=1000)
_TEXT: Final = Bytes(Coding.ZIGZAG, is_text=True)
#: Most digits of a decimal of Spark and of Arrow.
_DIGITS: Final = 38
#: Bytes of a fixed that decimals are written to; each row has so many.
_LONGEST_DECIMAL: Final = 256
#: Of defaults: bounds, encodings, formats of struct, and errors.
_INTEGERS: Final = {"int": range(-(1 << 31), 1 << 31), "long": range(-(1 << 63), 1 << 63)}
_TEXTS: Final = {"string": "utf-8", "bytes": "latin-1"}
_FLOATS: Final = {"float": "<f", "double": "<d"}
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
_NODES: Final[Mapping[ColumnKind, Mapping[tuple[str, str], Node]]] = {
    _K.BOOLEAN: {("boolean", ""): Boolean()},
    _K.INT: _WHOLE,
    _K.LONG: _WHOLE,
    _K.FLOAT: {("float", ""): Number(Coding.FIXED32), ("double", ""): Number(Coding.FIXED64)},
    _K.DOUBLE: {("double", ""): Number(Coding.FIXED64)},
    _K.STRING: {("string", ""): _TEXT, ("string", "uuid"): _TEXT},
    _K.BINARY: {("bytes", ""): Bytes(Coding.ZIGZAG)},
    _K.DATE: {("int", "date"): _LONG},
    _K.TIMESTAMP: {("long", "timestamp-micros"): _LONG, ("long", "timestamp-millis"): _MILLIS},
    _K.TIMESTAMP_NTZ: {
        ("long", "local-timestamp-micros"): _LONG,
        ("long", "local-timestamp-millis"): _MILLIS,
    },
}


def match(kind: AvroType, column: ColumnType, path: str) -> Value:
    """How ``column`` is written as ``kind``. Raises SchemaError, which names ``path``."""
    branches = kind.inner if kind.kind == "union" else (kind,)
    prefixes = [varint(i) if kind.kind == "union" else b"" for i in range(len(branches))]
    null = next((p for p, one in zip(prefixes, branches, strict=True) if one.kind == "null"), None)
    if column.kind is _K.NULL and null is not None:
        return Value(Record(()), null=null)
    found: Value | None = None
    problem: SchemaError | None = None
    for prefix, branch in zip(prefixes, branches, strict=True):
        try:
            if id(column) in branch.problems:  # else branches within each other were endless
                raise branch.problems[id(column)]
            value = Value(_node(branch, column, path), prefix, null)
        except SchemaError as error:
            branch.problems[id(column)] = error
            problem = problem or (None if branch.kind == "null" else error)
            continue
        if column.kind not in _NODES or column.kind.avro == (branch.kind, branch.logical):
            return value
        found = found or value
    if found is None:
        single = len(branches) - (null is not None) == 1
        raise problem if single and problem is not None else _unfit(kind, column, path)
    return found


def _node(kind: AvroType, column: ColumnType, path: str) -> Node:
    match column.kind, kind.kind:
        case _K.STRUCT, "record":
            return _record(kind, column, path)
        case _K.ARRAY, "array":
            return Items(match(kind.inner[0], column.children[0], f"{path}[]"), Layout.BLOCK)
        case _K.MAP, "map":
            check_map_key(column, path)
            value = match(kind.inner[0], column.children[1], f"{path}[]")
            entry = Record((Field("key", 0, Value(_TEXT)), Field("value", 1, value)))
            return Items(Value(entry), Layout.BLOCK)
        case _K.STRING, "enum":
            return Symbols(kind.symbols, tuple(range(len(kind.symbols))), Coding.ZIGZAG)
        case _K.BINARY, "fixed" if kind.logical != "decimal":
            return Bytes(kind.size)
        case _K.DECIMAL, _ if kind.logical == "decimal":
            return _decimal(kind, column, path)
    node = _NODES.get(column.kind, {}).get((kind.kind, kind.logical))
    if node is None:
        raise _unfit(kind, column, path)
    return node


def _decimal(kind: AvroType, column: ColumnType, path: str) -> Decimal:
    moved = column.scale != kind.scale
    if (moved and kind.precision > _DIGITS) or kind.size > _LONGEST_DECIMAL:
        raise _unfit(kind, column, path)
    fewer = kind.precision - kind.scale < column.precision - column.scale
    size = kind.size if kind.kind == "fixed" else None
    return Decimal(kind.precision, kind.scale, size, checked=moved or fewer)


def _record(kind: AvroType, column: ColumnType, path: str) -> Record:
    """The fields of a struct, or of columns, as those of a record."""
    names = [(field.name, *field.aliases) for field in kind.fields]
    found = columns_of(names, column, path, f"record is {kind.name}")
    fields: list[Field] = []
    for field, index in zip(kind.fields, found, strict=True):
        inside = below(path, field.name)
        if index is None:
            fields.append(Field(field.name, -1, _default(field, inside)))
        else:
            value = match(field.type, column.children[index], inside)
            fields.append(Field(field.name, index, value))
    return Record(tuple(fields))


def _default(field: AvroField, path: str) -> bytes:
    if field.default is NO_DEFAULT:
        raise misfit(
            f"the schema's field {safe_text(path)} has no default, and there is no column for it",
            "add a column of that name, or give the field a default in the schema",
        )
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
        case ("int" | "long") as name, int() if type(value) is int and value in _INTEGERS[name]:
            return varint(value)
        case ("float" | "double") as name, int() | float() if type(value) is not bool:
            return struct.pack(_FLOATS[name], value)
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
        try:
            return varint(index) + _encoded(branch, value, more)
        except _NOT_OF_TYPE:
            continue
    raise ValueError("union")


def _block(items: Sequence[bytes]) -> bytes:
    return (varint(len(items)) if items else b"") + b"".join(items) + b"\x00"
