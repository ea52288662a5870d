"""The roles of a DataFrame's columns, which the driver determines once and every task uses.

Owns: :class:`ColumnPlan`. Never: Arrow or numpy. Spark often starts new processes for planning and
committing. Only tasks need Arrow, and loading it would cost each of these processes half a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from spark_kafka_sink.config.named_columns import AS_TO_JSON, ColumnFormat, JsonOptions, OnNullValue

if TYPE_CHECKING:
    from spark_kafka_sink.config.changelog import Changelog
    from spark_kafka_sink.records.nodes import Value


#: The units of a column's intervals, which Arrow lacks: the units of their text, such as ``DAY TO
#: SECOND``; or the units of each inner column; None: the column has no interval.
IntervalUnits: TypeAlias = "str | tuple[IntervalUnits, ...] | None"


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column with its name in JSON or as a header's key. ``units`` are the units of its
    intervals.
    """

    name: str
    index: int
    units: IntervalUnits = None


@dataclass(frozen=True, slots=True)
class ComposedColumns:
    """Columns that together form a record's key or value.

    * ``is_struct``: true if the columns are the fields of a single struct column. A null struct is
      a null payload.
    * ``encoding``: the encoding for a format with a schema. If ``is_bare``, it encodes the value of
      the only column. Otherwise it encodes a struct of all columns.
    * ``header``: name and value of a header for each record whose payload is not null.
    * ``nulls_are_null``: true if a row whose columns are all null has a null payload.
    * ``json``: the options of JSON.
    * ``by_topic``: the encoding and header for each topic, in place of ``encoding`` and ``header``.
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
    """A column that orders changes, or the field at ``path`` within this column."""

    index: int
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Envelope:
    """The columns of a change's value in Debezium's form.

    ``columns`` are the fields of ``before`` and ``after``. ``source`` and ``time`` are the indexes
    of the columns in Spark's batch with the source and the time of a change. Each is None if there
    is no such column. ``name`` is the name that the sink writes to the field ``source``, if the
    sink creates this field.
    """

    columns: tuple[NamedColumn, ...]
    source: int | None = None
    time: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The roles of the columns of a change feed. Made once on the driver.

    * ``column``: the index of the column with the change types.
    * ``width``: the number of columns of Spark's batch.
    * ``images``: the two columns with the row before and the row after a change. None if Spark's
      batch has the row itself.
    * ``row_fields``: the number of fields of ``images``, which become columns after Spark's
      columns.
    * ``envelope``: the columns of Debezium's envelope, after the columns of ``row_fields``.

    The last column has the marks (``records/changes/``).
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
        """The index of the first of the envelope's five columns."""
        return self.width + self.row_fields

    @property
    def marks(self) -> int:
        """The index of the column with the marks."""
        return self.envelope_at + (0 if self.envelope is None else len(ENVELOPE))


#: Marks of a row of a change feed (``records/changes/``): it is a record; or its value is null.
ROW: Final = 0
TOMBSTONE: Final = 1
#: The fields of Debezium's envelope.
ENVELOPE: Final = ("before", "after", "source", "op", "ts_ms")


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The roles of the columns of the incoming Arrow batches: key, value and so on. Picklable.

    ``topic`` is the value of the option ``topic``, without surrounding blanks. If it is set, no
    topic column is read. The fields ``*_column`` are indexes of the batch's columns, or None if the
    DataFrame has no such column. The types are read from each batch, because Spark sends several
    Arrow types for one Spark type.

    ``key``, ``value`` and ``headers`` are the columns that an option names for this part of a
    record. The corresponding ``*_column`` is then None.

    * ``keys_required``: true if a null key is an error, because brokers would reject its record.
    * ``log_topics``: the topics of the commit log, which accept no rows.
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
        """True if options name columns. A task then needs more memory than for the batch alone."""
        return bool(self.value or self.key or self.headers)
