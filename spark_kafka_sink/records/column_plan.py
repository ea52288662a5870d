"""Which column of a DataFrame is what: made once on the driver, used by every task.

Owns: :class:`ColumnPlan`. Never: Arrow or numpy. The processes in which Spark plans and commits
start cold again and again, and loading what only tasks need would cost each of them half a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink.config.named_columns import ColumnFormat, OnNullValue

if TYPE_CHECKING:
    from spark_kafka_sink.records.nodes import Value


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column, and how its name is written in JSON or as a header's key."""

    name: str
    index: int


@dataclass(frozen=True, slots=True)
class ComposedColumns:
    """Columns that together are a record's key or value. ``is_struct``: the only one is a struct
    whose fields they are; a null of it is a null payload. ``encoding``: how a format with a schema
    writes the only one if ``is_bare``, else a struct of all. ``header``: name and value of what
    each record has beside a payload that is not null.
    """

    columns: tuple[NamedColumn, ...]
    format: ColumnFormat = ColumnFormat.JSON
    is_struct: bool = False
    encoding: Value | None = None
    is_bare: bool = False
    header: tuple[str, bytes] | None = None


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """Which column of the incoming Arrow batches is the key, the value etc. Picklable; no Arrow.

    ``topic`` is the option (trimmed); when set, no topic column is read. The others are indices
    into the batch's columns, or None when the DataFrame has no such column. The types are read
    from each batch (Spark sends several Arrow types for one Spark type).

    ``key``, ``value`` and ``headers`` are the columns that options name for that field; the field's
    own column is None then.

    ``keys_required``: a null key is an error, because brokers would refuse its row.
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

    @property
    def names_columns(self) -> bool:
        """Whether options name columns, which needs memory in addition to the batch's."""
        return bool(self.value or self.key or self.headers)
