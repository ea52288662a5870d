"""The one table of types: what columns of each kind are in a schema that is made of them.

Owns: :data:`TYPES`, for kinds that hold no others. Never: what else a column may be written as (the
match of each format). ``make docs`` makes the table of docs/formats.md of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.records.formats.column_type import ColumnKind as K


@dataclass(frozen=True, slots=True)
class TypeNames:
    """``avro`` has a type and its logical type, ``protobuf`` is None where there is no field."""

    avro: tuple[str, str]
    protobuf: str | None
    json: Mapping[str, object]


TYPES: Final = {
    K.NULL: TypeNames(("null", ""), None, {"type": "null"}),
    K.BOOLEAN: TypeNames(("boolean", ""), "bool", {"type": "boolean"}),
    K.INT: TypeNames(("int", ""), "int32", {"type": "integer"}),
    K.LONG: TypeNames(("long", ""), "int64", {"type": "integer"}),
    K.FLOAT: TypeNames(("float", ""), "float", {"type": "number"}),
    K.DOUBLE: TypeNames(("double", ""), "double", {"type": "number"}),
    K.DECIMAL: TypeNames(("bytes", "decimal"), None, {"type": "number"}),
    K.STRING: TypeNames(("string", ""), "string", {"type": "string"}),
    K.BINARY: TypeNames(("bytes", ""), "bytes", {"type": "string", "contentEncoding": "base64"}),
    K.DATE: TypeNames(("int", "date"), None, {"type": "string", "format": "date"}),
    K.TIMESTAMP: TypeNames(
        ("long", "timestamp-micros"),
        "google.protobuf.Timestamp",
        {"type": "string", "format": "date-time"},
    ),
    K.TIMESTAMP_NTZ: TypeNames(("long", "local-timestamp-micros"), None, {"type": "string"}),
}
