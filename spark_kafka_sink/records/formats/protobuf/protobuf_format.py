"""Protobuf behind the seam of formats.

Owns: :class:`ProtobufFormat`: which column is which field of a message, how it is written, and the
errors that planning can find. Never: Arrow, a value of a row, a registry. A field that no column is
for is left out, as is a null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.errors import SchemaError, safe_text
from spark_kafka_sink.records.formats.binary.binary_plan import BinaryPlan
from spark_kafka_sink.records.formats.binary.matching import below, columns_of, misfit, unfit
from spark_kafka_sink.records.formats.binary.nodes import (
    Boolean,
    Bytes,
    Coding,
    Field,
    Items,
    Layout,
    Node,
    Number,
    Record,
    Symbols,
    Timestamp,
    Value,
)
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.protobuf.proto_schema import derived_schema, message_of
from spark_kafka_sink.records.formats.schema_format import SchemaFormat
from spark_kafka_sink.records.varint import unsigned_varint, varint

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_K = ColumnKind
#: FieldDescriptor's numbers of types.
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(10, 19)
_32_BITS = -(1 << 31), (1 << 31) - 1
#: Of columns of integers.
_INTEGERS: Final[Mapping[int, Node]] = {
    _INT32: Number(Coding.VARINT, 1, *_32_BITS),
    _INT64: Number(Coding.VARINT),
    _UINT32: Number(Coding.VARINT, 1, 0, (1 << 32) - 1),
    _UINT64: Number(Coding.VARINT, 1, 0),
    _SINT32: Number(Coding.ZIGZAG, 1, *_32_BITS),
    _SINT64: Number(Coding.ZIGZAG),
    _FIXED32: Number(Coding.FIXED32, 1, 0, (1 << 32) - 1),
    _FIXED64: Number(Coding.FIXED64, 1, 0),
    _SFIXED32: Number(Coding.FIXED32, 1, *_32_BITS),
    _SFIXED64: Number(Coding.FIXED64),
}
_OTHERS: Final[Mapping[tuple[ColumnKind, int], Node]] = {
    (_K.BOOLEAN, _BOOL): Boolean(),
    (_K.FLOAT, _FLOAT): Number(Coding.FIXED32),
    (_K.FLOAT, _DOUBLE): Number(Coding.FIXED64),
    (_K.DOUBLE, _DOUBLE): Number(Coding.FIXED64),
    (_K.STRING, _STRING): Bytes(Coding.VARINT, is_text=True),
    (_K.BINARY, _BYTES): Bytes(Coding.VARINT),
}
#: The wire types of those that are not after their length.
_FIXED: Final = {
    **dict.fromkeys((_DOUBLE, _FIXED64, _SFIXED64), 1),
    **dict.fromkeys((_FLOAT, _FIXED32, _SFIXED32), 5),
}
_AFTER_LENGTH: Final = (_STRING, _BYTES, _MESSAGE)


class ProtobufFormat(SchemaFormat):
    """``SchemaFormat`` of Protobuf. ``name`` chooses a message of a file that has several."""

    schema_type = "PROTOBUF"
    has_bare = False

    def __init__(self, name: str | None) -> None:
        self._name = name

    def derive(self, column: ColumnType, name: str) -> str:
        return derived_schema(column, name)

    def name_of(self, schema: str) -> str:
        return str(message_of(schema, self._name)[0].full_name)

    def indexes(self, schema: str) -> bytes:
        path = message_of(schema, self._name)[1]
        return b"\x00" if path == (0,) else b"".join(map(varint, (len(path), *path)))

    def plan(self, schema: str, prefix: bytes, column: ColumnType) -> BinaryPlan:
        if column.kind is not ColumnKind.STRUCT:
            raise misfit(
                "a payload of Protobuf is a message, and the column is no struct",
                "name columns, or a struct with .*",
            )
        record = _match_message(message_of(schema, self._name)[0], column, "")
        return BinaryPlan(prefix, Value(record))


def _match_message(message: Descriptor, column: ColumnType, path: str) -> Record:
    """The fields of a struct, or of columns, as those of a message. Raises SchemaError."""
    fields = sorted(message.fields, key=lambda one: int(one.number))
    names = [(field.name, field.json_name) for field in fields]
    matched: list[Field] = []
    choices: dict[str, tuple[int, ...]] = {}
    found = columns_of(names, column, path, f"message is {message.full_name}")
    for field, index in zip(fields, found, strict=True):
        inside = below(path, field.name)
        if index is not None:
            matched.append(Field(field.name, index, _field(field, column.children[index], inside)))
            if field.containing_oneof is not None:
                name = field.containing_oneof.name
                choices[name] = (*choices.get(name, ()), index)
        elif field.is_required:
            raise misfit(
                f"the schema's field {safe_text(inside)} is required, and there is no column for"
                " it",
                "add a column of that name",
            )
    return Record(tuple(matched), choices=tuple(one for one in choices.values() if len(one) > 1))


def _field(field: FieldDescriptor, column: ColumnType, path: str) -> Value:
    if not field.is_repeated:
        null = None if field.is_required else b""
        return Value(_node(field, column, path), _tag(field), null, _zeros(field))
    entry = field.message_type
    is_map = entry is not None and entry.GetOptions().map_entry
    if column.kind is not (_K.MAP if is_map else _K.ARRAY):
        raise _unfit(field, column, path)
    node = (
        _map_entry(entry, column, path) if is_map else _node(field, column.children[0], f"{path}[]")
    )
    layout = Layout.PACKED if field.is_packed else Layout.EACH
    return Value(Items(Value(node), layout, _tag(field)), null=b"")


def _map_entry(entry: Descriptor, column: ColumnType, path: str) -> Node:
    inside = zip(entry.fields, column.children, (f"{path} (a key)", f"{path}[]"), strict=True)
    return Record(
        tuple(
            Field(one.name, at, Value(_node(one, child, where), _tag(one)))
            for at, (one, child, where) in enumerate(inside)
        ),
        length=True,
    )


def _zeros(field: FieldDescriptor) -> tuple[object, ...]:
    """What other producers leave out, too: a key has the same bytes."""
    if field.has_presence:
        return ()
    if field.type == _ENUM:
        return tuple(one.name.encode() for one in field.enum_type.values if one.number == 0)
    return (b"" if field.type == _STRING else field.default_value,)


def _tag(field: FieldDescriptor) -> bytes:
    kind = 2 if field.type in _AFTER_LENGTH or field.is_packed else _FIXED.get(field.type, 0)
    return unsigned_varint(field.number << 3 | kind)


def _node(field: FieldDescriptor, column: ColumnType, path: str) -> Node:
    kind = field.type
    if column.kind in (_K.INT, _K.LONG) and kind in _INTEGERS:
        return _INTEGERS[kind]
    if (column.kind, kind) in _OTHERS:
        return _OTHERS[column.kind, kind]
    if kind == _ENUM and column.kind is _K.STRING:
        values = field.enum_type.values
        numbers = tuple(one.number for one in values)
        return Symbols(tuple(one.name for one in values), numbers, Coding.VARINT)
    if kind == _MESSAGE and column.kind is _K.STRUCT:
        return replace(_match_message(field.message_type, column, path), length=True)
    message = "" if kind != _MESSAGE else field.message_type.full_name
    if column.kind is _K.TIMESTAMP and message == _K.TIMESTAMP.protobuf:
        return Timestamp()
    raise _unfit(field, column, path)


def _unfit(field: FieldDescriptor, column: ColumnType, path: str) -> SchemaError:
    return unfit(
        column, path, f"and the schema's field {safe_text(field.full_name, 200)} can't hold it"
    )
