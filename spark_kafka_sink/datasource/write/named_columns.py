"""Finds the columns of the options keyColumns, valueColumns and headersColumns in a DataFrame's
schema, and checks their types. This happens on the driver, before any task.

Names are resolved as by Spark with ``spark.sql.caseSensitive=false``: letter case does not matter.
An exact match is preferred, so that a DataFrame of a case-sensitive session can also be written.
The names in JSON are spelled as in the option, like in ``to_json(struct(id))``.

The plan also gets properties of Spark's types that Arrow's types lack, such as the units of an
interval. The tasks convert the values (``records/json/json_text.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import SchemaError, safe_text
from spark_kafka_sink.base.suggestions import nearest_name
from spark_kafka_sink.config.named_columns import ALL_COLUMNS, ColumnFormat
from spark_kafka_sink.datasource.schemas.column_types import cast_of
from spark_kafka_sink.records.column_plan import ComposedColumns, IntervalUnits, NamedColumn

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

#: Decimals with a larger scale may have an exponent in Arrow's text, while Spark's cast writes
#: none.
_MOST_PLAIN_DIGITS = 6

#: Types whose values are one text in JSON, by the names of Spark's classes: older versions lack
#: some of them.
_JSON_TYPES = frozenset({
    "NullType", "StringType", "CharType", "VarcharType", "BinaryType", "BooleanType", "ByteType",
    "ShortType", "IntegerType", "LongType", "FloatType", "DoubleType", "DecimalType", "DateType",
    "TimestampType", "TimestampNTZType", "TimeType", "DayTimeIntervalType",
})  # fmt: skip
_VARIANT = "VariantType"

if TYPE_CHECKING:
    #: A type that can't be written: its path below the column, and the type. None if there is none.
    _Problem = tuple[str, DataType] | None


def composed_columns(
    schema: StructType,
    names: tuple[str, ...],
    format_: ColumnFormat,
    option: str,
    *,
    is_struct: bool = False,
) -> ComposedColumns | None:
    """Finds the columns of the key or of the value, and checks their types. Returns None if the
    option names no column.

    ``option`` is keyColumns or valueColumns, and ``names`` is its value. If ``is_struct`` is true,
    the option names one struct column, and the fields of the struct are written.

    Raises SchemaError for a missing column, and for a type that the format can't write. The types
    for Avro and Protobuf are checked later, with the schema.
    """
    if not names:
        return None
    if names == (ALL_COLUMNS,):
        names = tuple(schema.names)
    columns = tuple(_find(schema, name, option) for name in names)
    _refuse_same_column(schema, columns, option)
    if is_struct:
        _check_type(schema, columns[0], option, _struct_problem, "name it without .*", " as .*")
    if format_ in (ColumnFormat.AVRO, ColumnFormat.PROTOBUF):
        return ComposedColumns(columns, format_, is_struct)
    problem = _string_problem if format_ is ColumnFormat.STRING else _json_problem
    for column in columns:
        _check_type(schema, column, option, problem, None, f" as {format_}")
    if format_ is ColumnFormat.JSON:
        types = [schema.fields[column.index].dataType for column in columns]
        columns = tuple(
            replace(column, units=_interval_units(of))
            for column, of in zip(columns, types, strict=True)
        )
    return ComposedColumns(columns, format_, is_struct)


def header_columns(schema: StructType, names: tuple[str, ...]) -> tuple[NamedColumn, ...]:
    """Finds the columns of the option ``headersColumns``. Raises SchemaError for a missing column,
    and for a column that is neither a string nor binary.
    """
    option = "headersColumns"
    columns = tuple(_find(schema, name, option) for name in names)
    _refuse_same_column(schema, columns, option)
    for column in columns:
        _check_type(
            schema, column, option, _header_problem, "cast it to string or binary", " as a header"
        )
    return columns


def _find(schema: StructType, name: str, option: str) -> NamedColumn:
    exact = [i for i, there in enumerate(schema.names) if there == name]
    found = exact or [i for i, there in enumerate(schema.names) if there.lower() == name.lower()]
    if not found:
        near = nearest_name(name.lower(), schema.names)
        outer = name.partition(".")[0]
        if outer != name and any(there.lower() == outer.lower() for there in schema.names):
            hint = f"a field of {safe_text(outer)} is no column: select it as one, with a name"
        elif near is not None:
            hint = f"did you mean {safe_text(near)}?"
        else:
            hint = f"the DataFrame has {safe_text(', '.join(schema.names), 200)}"
        raise SchemaError(
            f"{option} names a column {safe_text(name)}, which the DataFrame does not have",
            hint=hint,
            kind=Kind.NO_SUCH_COLUMN,
        )
    if len(found) > 1:
        raise SchemaError(
            f"{option} names a column {safe_text(name)}, and the DataFrame has several: "
            f"{safe_text(', '.join(schema.names[i] for i in found), 200)}",
            hint="write the name in the case of the intended column, or rename the other columns",
            kind=Kind.NO_SUCH_COLUMN,
        )
    return NamedColumn(name, found[0])


def _refuse_same_column(schema: StructType, columns: tuple[NamedColumn, ...], option: str) -> None:
    seen: set[int] = set()
    for column in columns:
        if column.index in seen:
            raise SchemaError(
                f"{option} names column {safe_text(schema.names[column.index])} twice",
                hint="name it once",
                kind=Kind.NO_SUCH_COLUMN,
            )
        seen.add(column.index)


def _check_type(
    schema: StructType,
    column: NamedColumn,
    option: str,
    problem_of: Callable[[DataType], _Problem],
    hint: str | None,
    how: str,
) -> None:
    problem = problem_of(schema.fields[column.index].dataType)
    if problem is None:
        return
    path, data_type = problem
    name = safe_text(data_type.simpleString(), 200)
    raise SchemaError(
        f"{option}: column {safe_text(column.name + path)} is of type {name}, which kprod can't"
        f" write{how}",
        hint=hint or f"select {cast_of(data_type)} in its place",
        kind=Kind.COLUMN_TYPE,
    )


def _struct_problem(data_type: DataType) -> _Problem:
    from pyspark.sql import types

    return None if isinstance(data_type, types.StructType) else ("", data_type)


def _json_problem(data_type: DataType, *, in_key: bool = False) -> _Problem:
    """Finds the first type within ``data_type`` that can't be written as JSON. Returns the path of
    that type, and that type. Returns None if the whole type can be written.

    ``in_key`` is true if the type is a part of a map's key.
    """
    from pyspark.sql import types

    if isinstance(data_type, types.StructType):
        fields = data_type.fields
        found = (_below(f".{f.name}", _json_problem(f.dataType, in_key=in_key)) for f in fields)
        return next((problem for problem in found if problem is not None), None)
    if isinstance(data_type, types.ArrayType):
        return _below("[]", _json_problem(data_type.elementType, in_key=in_key))
    if isinstance(data_type, types.MapType):
        key = _below(" (a key of the map)", _json_problem(data_type.keyType, in_key=True))
        return key or _below("[]", _json_problem(data_type.valueType))
    name = type(data_type).__name__
    known = name in _JSON_TYPES or (name == _VARIANT and not in_key)
    # A string with a collation is of a class of its own in some versions.
    return None if known or isinstance(data_type, types.StringType) else ("", data_type)


def _interval_units(data_type: DataType) -> IntervalUnits:
    """The units of the intervals within a type, nested like the type. None if the type contains no
    interval.
    """
    from pyspark.sql import types

    if isinstance(data_type, types.DayTimeIntervalType):
        return data_type.simpleString().removeprefix("interval ").upper()
    units = tuple(map(_interval_units, _inner_types(data_type)))
    return units if any(units) else None


def has_instants(data_type: DataType) -> bool:
    """Whether the text of a value of this type depends on a time zone."""
    from pyspark.sql import types

    if isinstance(data_type, types.TimestampType) or type(data_type).__name__ == _VARIANT:
        return True
    return any(map(has_instants, _inner_types(data_type)))


def _inner_types(data_type: DataType) -> list[DataType]:
    from pyspark.sql import types

    if isinstance(data_type, types.StructType):
        return [field.dataType for field in data_type.fields]
    if isinstance(data_type, types.ArrayType):
        return [data_type.elementType]
    if isinstance(data_type, types.MapType):
        return [data_type.keyType, data_type.valueType]
    return []


def _below(name: str, problem: _Problem) -> _Problem:
    return None if problem is None else (name + problem[0], problem[1])


def _string_problem(data_type: DataType) -> _Problem:
    from pyspark.sql import types

    if isinstance(data_type, types.BooleanType | types.IntegralType | types.DateType) or (
        isinstance(data_type, types.DecimalType) and data_type.scale <= _MOST_PLAIN_DIGITS
    ):
        return None
    return _header_problem(data_type)


def _header_problem(data_type: DataType) -> _Problem:
    from pyspark.sql import types

    known = types.StringType | types.CharType | types.VarcharType | types.BinaryType
    return None if isinstance(data_type, known) else ("", data_type)
