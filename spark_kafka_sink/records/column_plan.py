"""The roles of a DataFrame's columns: made once on the driver, used by every task.

Owns: :class:`ColumnPlan`. Never: Arrow or numpy. The processes that plan and commit for Spark start
cold again and again. To load Arrow, which only tasks need, would cost each of them half a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from spark_kafka_sink.config.changelog import Changelog
from spark_kafka_sink.config.named_columns import AS_TO_JSON, ColumnFormat, JsonOptions, OnNullValue

if TYPE_CHECKING:
    from spark_kafka_sink.records.nodes import Value


#: The units of a column's intervals, which Arrow lacks: the units of their text, such as ``DAY TO
#: SECOND``; or the units of each inner column; None: the column has no interval.
IntervalUnits: TypeAlias = "str | tuple[IntervalUnits, ...] | None"


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column, and its name as written in JSON or as a header's key. ``units`` are the units of
    its intervals.
    """

    name: str
    index: int
    units: IntervalUnits = None


@dataclass(frozen=True, slots=True)
class ComposedColumns:
    """Columns that together are a record's key or value.

    ``is_struct``: they are the fields of the only column, a struct; a null struct is a null
    payload. ``encoding``: the encoding of a format with a schema, for the only column if
    ``is_bare``, otherwise for a struct of all. ``header``: name and value of the header of each
    record whose payload is not null. ``nulls_are_null``: a row whose columns are all null has a
    null payload. ``json``: the options of JSON. ``by_topic``: by topic, the encoding and header
    that replace ``encoding`` and ``header``.
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
    """A column, or the field of a struct at ``path`` below it, that orders changes."""

    index: int
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Envelope:
    """The parts of a change's value in Debezium's form: ``columns`` of the row, which are the
    fields of ``before`` and ``after``; the columns of Spark's batch with ``source`` and the time of
    a change (None: no column); and the ``name`` in a source that is made here.
    """

    columns: tuple[NamedColumn, ...]
    source: int | None = None
    time: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The roles of the columns of a change feed. ``column`` holds the types of changes, ``images``
    the row before and after one, whose fields are ``row_fields`` columns after the ``width``
    columns of Spark's batch; None: the row is Spark's.

    Made once on the driver. A batch has the columns of ``envelope`` after these, and in its last
    column marks (``records/changes/``).
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
        """The index of the first column of the envelope, which has five."""
        return self.width + self.row_fields

    @property
    def marks(self) -> int:
        """The index of the column of marks."""
        return self.envelope_at + (0 if self.envelope is None else len(ENVELOPE))


#: Marks of a row of a change feed (``records/changes/``): it is a record; or its value is null.
ROW: Final = 0
TOMBSTONE: Final = 1
#: The fields of Debezium's envelope.
ENVELOPE: Final = ("before", "after", "source", "op", "ts_ms")


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The roles of the incoming Arrow batches' columns: key, value etc. Picklable; no Arrow.

    ``topic`` is the option (trimmed); when it is set, no topic column is read. The other fields are
    indices into the batch's columns, or None when the DataFrame has no such column. The types are
    read from each batch (Spark sends several Arrow types for one Spark type).

    ``key``, ``value`` and ``headers`` are the columns that options name for that field; the field's
    own column is None then.

    ``keys_required``: a null key is an error, because brokers would refuse its row. ``log_topics``
    are the topics of the commit log, which accept no rows. ``changes``: the rows are those of a
    change feed.
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
        """Whether options name columns, which needs memory in addition to the batch's."""
        return bool(self.value or self.key or self.headers)
