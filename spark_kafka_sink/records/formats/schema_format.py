"""The interface of formats with a schema.

Owns: :class:`SchemaFormat` (on the driver). Never: a registry; Arrow (``binary/encoder.py``
executes in a task the plan that is made here).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Protocol, TypeAlias

from spark_kafka_sink.records.formats.column_type import ColumnType
from spark_kafka_sink.records.nodes import Value

#: Texts of the schemas that one refers to, each after its name there and after those that it needs.
References: TypeAlias = "tuple[tuple[str, str], ...]"


class SchemaFormat(Protocol):
    """A format. A schema is its text, with ``references`` to others; a ``column`` that is no struct
    is the whole payload.
    """

    #: Its name in a registry's API.
    schema_type: ClassVar[str]
    #: Whether a payload may be a single value.
    has_bare: ClassVar[bool] = True

    def derive(self, column: ColumnType, name: str) -> str:
        """The schema of columns that have none. SchemaError when there can't be one."""
        ...

    def is_bare(self, schema: str, references: References = ()) -> bool:
        """Whether payloads of ``schema`` are single values, without fields."""
        return not self.name_of(schema, references)

    def name_of(self, schema: str, references: References = ()) -> str:
        """The full name of its record, empty without one. SchemaError when it can't be read."""
        ...

    def indexes(self, schema: str, references: References = ()) -> bytes:
        """The bytes after the id, which name the part of ``schema`` that a payload is."""
        del schema, references
        return b""

    def match(self, schema: str, column: ColumnType, references: References = ()) -> Value:
        """How ``column`` is written. SchemaError when it does not fit."""
        ...

    def plan(
        self, schema: str, prefix: bytes, column: ColumnType, references: References = ()
    ) -> Value:
        """Like ``match``, for a whole payload, with ``prefix`` in front. A null is a null payload,
        whose bytes don't count.
        """
        value = self.match(schema, column, references)
        front = prefix + value.branch
        return replace(value, branch=front, null=front)
