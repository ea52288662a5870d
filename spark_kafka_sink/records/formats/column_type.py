"""The types of columns as formats see them: neither Spark's classes nor Arrow's.

Owns: :class:`ColumnType`, and :class:`ColumnKind`, the one table of types: what columns of each
kind are in a schema that is made of them. Never: Spark (``datasource/schemas/column_types.py``
makes them), Arrow; what else a column may be written as (the match of each format). ``make docs``
makes the table of docs/formats.md of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class ColumnKind(Enum):
    """What a column holds: Spark's classes without "Type" at their end, Avro's type and its logical
    type, Protobuf's type (None where it is no field by itself), and JSON's.
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
