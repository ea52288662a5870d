"""Protobuf behind the seam of formats.

Owns: :class:`ProtobufFormat`: which column is which field of a message, how it is written, and the
errors that planning can find. Never: Arrow, a value of a row, a registry. A field that no column is
for is left out, as is a null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.errors import SchemaError, safe_text
from spark_kafka_sink.records.formats.binary import nodes
from spark_kafka_sink.records.formats.binary.matching import (
    below,
    columns_of,
    misfit,
    missing,
    unfit,
)
from spark_kafka_sink.records.formats.binary.nodes import Coding, Number, Value
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.protobuf.proto_schema import derived_schema, message_of
from spark_kafka_sink.records.formats.schema_format import PayloadPlan, SchemaFormat
from spark_kafka_sink.records.varint import unsigned_varint, varint

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_K = ColumnKind
#: FieldDescriptor's numbers of types.
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(10, 19)
#: How they begin (wire types).
_VARINT, _64_BITS, _AFTER_LENGTH, _32_BITS = 0, 1, 2, 5
_INT, _UINT = (-(1 << 31), (1 << 31) - 1), (0, (1 << 32) - 1)
_WHOLE: Final = (_K.INT, _K.LONG)
#: Its wire type, the kinds of columns that are written as it, and how; there is more in ``_node``.
_TYPES: Final[Mapping[int, tuple[int, Sequence[ColumnKind], nodes.Node | None]]] = {
    _BOOL: (_VARINT, (_K.BOOLEAN,), nodes.Boolean()),
    _INT32: (_VARINT, _WHOLE, Number(Coding.VARINT, 1, *_INT)),
    _INT64: (_VARINT, _WHOLE, Number(Coding.VARINT)),
    _UINT32: (_VARINT, _WHOLE, Number(Coding.VARINT, 1, *_UINT)),
    _UINT64: (_VARINT, _WHOLE, Number(Coding.VARINT, 1, 0)),
    _SINT32: (_VARINT, _WHOLE, Number(Coding.ZIGZAG, 1, *_INT)),
    _SINT64: (_VARINT, _WHOLE, Number(Coding.ZIGZAG)),
    _FIXED32: (_32_BITS, _WHOLE, Number(Coding.FIXED32, 1, *_UINT)),
    _FIXED64: (_64_BITS, _WHOLE, Number(Coding.FIXED64, 1, 0)),
    _SFIXED32: (_32_BITS, _WHOLE, Number(Coding.FIXED32, 1, *_INT)),
    _SFIXED64: (_64_BITS, _WHOLE, Number(Coding.FIXED64)),
    _FLOAT: (_32_BITS, (_K.FLOAT,), Number(Coding.FIXED32)),
    _DOUBLE: (_64_BITS, (_K.FLOAT, _K.DOUBLE), Number(Coding.FIXED64)),
    _STRING: (_AFTER_LENGTH, (_K.STRING,), nodes.Bytes(Coding.VARINT, is_text=True)),
    _BYTES: (_AFTER_LENGTH, (_K.BINARY,), nodes.Bytes(Coding.VARINT)),
    _ENUM: (_VARINT, (), None),
    **dict.fromkeys((_MESSAGE, _GROUP), (_AFTER_LENGTH, (), None)),
}


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

    def plan(self, schema: str, prefix: bytes, column: ColumnType) -> PayloadPlan:
        if column.kind is not ColumnKind.STRUCT:
            raise misfit(
                "a payload of Protobuf is a message, and the column is no struct",
                "name columns, or a struct with .*",
            )
        record = _match_message(message_of(schema, self._name)[0], column, "")
        return PayloadPlan(prefix, Value(record))


def _match_message(message: Descriptor, column: ColumnType, path: str) -> nodes.Record:
    """The fields of a struct, or of columns, as those of a message. Raises SchemaError."""
    fields = sorted(message.fields, key=lambda one: int(one.number))
    names = [(field.name, field.json_name) for field in fields]
    matched: list[nodes.Field] = []
    choices: dict[str, tuple[int, ...]] = {}
    found = columns_of(names, column, path, f"message is {message.full_name}")
    for field, index in zip(fields, found, strict=True):
        inside = below(path, field.name)
        if index is not None:
            value = _field(field, column.children[index], inside)
            matched.append(nodes.Field(field.name, index, value))
            if field.containing_oneof is not None:
                name = field.containing_oneof.name
                choices[name] = (*choices.get(name, ()), index)
        elif field.is_required:
            raise missing(inside, "is required")
    several = tuple(one for one in choices.values() if len(one) > 1)
    return nodes.Record(tuple(matched), choices=several)


def _field(field: FieldDescriptor, column: ColumnType, path: str) -> Value:
    if not field.is_repeated:
        null = None if field.is_required else b""
        return Value(_node(field, column, path), _tag(field), null, _zeros(field))
    entry = field.message_type
    is_map = entry is not None and entry.GetOptions().map_entry
    if column.kind is not (_K.MAP if is_map else _K.ARRAY):
        raise _unfit(field, column, path)
    if is_map:
        node = _map_entry(entry, column, path)
    else:
        node = _node(field, column.children[0], f"{path}[]")
    layout = nodes.Layout.PACKED if field.is_packed else nodes.Layout.EACH
    return Value(nodes.Items(Value(node), layout, _tag(field)), null=b"")


def _map_entry(entry: Descriptor, column: ColumnType, path: str) -> nodes.Node:
    inside = zip(entry.fields, column.children, (f"{path} (a key)", f"{path}[]"), strict=True)
    key, value = [Value(_node(one, child, where), _tag(one)) for one, child, where in inside]
    return nodes.Record((nodes.Field("key", 0, key), nodes.Field("value", 1, value)), length=True)


def _zeros(field: FieldDescriptor) -> tuple[object, ...]:
    """What other producers leave out, too: a key has the same bytes."""
    if field.has_presence:
        return ()
    if field.type == _ENUM:
        return tuple(one.name.encode() for one in field.enum_type.values if one.number == 0)
    return (b"" if field.type == _STRING else field.default_value,)


def _tag(field: FieldDescriptor) -> bytes:
    wire_type = _AFTER_LENGTH if field.is_packed else _TYPES[field.type][0]
    return unsigned_varint(field.number << 3 | wire_type)


def _node(field: FieldDescriptor, column: ColumnType, path: str) -> nodes.Node:
    _, kinds, node = _TYPES[field.type]
    if node is not None and column.kind in kinds:
        return node
    if field.type == _ENUM and column.kind is _K.STRING:
        names = {one.name: one.number for one in field.enum_type.values}
        return nodes.Symbols(tuple(names), tuple(names.values()), Coding.VARINT)
    message = "" if field.type != _MESSAGE else field.message_type.full_name
    if message and column.kind is _K.STRUCT:
        return replace(_match_message(field.message_type, column, path), length=True)
    if column.kind is _K.TIMESTAMP and message == _K.TIMESTAMP.protobuf:
        return nodes.Timestamp()
    raise _unfit(field, column, path)


def _unfit(field: FieldDescriptor, column: ColumnType, path: str) -> SchemaError:
    what = f"and the schema's field {safe_text(field.full_name, 200)} can't hold it"
    return unfit(column, path, what)
