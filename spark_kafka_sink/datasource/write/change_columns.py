"""Finds the columns of a change feed in a DataFrame's schema, on the driver.

A *change feed* is a DataFrame with the changes of a table (option ``changelog``).
``config/changelog.py`` has the names of its columns. The tasks process the changes
(``records/changes/``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import SchemaError, coded, safe_text
from spark_kafka_sink.config.changelog import (
    KEYS_OF_UPSERTS,
    Changelog,
    source_position,
    unstable_type,
)
from spark_kafka_sink.config.named_columns import (
    ALL_COLUMNS,
    ColumnFormat,
    JsonOptions,
    NamedColumns,
)
from spark_kafka_sink.records.bad_rows.topic_limits import TopicLimits
from spark_kafka_sink.records.column_plan import (
    ENVELOPE,
    ChangePlan,
    ColumnPlan,
    ComposedColumns,
    Envelope,
    OrderColumn,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

_SOURCE = "source"


@dataclass(frozen=True, slots=True)
class FeedColumns:
    """The columns of a change feed: a DataFrame with the changes of a table (option ``changelog``).

    There are two kinds of feeds. In a feed without structs, the columns of the table are columns of
    the DataFrame, beside the feed's own columns, such as the type of a change. In a feed with the
    structs ``before`` and ``after``, each struct has the columns of the table as its fields. For
    such a feed, a task appends the fields of both structs as columns to each of Spark's batches.

    - ``plan`` has the indices of the feed's own columns.
    - ``rows`` is the schema whose columns the options keyColumns and valueColumns may name: the
      DataFrame's schema, or with structs, the schema of a struct.
    - ``first`` is the index of the first column of ``rows`` in a task's batch: 0, or with structs,
      the number of columns of Spark's batch.
    """

    plan: ChangePlan
    rows: StructType
    first: int

    @property
    def all_columns(self) -> tuple[str, ...]:
        """The names of the table's columns, without the columns that the feed adds. The option
        ``valueColumns=*`` means these columns.
        """
        log = self.plan.changelog
        feed = set() if log.images is not None else {log.column, *log.metadata}
        return tuple(name for name in self.rows.names if name not in feed)


def in_batch(part: ComposedColumns | None, first: int) -> ComposedColumns | None:
    """Adds ``first`` to the index of each column of a key or value. ``part`` counts the columns
    from 0, but in a task's batch they begin at ``first``. Returns None if ``part`` is None.
    """
    if part is None or not first:
        return part
    columns = (replace(column, index=column.index + first) for column in part.columns)
    return replace(part, columns=tuple(columns))


def feed_columns(schema: StructType, log: Changelog) -> FeedColumns:
    """Finds the columns of a change feed in ``schema``. ``log`` describes the feed. Raises
    SchemaError if a column is missing or has a wrong type.
    """
    _refuse_other_cases(schema, log)
    column = _index(schema, log.column, "the type of each change")
    if schema[column].dataType.typeName() not in ("string", "char", "varchar"):
        found = schema[column].dataType.simpleString()
        raise SchemaError(
            f"changelog: column {safe_text(log.column)} is of type {safe_text(found)}, and the type"
            " of a change is a string",
            hint="cast it, or name another column in the option changelog",
            kind=Kind.COLUMN_TYPE,
        )
    plan = ChangePlan(log, column, len(schema.fields), _order(schema, log))
    if log.images is None:
        return FeedColumns(plan, schema, 0)
    indices = tuple(_index(schema, name, "the row of a change") for name in log.images)
    types = [schema[index].dataType for index in indices]
    for name, one in zip(log.images, types, strict=True):
        if one.typeName() != "struct":
            raise SchemaError(
                f"changelog: column {safe_text(name)} is of type {safe_text(one.simpleString())},"
                " and the row of a change is a struct",
                hint="read the envelope with from_json and the table's columns as a schema",
                kind=Kind.COLUMN_TYPE,
            )
    if types[0].simpleString() != types[1].simpleString():
        raise SchemaError(
            f"changelog: columns {' and '.join(log.images)} differ in their types",
            hint="read both with one schema, that of the table",
            kind=Kind.COLUMN_TYPE,
        )
    row = cast("StructType", types[1])
    plan = replace(plan, images=(indices[0], indices[1]), row_fields=len(row.fields))
    return FeedColumns(plan, row, plan.width)


def with_feed(schema: StructType, feed: FeedColumns) -> StructType:
    """Returns ``schema`` with more columns at its end: the columns that a task computes for each
    batch of a change feed. These are, in this order:

    - If the feed has the rows of the table in the structs ``before`` and ``after``: the fields of
      these structs. Both structs have the same fields, so there is one column for each field.
    - If the values of the records are Debezium envelopes: the fields of an envelope.
    """
    from pyspark.sql.types import LongType, StringType, StructType

    # (The task also appends a column that marks unusable changes. This column is not in the result,
    # because no option can name it.)
    made = StructType(list(schema.fields))
    if feed.first:
        for field in feed.rows.fields:
            made.add(field.name, field.dataType, nullable=True)
    envelope = feed.plan.envelope
    if envelope is not None:
        row = StructType()
        for column in envelope.columns:
            row.add(column.name, made[column.index].dataType, nullable=True)
        source = _source_type() if envelope.source is None else made[envelope.source].dataType
        types = (row, row, source, StringType(), LongType())
        for name, of in zip(ENVELOPE, types, strict=True):
            made.add(name, of, nullable=name != "op")
    return made


def _source_type() -> StructType:
    from pyspark.sql.types import LongType, StringType, StructType

    text = StringType()
    made = StructType().add("version", text).add("connector", text).add("name", text)
    return made.add("ts_ms", LongType()).add("sequence", text)


def with_envelope(feed: FeedColumns, schema: StructType, plan: ColumnPlan) -> FeedColumns:
    """Adds Debezium's envelope to the feed, so that the value of each record becomes an envelope.
    The fields ``before`` and ``after`` of an envelope contain the columns that ``plan`` has for the
    value.
    """
    assert plan.value is not None
    log = feed.plan.changelog
    names = schema.names
    own = log.images is not None and _SOURCE in names
    time = log.time if log.time in names else None
    envelope = Envelope(
        plan.value.columns,
        source=names.index(_SOURCE) if own else None,
        time=None if time is None else names.index(time),
        name=plan.topic or "",
    )
    return replace(feed, plan=replace(feed.plan, envelope=envelope))


def value_names(feed: FeedColumns | None, named: NamedColumns) -> tuple[str, ...]:
    """The names of the columns in the option ``valueColumns``. With a change feed, ``*`` stands for
    the columns of the table, without the columns of the feed.
    """
    if feed is None or named.value != (ALL_COLUMNS,):
        return named.value
    return feed.all_columns


def refuse_unstable_keys(schema: StructType, plan: ColumnPlan) -> None:
    """Raises SchemaError if a change feed has no key columns.

    Also raises SchemaError if equal values of a key column can have different bytes. For example, a
    delete of 0.0 would not find a record with the key -0.0, although both are equal.
    """
    if plan.key is None and plan.key_column is None:
        raise SchemaError(
            "changelog is set, and no column is the key of a record, by which a delete finds it",
            hint="name the table's primary key in keyColumns",
            kind=Kind.NULL_KEY,
        )
    if plan.key is None:
        return
    for column in plan.key.columns:
        found = unstable_type(schema[column.index].dataType)
        if found is not None:
            raise SchemaError(
                f"keyColumns: column {safe_text(column.name)} holds a {found}, and equal values of"
                " this type are not always the same bytes, so a delete may not find its record",
                hint="name other columns, or cast it to decimal, or to string without a collation",
                kind=Kind.COLUMN_TYPE,
            )


def refuse_cut_times(schema: StructType, plan: ColumnPlan, json: JsonOptions) -> None:
    """Raises SchemaError if a JSON key contains a timestamp that JSON shortens to milliseconds.

    Without this error, two rows of the table with different keys could have the same key in the
    topic.
    """
    if plan.key is None or plan.key.format is not ColumnFormat.JSON:
        return
    formats = {
        "timestamp": ("jsonTimestampFormat", json.timestamp_format, "XXX"),
        "timestamp_ntz": ("jsonTimestampNtzFormat", json.timestamp_ntz_format, ""),
    }
    for column in plan.key.columns:
        text = schema[column.index].dataType.simpleString()
        for name, (option, given, zone) in formats.items():
            if given is None and name in re.split(r"\W+", text):
                raise SchemaError(
                    f"keyColumns: column {safe_text(column.name)} holds a {name}, which JSON cuts"
                    " to milliseconds, so two keys of the table may be one key of the topic",
                    hint=f"set {option}=yyyy-MM-dd'T'HH:mm:ss.SSSSSS{zone}, or another keyFormat",
                    kind=Kind.COLUMN_TYPE,
                )


def refuse_other_keys(schema: StructType, feed: FeedColumns, plan: ColumnPlan) -> None:
    """Raises SchemaError if the keys in the call of ``upserts`` differ from the columns in the
    option keyColumns.

    ``upserts`` stores the names of its keys in the metadata of columns. Without this metadata,
    nothing is compared. A renamed column keeps the metadata, and a cast removes it.
    """
    given = _keys_of_upserts(schema[feed.plan.column])
    if plan.key is None or not given:
        return
    # The metadata is on each key column and on the column with the change type. All must agree. If
    # the result of upserts was written to a table, the key columns of a feed of this table still
    # have the metadata. But the column with the change type is new there, so nothing is compared.
    images = feed.plan.images
    marked = schema.fields if images is None else [schema[images[1]]]
    marks = {one.name for one in marked if _keys_of_upserts(one) == given}
    names = set(given) if images is not None else marks - {feed.plan.changelog.column}
    if not marks or len(names) != len(given):
        return
    columns = {column.name for column in plan.key.columns}
    if {name.lower() for name in names} != {name.lower() for name in columns}:
        raise SchemaError(
            f"keyColumns names {safe_text(', '.join(sorted(columns)), 200)}, and upserts has kept"
            f" the last change of each {safe_text(', '.join(sorted(names)), 200)}: the topic would"
            " keep rows that the table does not have, or lose rows",
            hint="give keyColumns and the keys of upserts the same columns",
            kind=Kind.OTHER_KEYS,
        )


def _keys_of_upserts(field: StructField) -> list[str]:
    """The names of the keys that ``upserts`` has put into the metadata of the column. Empty if
    there are none.
    """
    found: list[str] = (field.metadata or {}).get(KEYS_OF_UPSERTS, [])
    return found


def _refuse_other_cases(schema: StructType, log: Changelog) -> None:
    """Raises SchemaError if a column has the name of one of the feed's columns in other letter
    case, such as ``_Change_Type``. The sink would treat that column as a column of the table.
    """
    columns = (log.column, *log.metadata, *(name.split(".")[0] for name in log.order))
    for name in columns:
        other = next((one for one in schema.names if one.lower() == name.lower()), name)
        if name not in schema.names and other != name:
            raise SchemaError(
                f"changelog: the feed has the column {safe_text(name)}, and the DataFrame has"
                f" {safe_text(other)}",
                hint=f"rename it to {safe_text(name)}",
                kind=Kind.NO_SUCH_COLUMN,
            )


def not_compacted(topic: str | None, limits: Mapping[str, TopicLimits]) -> list[str]:
    """A list with a warning if ``topic`` is not compacted: in such a topic, brokers keep the old
    records of a key. The list is empty if the topic is compacted, or if its configs are unknown.
    """
    found = limits.get(topic or "")
    if found is None or found.compacted:
        return []
    return [
        coded(
            Kind.NOT_COMPACTED,
            f"topic {topic} gets the changes of a table and is not compacted (cleanup.policy):"
            " brokers delete the rows of the table when the topic's retention ends, and keep old"
            " rows until then",
            "set cleanup.policy=compact on the topic",
        )
    ]


def _index(schema: StructType, name: str, what: str) -> int:
    if name not in schema.names:
        raise SchemaError(
            f"changelog needs a column {safe_text(name)}, {what}, and the DataFrame has none",
            hint=f"the DataFrame has {safe_text(', '.join(schema.names), 200)}; read the whole"
            " feed, or describe it in JSON",
            kind=Kind.NO_SUCH_COLUMN,
        )
    return schema.names.index(name)


def _order(schema: StructType, log: Changelog) -> tuple[OrderColumn, ...]:
    """The columns that order the changes of a feed. If one of these columns is missing in the
    DataFrame, the result is empty, and the task does not check the order.
    """
    names = schema.names
    if log.images is not None and not log.order and _SOURCE in names:
        fields = getattr(schema[_SOURCE].dataType, "names", [])
        index = names.index(_SOURCE)
        return tuple(OrderColumn(index, (field,)) for field in source_position(fields))
    found = []
    for name in log.order:
        column, *path = name.split(".") if name not in names else (name,)
        if column not in names:
            return ()
        found.append(OrderColumn(names.index(column), tuple(path)))
    return tuple(found)
