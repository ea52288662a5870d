"""Spark's sink contract: the columns of a Kafka sink, their types and their precedence.

Owns: the checks of a DataFrame's schema with the messages of Spark's Kafka sink
(``KafkaWriter.scala``), and the :class:`ColumnPlan` that follows. Never: values of rows (those
are ``records/record_columns``), Arrow. Runs on the driver, before any task.

| column | type | absent | null |
|---|---|---|---|
| value | string or binary | error | sent as null (tombstone) |
| key | string or binary | null key | null key |
| topic | string | the ``topic`` option must be set | error, unless the option is set |
| headers | array<struct<key:string,value:binary>> or map<string,binary or string> | none | none |
| partition | int | the partitioner decides | the partitioner decides |
| timestamp | timestamp, timestamp_ntz or bigint (ms since the epoch) | time of sending | the same |

As in Spark's sink, names are case-sensitive, the first match counts, the ``topic`` option overrides
the column (which is then not even type-checked), other columns are ignored. ``timestamp`` and map
headers are ours. Collated, char and varchar strings are accepted, too: their bytes are also UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import SchemaError, coded
from spark_kafka_sink.config.named_columns import NamedColumns
from spark_kafka_sink.datasource.write.named_columns import composed_columns, header_columns
from spark_kafka_sink.records.column_plan import ColumnPlan

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

_NONE_NAMED = NamedColumns()

#: The columns of a table or a stream without a schema (``DataSource.schema()``).
CANONICAL_SCHEMA = (
    "key binary, value binary, topic string, partition int, "
    "headers array<struct<key:string,value:binary>>, timestamp timestamp"
)

TEXT_OR_BYTES = "string or binary"
HEADERS = "array<struct<key:string,value:binary>>, map<string,binary> or map<string,string>"
TIMESTAMP = "timestamp, timestamp_ntz or bigint (milliseconds since the epoch)"


def plan_columns(
    schema: StructType, topic: str | None, named: NamedColumns = _NONE_NAMED
) -> ColumnPlan:
    """The plan of a DataFrame's columns, or SchemaError with the text of Spark's sink.

    ``topic`` is the option, or None, and ``named`` the columns that options name for key, value and
    headers. The order of the checks is Spark's: topic, key, value, headers, partition; then
    timestamp, then columns that Spark can't pass to a Python sink.
    """
    topic = None if topic is None else topic.strip()
    topic_column = None if topic is not None else _topic_column(schema)
    key = value = headers = None
    if not named.key:
        key = _column(schema, "key", _is_text_or_bytes, TEXT_OR_BYTES)
    if not named.value:
        value = _column(schema, "value", _is_text_or_bytes, TEXT_OR_BYTES)
    if value is None and not named.value:
        raise SchemaError(
            "Required attribute 'value' not found",
            hint=_near_name(schema, "value")
            or "set valueColumns=* for all columns as JSON, or add a column value",
            kind=Kind.MISSING_VALUE_COLUMN,
        )
    if not named.headers:
        headers = _column(schema, "headers", _is_headers, HEADERS)
    plan = ColumnPlan(
        topic=topic,
        value_column=value,
        key_column=key,
        topic_column=topic_column,
        headers_column=headers,
        partition_column=_column(schema, "partition", _is_int, "int"),
        timestamp_column=_column(schema, "timestamp", _is_timestamp, TIMESTAMP),
        value=composed_columns(
            schema,
            named.value,
            named.value_format,
            "valueColumns",
            is_struct=named.value_is_struct,
        ),
        key=composed_columns(schema, named.key, named.key_format, "keyColumns"),
        headers=header_columns(schema, named.headers),
        on_null_value=named.on_null_value,
    )
    if plan.names_columns:
        _refuse_replaced_columns(schema, plan)
    _refuse_what_spark_cannot_ship(schema)
    return plan


def with_keys_required(plan: ColumnPlan) -> ColumnPlan:
    """The plan for a compacted topic, whose brokers reject records without a key (INVALID_RECORD).
    SchemaError when no row has one.
    """
    if plan.key_column is None and plan.key is None:
        raise SchemaError(
            f"topic {plan.topic} is compacted (cleanup.policy), so brokers reject every row "
            "without a key, and there is no column for it",
            hint="add a column key, or set keyColumns; preflight=off writes without this check of "
            "the topic",
            kind=Kind.NULL_KEY,
        )
    return replace(plan, keys_required=True)


def _refuse_replaced_columns(schema: StructType, plan: ColumnPlan) -> None:
    """A column with a name of the sink that an option replaces must be in an option: it would be
    dropped silently, which is surely not intended.
    """
    used = _named_indices(plan)
    replaced = {
        "value": ("valueColumns", plan.value is not None),
        "key": ("keyColumns", plan.key is not None),
        "headers": ("headersColumns", bool(plan.headers)),
    }
    for index, name in enumerate(schema.names):
        option, given = replaced.get(name, ("", False))
        if given and index not in used:
            raise SchemaError(
                f"{option} is set, and there is a column {name} that it does not name: which of "
                f"them is the record's {name}?",
                hint=f"drop the column {name}, name it in {option}, or remove that option",
                kind=Kind.TWO_SOURCES,
            )


def _named_indices(plan: ColumnPlan) -> set[int]:
    composed = [one.columns for one in (plan.value, plan.key) if one is not None]
    return {column.index for columns in (*composed, plan.headers) for column in columns}


def _topic_column(schema: StructType) -> int:
    column = _column(schema, "topic", _is_text, "string")
    if column is None:
        raise SchemaError(
            "topic option required when no 'topic' attribute is present. Use the topic option for "
            "setting a topic.",
            hint=_near_name(schema, "topic"),
            kind=Kind.NO_TOPIC,
        )
    return column


def _column(
    schema: StructType, name: str, accepts: Callable[[DataType], bool], wanted: str
) -> int | None:
    """The index of the first column called exactly ``name``; SchemaError when its type is wrong."""
    for index, field in enumerate(schema.fields):
        if field.name == name:
            if accepts(field.dataType):
                return index
            raise SchemaError(
                f"{name} attribute unsupported type {field.dataType.simpleString()}. "
                f"{name} must be a(n) {wanted}",
                hint=_as_column(field),
                kind=Kind.COLUMN_TYPE,
            )
    return None


def _as_column(field: StructField) -> str:
    """How a column whose type is wrong can be written after all."""
    casts = f"cast it, or drop or rename the column {field.name}"
    if field.name not in ("key", "value"):
        return casts
    fields = ".*" if field.name == "value" and field.dataType.typeName() == "struct" else ""
    return f"set {field.name}Columns={field.name}{fields} for JSON; or {casts}"


def _near_name(schema: StructType, name: str) -> str | None:
    """A hint when ``name`` is missing and a column differs from it only in case."""
    for field in schema.fields:
        if field.name.lower() == name:
            return f"column names are case-sensitive here: rename {field.name} to {name}"
    return None


def near_names(schema: StructType, plan: ColumnPlan) -> list[str]:
    """A warning for each column that Spark's sink ignores silently because of its case."""
    names = {field.name for field in schema.fields}
    named = {schema.names[index] for index in _named_indices(plan)}
    return [
        coded(
            Kind.IGNORED_COLUMN,
            f"column {field.name} is ignored: column names are case-sensitive here, and the sink's"
            f" is {field.name.lower()}",
        )
        for field in schema.fields
        if field.name.lower() in _NAMES
        and field.name.lower() not in names
        and field.name not in named
    ]


_NAMES = frozenset({"key", "value", "topic", "headers", "partition", "timestamp"})


def _refuse_what_spark_cannot_ship(schema: StructType) -> None:
    """SchemaError for columns with which every task would fail in Spark, before it calls us."""
    from pyspark.sql.types import YearMonthIntervalType

    seen: set[str] = set()
    for field in schema.fields:
        if field.name in seen:
            raise SchemaError(
                f"column {field.name} occurs twice, and Spark can't pass both to a Python sink",
                hint="drop or rename one of them before writing",
            )
        seen.add(field.name)
        if isinstance(field.dataType, YearMonthIntervalType):
            raise SchemaError(
                f"column {field.name} is of type {field.dataType.simpleString()}, which Spark "
                "can't pass to a Python sink",
                hint="drop the column before writing; a Kafka sink would ignore it anyway",
            )


def _is_text(data_type: DataType) -> bool:
    from pyspark.sql.types import CharType, StringType, VarcharType

    return isinstance(data_type, StringType | CharType | VarcharType)


def _is_text_or_bytes(data_type: DataType) -> bool:
    from pyspark.sql.types import BinaryType

    return isinstance(data_type, BinaryType) or _is_text(data_type)


def _is_int(data_type: DataType) -> bool:
    from pyspark.sql.types import IntegerType

    return isinstance(data_type, IntegerType)


def _is_timestamp(data_type: DataType) -> bool:
    from pyspark.sql.types import LongType, TimestampNTZType, TimestampType

    return isinstance(data_type, TimestampType | TimestampNTZType | LongType)


def _is_headers(data_type: DataType) -> bool:
    """Spark's ``sameType`` for the array (field names count, nullability does not), or the map."""
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

    if isinstance(data_type, MapType):
        # A map is what users write first (SPARK-29228), and map("a", "b") has string values.
        value = data_type.valueType
        return _is_text(data_type.keyType) and (isinstance(value, BinaryType) or _is_text(value))
    if not isinstance(data_type, ArrayType) or not isinstance(data_type.elementType, StructType):
        return False
    fields = data_type.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and _is_text(fields[0].dataType)
        and isinstance(fields[1].dataType, BinaryType)
    )
