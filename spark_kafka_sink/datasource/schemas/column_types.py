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
#: What is within a type beside fields: its attribute, what follows the path, and the attribute that
#: says whether it may be null (a key never is).
_INNER = {
    "ArrayType": (("elementType", "[]", "containsNull"),),
    "MapType": (("keyType", " (a key)", ""), ("valueType", "[]", "valueContainsNull")),
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
    fields = getattr(data_type, "fields", ())
    inner = [(one.dataType, below(path, one.name), one.nullable) for one in fields]
    for of, more, null in _INNER.get(name, ()):
        inner.append((getattr(data_type, of), path + more, getattr(data_type, null, False)))
    children = tuple(column_type(of, way, nullable=null) for of, way, null in inner)
    names = tuple(getattr(data_type, "names", ()))
    digits = (getattr(data_type, "precision", 0), getattr(data_type, "scale", 0))
    return ColumnType(_KINDS[name], text, nullable, children, names, *digits)
