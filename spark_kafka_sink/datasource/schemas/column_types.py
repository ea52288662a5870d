"""Spark's types as the types of columns that formats know.

Owns: :func:`column_type`. Never: a format.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import SchemaError, safe_text
from spark_kafka_sink.records.formats.column_type import TYPES, ColumnKind, ColumnType

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

#: By the name of Spark's class, so that a type that an older pyspark lacks is no error.
_KINDS = {f"{name}Type": kind for kind, row in TYPES.items() for name in row.spark.split()}
_HINTS = {
    "VariantType": "write it as text: to_json(column)",
    "DayTimeIntervalType": "cast it to a number: extract(SECOND FROM column) or the like",
}


def column_type(data_type: DataType, path: str, *, nullable: bool = True) -> ColumnType:
    """The type of the column ``path``. SchemaError for one that no format writes."""
    from pyspark.sql import types

    text = data_type.simpleString()
    if isinstance(data_type, types.StructType):
        children = tuple(
            column_type(f.dataType, f"{path}.{f.name}", nullable=f.nullable)
            for f in data_type.fields
        )
        names = tuple(data_type.names)
        return ColumnType(ColumnKind.STRUCT, text, nullable, children, names)
    if isinstance(data_type, types.ArrayType):
        item = column_type(data_type.elementType, f"{path}[]", nullable=data_type.containsNull)
        return ColumnType(ColumnKind.ARRAY, text, nullable, (item,))
    if isinstance(data_type, types.MapType):
        key = column_type(data_type.keyType, f"{path} (a key)", nullable=False)
        value = column_type(data_type.valueType, f"{path}[]", nullable=data_type.valueContainsNull)
        return ColumnType(ColumnKind.MAP, text, nullable, (key, value))
    kind = _KINDS.get(type(data_type).__name__)
    if kind is None:
        raise SchemaError(
            f"column {safe_text(path)} is of type {safe_text(text, 200)}, which kprod can't write"
            " with a schema",
            hint=_HINTS.get(type(data_type).__name__, "cast it to a string, or drop it"),
            kind=Kind.COLUMN_TYPE,
        )
    found = ColumnType(kind, text, nullable)
    if isinstance(data_type, types.DecimalType):
        found = replace(found, precision=data_type.precision, scale=data_type.scale)
    return found
