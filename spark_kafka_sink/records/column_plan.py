"""The roles of a DataFrame's columns: which column is the key, the value and so on. The driver
determines the roles once, and every task uses them.

This module does not import Arrow or numpy. Spark often starts a new process for planning or
committing. Such a process does not need Arrow, and loading Arrow would take half a second.
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
    """A column, with the name of its field in JSON or the name of its header. ``index`` is its
    index in Spark's batch.

    ``units`` are the units of its intervals, such as ``DAY TO SECOND``. None if the column has no
    intervals.
    """

    name: str
    index: int
    units: IntervalUnits = None


@dataclass(frozen=True, slots=True)
class ComposedColumns:
    """The columns that together form a record's key or value, and the form of this key or value.

    * ``columns``: the columns, in the order of the fields in the key or value.
    * ``format``: the format of the key or value, such as JSON, Avro or text.
    * ``is_struct``: true if the key or value has the fields of a struct column. This struct is then
      the only column. If the struct is null, the key or value is null.
    * ``encoding``: how to encode the columns, for a format with a schema. If ``is_bare`` is true,
      ``encoding`` is for the value of the only column. Otherwise it is for a struct with all
      columns.
    * ``header``: the name and the value of a header. A record gets this header if its key or value
      from these columns is not null.
    * ``nulls_are_null``: if true and all columns are null, the key or value is null.
    * ``json``: the options for JSON.
    * ``by_topic``: if each topic has its own schema, pairs of a topic and the columns for this
      topic. ``encoding`` and ``header`` are then not used.
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
    """A column with values that order the changes of a change feed. If ``path`` is not empty, the
    values of a field inside of the column order the changes: ``("lsn",)`` is the field ``lsn`` of
    the column.
    """

    index: int
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Envelope:
    """The columns from which the sink builds Debezium's envelope of a change.

    ``columns`` are the table's columns, which become the fields of ``before`` and ``after``.
    ``source`` and ``time`` are the indexes of the columns with the source and the time of the
    change, or None if the feed has no such column. If ``source`` is None, the sink makes the field
    ``source`` of the envelope, and writes ``name`` into it.
    """

    columns: tuple[NamedColumn, ...]
    source: int | None = None
    time: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The roles of a change feed's columns. The driver determines the roles once.

    In a task, the sink appends columns to the columns of Spark's batch, in this order: the fields
    of the row (``row_fields``), the five columns of Debezium's envelope, and the column of marks.
    If ``envelope`` is None, there are no columns of an envelope. A *mark* shows what becomes of a
    row: a record, a tombstone, or no record, because the row can't be sent.

    * ``column``: the index of the column with the types of changes.
    * ``width``: the number of columns of Spark's batch.
    * ``order``: the columns that order the changes.
    * ``images``: the indexes of two struct columns: the row from before a change, and the row from
      after the change. None if the columns of Spark's batch are the table's columns.
    * ``row_fields``: the number of fields of each of the two structs. 0 if ``images`` is None.
    * ``envelope``: the columns of the envelope. None if the sink writes no envelopes.
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
        """The index of the last column, which has the mark of each row: a number that means a
        record, a tombstone, or the reason why the row can't be sent.
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

    ``topic`` is the option ``topic``, without blanks around it. If this option is set, a column
    ``topic`` is not used. The fields ``*_column`` are indexes of columns, or None if the DataFrame
    has no such column. The types of the columns are not in the plan, because Spark can send the
    same Spark type as different Arrow types.

    If an option such as ``keyColumns`` names the columns for a part of the record, ``key``,
    ``value`` or ``headers`` has these columns. In this case, ``key_column``, ``value_column`` or
    ``headers_column`` is None.

    * ``on_null_value``: the treatment of rows with a null value.
    * ``keys_required``: true if a null key is an error. This is so for a change feed, and for a
      compacted topic, in which brokers reject records without a key.
    * ``log_topics``: the topics of commit logs. A row with such a topic is an error.
    * ``changes``: the plan of a change feed. None if the rows are not changes.
    """

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
