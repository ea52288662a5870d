"""Converts Spark's types to the column types of the formats Avro, Protobuf and JSON Schema.

:func:`cast_of` gives advice for a type that these formats can't write.
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
#: Expressions that convert a type to a type that can be written; all other types are cast to a
#: string.
_CASTS = {
    "VariantType": "to_json(column)",
    "GeometryType": "st_asbinary(column)",
    "GeographyType": "st_asbinary(column)",
}
#: The inner types of a type, beside fields: its attribute, the suffix of the path, and the
#: attribute for whether it may be null (a key never is).
_INNER = {
    "ArrayType": (("elementType", "[]", "containsNull"),),
    "MapType": (("keyType", " (a key)", ""), ("valueType", "[]", "valueContainsNull")),
}


def cast_of(data_type: DataType) -> str:
    """The SQL expression that converts a column to a type that the sink can write, a string or
    binary. Call this function only for a type ``data_type`` that the sink can't write. In the
    expression, ``column`` stands for the column's name. Spark 4.2 accepts the expression for each
    such type.
    """
    return _CASTS.get(type(data_type).__name__, "cast(column as string)")


def column_type(data_type: DataType, path: str, *, nullable: bool = True) -> ColumnType:
    """Converts ``data_type``, the Spark type of the column ``path``. Raises SchemaError for a type
    that none of the formats Avro, Protobuf and JSON Schema can write.
    """
    text, name = data_type.simpleString(), type(data_type).__name__
    if name not in _KINDS:
        raise SchemaError(
            f"column {safe_text(path)} is of type {safe_text(text, 200)}, which kprod can't write"
            " with a schema",
            hint=f"select {cast_of(data_type)} in its place, or drop it",
            kind=Kind.COLUMN_TYPE,
        )
    fields = getattr(data_type, "fields", ())
    inner = [(one.dataType, below(path, one.name), one.nullable) for one in fields]
    for of, more, null in _INNER.get(name, ()):
        inner.append((getattr(data_type, of), path + more, getattr(data_type, null, False)))
    children = tuple(column_type(of, way, nullable=null) for of, way, null in inner)
    names = tuple(getattr(data_type, "names", ()))
    digits = (getattr(data_type, "precision", 0), getattr(data_type, "scale", 0))
    return ColumnType(_KINDS[name], text, nullable, children, names, *digits)
