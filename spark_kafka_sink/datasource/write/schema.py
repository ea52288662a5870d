"""The columns of a Kafka sink, their types and their precedence, as in Spark's own sink.

The driver checks a DataFrame's schema before any task, and makes a :class:`ColumnPlan` of it. The
error messages are the same as in Spark's Kafka sink (``KafkaWriter.scala``).

| column | type | absent | null |
|---|---|---|---|
| value | string or binary | error | sent as null (tombstone) |
| key | string or binary | null key | null key |
| topic | string | the ``topic`` option must be set | error, unless the option is set |
| headers | array<struct<key:string,value:binary>> or map<string,binary or string> | none | none |
| partition | int | the partitioner decides | the partitioner decides |
| timestamp | timestamp, timestamp_ntz or bigint (ms since the epoch) | send time | send time |

- A bigint that means a time before 1980 is an error: the value is most likely in seconds.
- As in Spark's sink, names are case-sensitive, the first match counts, and other columns are
  ignored. If the option ``topic`` is set, the column ``topic`` is also ignored.
- Spark's sink has no column ``timestamp`` and no map headers.
- Collated, char and varchar strings are also accepted, because their bytes are UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import SchemaError, coded, safe_text
from spark_kafka_sink.base.time_zones import time_zone
from spark_kafka_sink.config.changelog import ChangelogMode, ChangeOptions
from spark_kafka_sink.config.named_columns import (
    ColumnFormat,
    JsonOptions,
    NamedColumns,
    OnNullKey,
    TimestampColumn,
)
from spark_kafka_sink.datasource.write.change_columns import (
    FeedColumns,
    feed_columns,
    in_batch,
    refuse_cut_times,
    refuse_other_keys,
    refuse_unstable_keys,
    value_names,
    with_envelope,
    with_feed,
)
from spark_kafka_sink.datasource.write.named_columns import (
    composed_columns,
    has_instants,
    header_columns,
)
from spark_kafka_sink.records.column_plan import ENVELOPE, ColumnPlan, ComposedColumns

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

_NONE_NAMED = NamedColumns()

#: The columns of a table that is created without a schema (``KprodDataSource.schema``).
CANONICAL_SCHEMA = (
    "key binary, value binary, topic string, partition int, "
    "headers array<struct<key:string,value:binary>>, timestamp timestamp"
)

TEXT_OR_BYTES = "string or binary"
HEADERS = "array<struct<key:string,value:binary>>, map<string,binary> or map<string,string>"
TIMESTAMP = "timestamp, timestamp_ntz or bigint (milliseconds since the epoch)"


def plan_columns(
    schema: StructType,
    topic: str | None,
    named: NamedColumns = _NONE_NAMED,
    log_topics: tuple[str, ...] = (),
    changes: ChangeOptions | None = None,
) -> ColumnPlan:
    """Finds and checks the columns of a DataFrame. Raises SchemaError with the message of Spark's
    sink.

    - ``topic`` is the option, or None.
    - ``named`` are the columns that options name for key, value and headers.
    - ``log_topics`` are the topics of commit logs, to which no row may be written.
    - ``changes`` has the options of a change feed, or is None.
    """
    # The order of the checks is Spark's: topic, key, value, headers, partition.
    topic = None if topic is None else topic.strip()
    feed = None if changes is None else feed_columns(schema, changes.log)
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
        timestamp_column=_timestamp_column(schema, named),
        value=_composed_value(schema, named, feed),
        key=_composed_key(schema, named, feed),
        headers=header_columns(schema, named.headers),
        on_null_value=named.on_null_value,
        log_topics=log_topics,
    )
    if plan.names_columns:
        _refuse_replaced_columns(schema, plan)
    whole = schema
    if feed is not None and changes is not None:
        plan, whole = _with_changes(schema, plan, named, changes.mode, feed)
    if plan.names_columns:
        plan = _with_json_options(whole, plan, named.json)
    _refuse_what_spark_cannot_ship(schema)
    return plan


def _with_json_options(schema: StructType, plan: ColumnPlan, options: JsonOptions) -> ColumnPlan:
    """Adds ``options`` to the key and to the value, if they are written as JSON. Raises ConfigError
    if the time zone of ``options`` is unknown, and a JSON key or value contains a timestamp or a
    variant.
    """
    parts = {name: getattr(plan, name) for name in ("key", "value")}
    json = {
        name: part
        for name, part in parts.items()
        if part is not None and part.format is ColumnFormat.JSON
    }
    columns = [column for part in json.values() for column in part.columns]
    if any(has_instants(schema.fields[column.index].dataType) for column in columns):
        time_zone(options.time_zone)
    changed: dict[str, Any] = {name: replace(part, json=options) for name, part in json.items()}
    return replace(plan, **changed)


def _timestamp_column(schema: StructType, named: NamedColumns) -> int | None:
    if named.timestamp_column is TimestampColumn.IGNORE:
        return None
    return _column(schema, "timestamp", _is_timestamp, TIMESTAMP)


def _with_changes(
    schema: StructType,
    plan: ColumnPlan,
    named: NamedColumns,
    mode: ChangelogMode,
    feed: FeedColumns,
) -> tuple[ColumnPlan, StructType]:
    """Adds the columns of a change feed to the plan. Returns the plan, and the schema of the
    batches in a task. This schema may have more columns than the DataFrame.
    """
    from pyspark.sql.types import StructType

    if mode is ChangelogMode.DEBEZIUM:
        feed = with_envelope(feed, schema, plan)
    plan = replace(plan, changes=feed.plan, keys_required=True)
    whole = with_feed(schema, feed)
    refuse_unstable_keys(whole, plan)
    refuse_other_keys(schema, feed, plan)
    refuse_cut_times(whole, plan, named.json)
    if feed.plan.envelope is not None:
        first = feed.plan.envelope_at
        envelope = StructType(whole.fields[first:])
        value = composed_columns(envelope, ENVELOPE, named.value_format, "valueColumns")
        plan = replace(plan, value=in_batch(value, first))
    return plan, whole


def _composed_value(
    schema: StructType, named: NamedColumns, feed: FeedColumns | None
) -> ComposedColumns | None:
    """Finds the columns of ``valueColumns``. Returns None if the option names no column. Raises
    SchemaError.
    """
    value = composed_columns(
        schema if feed is None else feed.rows,
        value_names(feed, named),
        named.value_format,
        "valueColumns",
        is_struct=named.value_is_struct,
    )
    return value if feed is None else in_batch(value, feed.first)


def _composed_key(
    schema: StructType, named: NamedColumns, feed: FeedColumns | None
) -> ComposedColumns | None:
    """Finds the columns of ``keyColumns``. Returns None if the option names no column. Raises
    SchemaError.
    """
    rows = schema if feed is None else feed.rows
    key = composed_columns(rows, named.key, named.key_format, "keyColumns")
    key = key if feed is None else in_batch(key, feed.first)
    if key is None or named.on_null_key is OnNullKey.WRITE:
        return key
    return replace(key, nulls_are_null=True)


def batch_schema(schema: StructType, plan: ColumnPlan) -> StructType:
    """The schema of a task's batches. These are the columns of the DataFrame. For a change feed,
    the schema also has the columns that the task appends.
    """
    if plan.changes is None:
        return schema
    feed = feed_columns(schema, plan.changes.changelog)
    return with_feed(schema, replace(feed, plan=plan.changes))


def with_keys_required(plan: ColumnPlan) -> ColumnPlan:
    """The plan for a compacted topic: a row without a key is an error, because brokers would reject
    the record (INVALID_RECORD). Raises SchemaError if the DataFrame has no column for the key.
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
    """Raises SchemaError if the DataFrame has a column ``value``, but valueColumns is set and does
    not name this column. Without this error, the sink would silently ignore the column.

    The same holds for keyColumns and ``key``, and for headersColumns and ``headers``.
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
    """The index of the first column called exactly ``name``. None if there is no such column.
    Raises SchemaError if the column has a wrong type.
    """
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
    """Advice on how to write a column that has a wrong type."""
    casts = f"cast it, or drop or rename the column {field.name}"
    if field.name == "timestamp":
        return f"{casts}, or set timestampColumn=ignore: records have the time of sending then"
    if field.name not in ("key", "value"):
        return casts
    fields = ".*" if field.name == "value" and field.dataType.typeName() == "struct" else ""
    return f"set {field.name}Columns={field.name}{fields} for JSON; or {casts}"


def _near_name(schema: StructType, name: str) -> str | None:
    """A hint for the missing column ``name``: another column has the same name in other letter
    case. None if there is no such column.
    """
    for field in schema.fields:
        if field.name.lower() == name:
            return f"column names are case-sensitive here: rename {field.name} to {name}"
    return None


def near_names(schema: StructType, plan: ColumnPlan) -> list[str]:
    """A warning for each column that is ignored because of its letter case, such as ``Key`` instead
    of ``key``. Spark's sink ignores these columns without a warning.
    """
    names = {field.name for field in schema.fields}
    named = {schema.names[i] for i in _named_indices(plan) if i < len(schema.names)}
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
    """Raises SchemaError for columns that Spark can't pass to a Python sink, because every task
    would fail.
    """
    from pyspark.sql.types import YearMonthIntervalType

    seen: set[str] = set()
    for field in schema.fields:
        if field.name in seen:
            raise SchemaError(
                f"column {field.name} occurs twice, and Spark can't pass both to a Python sink",
                hint="drop or rename one of them before writing",
            )
        seen.add(field.name)
        path = _doubled_field(field.dataType, field.name)
        if path is not None:
            raise SchemaError(
                f"field {safe_text(path, 300)} occurs twice in its struct, and Spark can't pass"
                " such a column to a Python sink",
                hint=f"rename one of the fields, or drop the column {safe_text(field.name)}; a"
                " join of structs or a struct(a.*, b.*) often makes two fields of one name",
            )
        if isinstance(field.dataType, YearMonthIntervalType):
            raise SchemaError(
                f"column {field.name} is of type {field.dataType.simpleString()}, which Spark "
                "can't pass to a Python sink",
                hint="select cast(column as string) in its place, or drop it before writing",
            )


def _doubled_field(data_type: DataType, path: str) -> str | None:
    """The path of a field that occurs twice in a struct within ``data_type``. None if there is no
    such field.
    """
    # For a user-defined type, Spark passes the type of its storage.
    data_type = data_type.sqlType() if hasattr(data_type, "sqlType") else data_type
    fields = getattr(data_type, "fields", ())
    names = [one.name for one in fields]
    inner = [(one.dataType, f"{path}.{one.name}") for one in fields]
    for of, below in (("elementType", "[]"), ("keyType", " (a key)"), ("valueType", "[]")):
        if hasattr(data_type, of):
            inner.append((getattr(data_type, of), f"{path}{below}"))
    twice = next((f"{path}.{name}" for name in names if names.count(name) > 1), None)
    return twice or next(filter(None, (_doubled_field(of, way) for of, way in inner)), None)


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
    """Whether the type is an array of headers or a map. As in Spark's ``sameType``, the names of
    fields are compared, but not their nullability.
    """
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

    if isinstance(data_type, MapType):
        # Users often write a map first (SPARK-29228), and map("a", "b") has string values.
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
