"""The types of columns, as the payload formats need them: without Spark's and Arrow's classes.

:class:`ColumnKind` is the table with the type that each kind of column gets in a derived schema.
``make docs`` generates the table in docs/formats.md from this module. A user's own schema can have
a different type for a column. The file of each format handles these types.
``datasource/schemas/column_types.py`` creates column types from Spark's types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class ColumnKind(Enum):
    """The kinds of columns, each with its types in Spark, Avro, Protobuf and JSON.

    The value of a member has the names of Spark's classes (without "Type" at the end), Avro's type
    and logical type, Protobuf's type, and JSON's type. Protobuf's type is None if no single field
    can have such a column.
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
    """The type of a column.

    ``text`` is Spark's name of the type, for messages. ``children`` are the types inside of this
    type: of the fields of a struct, of the elements of an array, or of the key and the value of a
    map. ``names`` are the names of a struct's fields. ``precision`` and ``scale`` are 0 for all
    types except decimals.
    """

    kind: ColumnKind
    text: str
    nullable: bool = True
    children: tuple[ColumnType, ...] = ()
    names: tuple[str, ...] = ()
    precision: int = 0
    scale: int = 0
