"""Spark's types as the types of columns that formats know.

Owns: :func:`column_type`. Never: a format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import SchemaError, safe_text
from spark_kafka_sink.records.formats.binary.matching import below
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

#: By the name of Spark's class, so that a type that an older pyspark lacks is no error.
_KINDS = {f"{name}Type": kind for kind in ColumnKind for name in kind.spark.split()}
_HINTS = {
    "VariantType": "write it as text: to_json(column)",
    "DayTimeIntervalType": "cast it to a number: extract(SECOND FROM column) or the like",
}


def column_type(data_type: DataType, path: str, *, nullable: bool = True) -> ColumnType:
    """The type of the column ``path``. SchemaError for one that no format writes."""
    text, name = data_type.simpleString(), type(data_type).__name__
    if name not in _KINDS:
        raise SchemaError(
            f"column {safe_text(path)} is of type {safe_text(text, 200)}, which kprod can't write"
            " with a schema",
            hint=_HINTS.get(name, "cast it to a string, or drop it"),
            kind=Kind.COLUMN_TYPE,
        )
    return ColumnType(
        _KINDS[name],
        text,
        nullable,
        tuple(column_type(of, way, nullable=null) for way, of, null in _inner(data_type, path)),
        names=tuple(getattr(data_type, "names", ())),
        precision=getattr(data_type, "precision", 0),
        scale=getattr(data_type, "scale", 0),
    )


def _inner(data_type: DataType, path: str) -> list[tuple[str, DataType, bool]]:
    """The types within ``data_type``: the path to each, and whether it may be null."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(data_type, StructType):
        return [(below(path, one.name), one.dataType, one.nullable) for one in data_type.fields]
    if isinstance(data_type, ArrayType):
        return [(f"{path}[]", data_type.elementType, data_type.containsNull)]
    if isinstance(data_type, MapType):
        value = f"{path}[]", data_type.valueType, data_type.valueContainsNull
        return [(f"{path} (a key)", data_type.keyType, False), value]
    return []
