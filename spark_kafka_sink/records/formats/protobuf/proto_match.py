"""Columns against a message of Protobuf: which column is which field, and how it is written.

Owns: :func:`match_message`, whose result the encoder follows, and the errors that planning can
find. Never: Arrow, a value of a row. A field that no column is for is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.documentation import page_address
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import SchemaError, named, safe_text
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType, find_name
from spark_kafka_sink.records.formats.protobuf.proto_nodes import (
    Field,
    Map,
    Message,
    Repeated,
    Scalar,
    Symbols,
    Value,
    Wire,
)
from spark_kafka_sink.records.formats.protobuf.proto_schema import unwritable

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_K = ColumnKind
_TIMESTAMP: Final = "google.protobuf.Timestamp"
#: FieldDescriptor's numbers of types.
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(10, 19)
_INTEGERS: Final[Mapping[int, tuple[Wire, int, int]]] = {
    _INT32: (Wire.VARINT, -(1 << 31), (1 << 31) - 1),
    _INT64: (Wire.VARINT, -(1 << 63), (1 << 63) - 1),
    _UINT32: (Wire.VARINT, 0, (1 << 32) - 1),
    _UINT64: (Wire.VARINT, 0, (1 << 63) - 1),
    _SINT32: (Wire.ZIGZAG, -(1 << 31), (1 << 31) - 1),
    _SINT64: (Wire.ZIGZAG, -(1 << 63), (1 << 63) - 1),
    _FIXED32: (Wire.FIXED32, 0, (1 << 32) - 1),
    _FIXED64: (Wire.FIXED64, 0, (1 << 63) - 1),
    _SFIXED32: (Wire.FIXED32, -(1 << 31), (1 << 31) - 1),
    _SFIXED64: (Wire.FIXED64, -(1 << 63), (1 << 63) - 1),
}
_OTHERS: Final[Mapping[tuple[ColumnKind, int], Wire]] = {
    (_K.BOOLEAN, _BOOL): Wire.BOOL,
    (_K.FLOAT, _FLOAT): Wire.FLOAT,
    (_K.FLOAT, _DOUBLE): Wire.DOUBLE,
    (_K.DOUBLE, _DOUBLE): Wire.DOUBLE,
    (_K.STRING, _STRING): Wire.STRING,
    (_K.BINARY, _BYTES): Wire.BYTES,
}
_BITS: Final = {_K.INT: 31, _K.LONG: 63}


def match_message(message: Descriptor, column: ColumnType, path: str) -> Message:
    """The fields of a struct, or of columns, as those of a message. Raises SchemaError."""
    found: list[Field] = []
    used: set[int] = set()
    for field in sorted(message.fields, key=lambda one: int(one.number)):
        below = f"{path}.{field.name}" if path else field.name
        index = find_name(column.names, (field.name, field.json_name))
        if index is None:
            if field.is_required:
                raise _misfit(
                    f"the schema's field {safe_text(below)} is required, and there is no column"
                    " for it",
                    "add a column of that name",
                )
            continue
        if index in used:
            raise _misfit(
                f"column {safe_text(column.names[index])} is two fields of the schema",
                "rename the column to the intended one",
            )
        used.add(index)
        value = _field(field, column.children[index], below)
        found.append(Field(field.name, field.number, index, value, bool(field.is_required)))
    extra = [name for i, name in enumerate(column.names) if i not in used]
    if extra:
        inside = f" of {safe_text(path)}" if path else ""
        raise _misfit(
            f"the schema has no field for {safe_text(named(extra, 10), 300)}{inside}",
            f"drop these, or write with a schema that has them (its message is"
            f" {message.full_name}: {safe_text(named([f.name for f in message.fields], 20), 300)})",
        )
    return Message(tuple(found))


def _field(field: FieldDescriptor, column: ColumnType, path: str) -> Value | Repeated | Map:
    if not field.is_repeated:
        return _value(field, column, path)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if column.kind is not _K.MAP:
            raise _unfit(field, column, path)
        key = _value(entry.fields_by_name["key"], column.children[0], f"{path} (a key)")
        assert isinstance(key, Scalar)
        return Map(key, _value(entry.fields_by_name["value"], column.children[1], f"{path}[]"))
    if column.kind is not _K.ARRAY:
        raise _unfit(field, column, path)
    return Repeated(_value(field, column.children[0], f"{path}[]"), bool(field.is_packed))


def _value(field: FieldDescriptor, column: ColumnType, path: str) -> Value:
    kind = field.type
    if column.kind in _BITS and kind in _INTEGERS:
        wire, least, most = _INTEGERS[kind]
        largest = (1 << _BITS[column.kind]) - 1
        return Scalar(
            wire, least if least > -largest - 1 else None, most if most < largest else None
        )
    if (column.kind, kind) in _OTHERS:
        return Scalar(_OTHERS[column.kind, kind])
    if kind == _ENUM and column.kind is _K.STRING:
        values = field.enum_type.values
        return Symbols(tuple(one.name for one in values), tuple(one.number for one in values))
    if kind == _MESSAGE and column.kind is _K.STRUCT:
        return match_message(field.message_type, column, path)
    if column.kind is _K.TIMESTAMP and _is_timestamp(field):
        return Scalar(Wire.TIMESTAMP)
    if column.kind in (_K.ARRAY, _K.MAP, _K.DECIMAL, _K.DATE, _K.TIMESTAMP_NTZ, _K.NULL):
        raise unwritable(column, path)
    raise _unfit(field, column, path)


def _is_timestamp(field: FieldDescriptor) -> bool:
    return bool(field.type == _MESSAGE and field.message_type.full_name == _TIMESTAMP)


def _unfit(field: FieldDescriptor, column: ColumnType, path: str) -> SchemaError:
    return _misfit(
        f"column {safe_text(path)} is of type {safe_text(column.text, 200)}, and the schema's field"
        f" {safe_text(field.full_name, 200)} can't hold it",
        f"cast the column; what can be written as what is in {page_address('formats')}",
    )


def _misfit(message: str, hint: str) -> SchemaError:
    return SchemaError(message, hint=hint, kind=Kind.COLUMNS_AND_SCHEMA)
