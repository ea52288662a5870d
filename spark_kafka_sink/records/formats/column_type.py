"""The types of columns as formats see them: neither Spark's classes nor Arrow's.

Owns: :class:`ColumnType`, and :data:`TYPES`, the one table of types: what columns of each kind are
in a schema that is made of them. Never: Spark (``datasource/schemas/column_types.py`` makes them),
Arrow; what else a column may be written as (the match of each format). ``make docs`` makes the
table of docs/formats.md of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class ColumnKind(Enum):
    """What a column holds."""

    NULL = auto()
    BOOLEAN = auto()
    #: Of at most 32 bits.
    INT = auto()
    LONG = auto()
    FLOAT = auto()
    DOUBLE = auto()
    DECIMAL = auto()
    STRING = auto()
    BINARY = auto()
    DATE = auto()
    TIMESTAMP = auto()
    TIMESTAMP_NTZ = auto()
    STRUCT = auto()
    ARRAY = auto()
    MAP = auto()


@dataclass(frozen=True, slots=True)
class ColumnType:
    """``text`` is Spark's name of it, for messages. ``children`` are a struct's fields, with their
    ``names``; the elements of an array; or key and value of a map.
    """

    kind: ColumnKind
    text: str
    nullable: bool = True
    children: tuple[ColumnType, ...] = ()
    names: tuple[str, ...] = ()
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class TypeNames:
    """``spark`` are Spark's classes, without "Type" at their end; ``avro`` has a type and its
    logical type, ``protobuf`` is None where there is no field.
    """

    spark: str
    avro: tuple[str, str]
    protobuf: str | None
    json: Mapping[str, object]


_K = ColumnKind
#: Of kinds that hold no others.
TYPES: Final = {
    _K.NULL: TypeNames("Null", ("null", ""), None, {"type": "null"}),
    _K.BOOLEAN: TypeNames("Boolean", ("boolean", ""), "bool", {"type": "boolean"}),
    _K.INT: TypeNames("Byte Short Integer", ("int", ""), "int32", {"type": "integer"}),
    _K.LONG: TypeNames("Long", ("long", ""), "int64", {"type": "integer"}),
    _K.FLOAT: TypeNames("Float", ("float", ""), "float", {"type": "number"}),
    _K.DOUBLE: TypeNames("Double", ("double", ""), "double", {"type": "number"}),
    _K.DECIMAL: TypeNames("Decimal", ("bytes", "decimal"), None, {"type": "number"}),
    _K.STRING: TypeNames("String Char Varchar", ("string", ""), "string", {"type": "string"}),
    _K.BINARY: TypeNames(
        "Binary", ("bytes", ""), "bytes", {"type": "string", "contentEncoding": "base64"}
    ),
    _K.DATE: TypeNames("Date", ("int", "date"), None, {"type": "string", "format": "date"}),
    _K.TIMESTAMP: TypeNames(
        "Timestamp",
        ("long", "timestamp-micros"),
        "google.protobuf.Timestamp",
        {"type": "string", "format": "date-time"},
    ),
    _K.TIMESTAMP_NTZ: TypeNames(
        "TimestampNTZ", ("long", "local-timestamp-micros"), None, {"type": "string"}
    ),
}
