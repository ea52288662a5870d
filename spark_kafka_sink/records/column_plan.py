"""The roles of a DataFrame's columns: which column is the key, the value and so on. The driver
determines the roles once, and every task uses them.

This module does not import Arrow or numpy. Spark often starts a new process for planning or
committing. Without Arrow, such a process starts half a second earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from spark_kafka_sink.config.named_columns import AS_TO_JSON, ColumnFormat, JsonOptions, OnNullValue

if TYPE_CHECKING:
    from spark_kafka_sink.config.changelog import Changelog
    from spark_kafka_sink.records.nodes import Value


#: The units of a column's intervals. Spark's type of the column has the units, and Arrow's type has
#: not. A str has the units of an interval, such as ``DAY TO SECOND``. A tuple has the units of each
#: column inside of a struct, list or map. If the value is None, the column has no interval.
IntervalUnits: TypeAlias = "str | tuple[IntervalUnits, ...] | None"


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column that an option names.

    * ``name``: the name of the column, as the option writes it. The column's field in the key or
      value, or the column's header, has this name.
    * ``index``: the index of the column in Spark's batch.
    * ``units``: the units of the column's intervals, such as ``DAY TO SECOND``. None if the column
      has no intervals.
    """

    name: str
    index: int
    units: IntervalUnits = None


@dataclass(frozen=True, slots=True)
class ComposedColumns:
    """The columns that together form a record's key or value, and the format of this key or value.

    * ``columns``: the columns, in the order of the fields in the key or value.
    * ``format``: the format, such as JSON, Avro or text.
    * ``is_struct``: true if the only column is a struct, and the key or value has the fields of
      this struct. If the struct is null, the key or value is null.
    * ``encoding``: for a format with a schema, how to encode the columns.
    * ``is_bare``: true if ``encoding`` encodes the only column itself, for example with
      ``is_struct``. If it is false, ``encoding`` encodes a struct with all columns.
    * ``header``: the name and the value of a header for the record. The record gets it if the key
      or value is not null.
    * ``nulls_are_null``: true if the key or value is null when all columns are null.
    * ``json``: the options for JSON.
    * ``by_topic``: if each topic has its own schema, pairs of a topic and the columns for this
      topic. Then ``encoding`` and ``header`` are not used.
    """

    columns: tuple[NamedColumn, ...]
    format: ColumnFormat = ColumnFormat.JSON
    is_struct: bool = False
    encoding: Value | None = None
    is_bare: bool = False
    header: tuple[str, bytes] | None = None
    nulls_are_null: bool = False
    json: JsonOptions = AS_TO_JSON
    by_topic: tuple[tuple[str, ComposedColumns], ...] = ()


@dataclass(frozen=True, slots=True)
class OrderColumn:
    """A column that determines the order of the changes in a change feed.

    If ``path`` is not empty, the order is determined by a field inside of the column. The path
    ``("lsn",)`` means the column's field ``lsn``.
    """

    index: int
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Envelope:
    """The columns from which the sink builds Debezium's envelope of a change.

    * ``columns``: the table's columns, which become the fields of ``before`` and ``after``.
    * ``source``: the index of the column with the source of the change. If it is None, the sink
      makes the envelope's field ``source`` itself.
    * ``name``: the value of ``source.name`` in the envelope. Used only if ``source`` is None.
    * ``time``: the index of the column with the time of the change. None if the feed has no such
      column.
    """

    columns: tuple[NamedColumn, ...]
    source: int | None = None
    time: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The roles of a change feed's columns. The driver determines the roles once.

    * ``column``: the index of the column with the types of changes.
    * ``width``: the number of columns of Spark's batch.
    * ``order``: the columns that determine the order of the changes.
    * ``images``: the indexes of two struct columns: the row from before a change, and the row from
      after the change. None if the columns of Spark's batch are the table's columns.
    * ``row_fields``: the number of fields of each of the two structs. 0 if ``images`` is None.
    * ``envelope``: the columns of Debezium's envelope. None if the sink writes no envelopes.

    In a task, the sink appends columns to Spark's batch, in this order:

    1. a column for each field of the row (``row_fields``)
    2. the five columns of Debezium's envelope, if ``envelope`` is not None
    3. the column of marks (``records/changes/marks.py``)
    """

    changelog: Changelog
    column: int
    width: int
    order: tuple[OrderColumn, ...] = ()
    images: tuple[int, int] | None = None
    row_fields: int = 0
    envelope: Envelope | None = None

    @property
    def envelope_at(self) -> int:
        """The index of the first of the five columns of Debezium's envelope. These columns come
        after the fields of the row.
        """
        return self.width + self.row_fields

    @property
    def marks(self) -> int:
        """The index of the column of marks. A mark is a number that shows whether the row becomes a
        record with a value or a tombstone, or why the row can't be sent.
        """
        return self.envelope_at + (0 if self.envelope is None else len(ENVELOPE))


#: Marks of a row of a change feed (``records/changes/``): the row becomes a record with a value, or
#: a tombstone.
ROW: Final = 0
TOMBSTONE: Final = 1
#: The fields of Debezium's envelope.
ENVELOPE: Final = ("before", "after", "source", "op", "ts_ms")


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The roles of the columns in Spark's Arrow batches: key, value, topic and so on. Picklable.

    * ``topic``: the option ``topic``, without blanks around it. If it is set, a column ``topic`` is
      not used.
    * ``topic_column``, ``key_column`` and so on: the index of the column with the topics, the keys
      and so on. None if there is no such column, or if the column is not used.
    * ``key``, ``value``, ``headers``: the columns that are named by the options keyColumns,
      valueColumns and headersColumns. If keyColumns is set, ``key_column`` is None. The same holds
      for the other two options.
    * ``on_null_value``: the treatment of rows with a null value.
    * ``keys_required``: true if a row with a null key can't be sent. It is true for a change feed
      and for a compacted topic.
    * ``log_topics``: the topics of commit logs. A row with such a topic can't be sent.
    * ``changes``: the plan of a change feed. None if the rows are not changes.
    """

    # The types of the columns are not here: Spark can send one Spark type as different Arrow types.
    topic: str | None = None
    value_column: int | None = None
    key_column: int | None = None
    topic_column: int | None = None
    headers_column: int | None = None
    partition_column: int | None = None
    timestamp_column: int | None = None
    value: ComposedColumns | None = None
    key: ComposedColumns | None = None
    headers: tuple[NamedColumn, ...] = ()
    on_null_value: OnNullValue = OnNullValue.TOMBSTONE
    keys_required: bool = False
    log_topics: tuple[str, ...] = ()
    changes: ChangePlan | None = None

    @property
    def names_columns(self) -> bool:
        """True if options such as ``valueColumns`` name columns. In this case, the task builds keys
        or values from columns, and needs memory for them in addition to the batch.
        """
        return bool(self.value or self.key or self.headers)
