"""The types of columns, as the payload formats need them: without Spark's and Arrow's classes.

:class:`ColumnKind` is a table: it maps Spark's types to the types of Avro, Protobuf and JSON
Schema. The sink uses the table when it derives a schema from the DataFrame's columns. A user's own
schema can have other types: the file of each format handles these types.

``datasource/schemas/column_types.py`` creates column types from Spark's types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class ColumnKind(Enum):
    """The kinds of columns, each with its types in Spark and in the payload formats.

    The value of a member has these items:

    1. the names of Spark's classes, without "Type" at the end
    2. Avro's type and logical type
    3. Protobuf's type. None for a struct, an array and a map, and for kinds that a derived Protobuf
       schema can't have.
    4. JSON's type
    """

    # ``make docs`` makes the table in docs/formats.md from these members.

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

    * ``text``: Spark's name of the type, for messages.
    * ``children``: the types inside of this type. A struct has a type for each field, an array has
      the type of its elements, and a map has the types of its key and its value.
    * ``names``: the names of a struct's fields.
    * ``precision``, ``scale``: of a decimal. 0 for all other types.
    """

    kind: ColumnKind
    text: str
    nullable: bool = True
    children: tuple[ColumnType, ...] = ()
    names: tuple[str, ...] = ()
    precision: int = 0
    scale: int = 0
