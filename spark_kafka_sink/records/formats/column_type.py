"""The types of columns for formats, independent of Spark's and Arrow's classes.

Owns: :class:`ColumnType`, and :class:`ColumnKind`, the table of types: the types of each kind of
column in a schema that is made from columns. Never: Spark (``datasource/schemas/column_types.py``
makes column types), Arrow; other types that a column may be written as (the match of each format).
``make docs`` generates the table of docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class ColumnKind(Enum):
    """The kind of a column's type: the name of Spark's class without "Type", Avro's type and its
    logical type, Protobuf's type (None if it can't be a single field), and JSON's type.
    """

    # fmt: off
    NULL = "Null", ("null", ""), None, {"type": "null"}
    BOOLEAN = "Boolean", ("boolean", ""), "bool", {"type": "boolean"}
    INT = "Byte Short Integer", ("int", ""), "int32", {"type": "integer"}
    LONG = "Long", ("long", ""), "int64", {"type": "integer"}
    FLOAT = "Float", ("float", ""), "float", {"type": "number"}
    DOUBLE = "Double", ("double", ""), "double", {"type": "number"}
    DECIMAL = "Decimal", ("bytes", "decimal"), None, {"type": "number"}
    STRING = "String Char Varchar", ("string", ""), "string", {"type": "string"}
    BINARY = "Binary", ("bytes", ""), "bytes", {"type": "string", "contentEncoding": "base64"}
    DATE = "Date", ("int", "date"), None, {"type": "string", "format": "date"}
    TIMESTAMP = ("Timestamp", ("long", "timestamp-micros"), "google.protobuf.Timestamp",
                 {"type": "string", "format": "date-time"})
    TIMESTAMP_NTZ = "TimestampNTZ", ("long", "local-timestamp-micros"), None, {"type": "string"}
    STRUCT = "Struct", ("record", ""), None, {"type": "object"}
    ARRAY = "Array", ("array", ""), None, {"type": "array"}
    MAP = "Map", ("map", ""), None, {"type": "object"}
    # fmt: on

    def __init__(
        self, spark: str, avro: tuple[str, str], protobuf: str | None, json: Mapping[str, object]
    ) -> None:
        self.spark, self.avro, self.protobuf, self.json = spark, avro, protobuf, json


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
