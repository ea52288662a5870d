"""The seam of formats with a schema: what each is asked for.

Owns: :class:`SchemaFormat` (on the driver). Never: a registry; Arrow (``binary/encoder.py`` follows
in a task what is planned here).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Protocol

from spark_kafka_sink.records.formats.column_type import ColumnType
from spark_kafka_sink.records.nodes import Value


class SchemaFormat(Protocol):
    """One format. A schema is its text; a ``column`` that is no struct is a payload by itself."""

    #: Its name in a registry's API.
    schema_type: ClassVar[str]
    #: Whether a payload may be a single value.
    has_bare: ClassVar[bool] = True

    def derive(self, column: ColumnType, name: str) -> str:
        """The schema of columns that have none. SchemaError when there can't be one."""
        ...

    def is_bare(self, schema: str) -> bool:
        """Whether payloads of ``schema`` are single values, without fields."""
        return not self.name_of(schema)

    def name_of(self, schema: str) -> str:
        """The full name of its record, empty without one. SchemaError when it can't be read."""
        ...

    def indexes(self, schema: str) -> bytes:
        """What says behind the id which part of ``schema`` a payload is."""
        del schema
        return b""

    def match(self, schema: str, column: ColumnType) -> Value:
        """How ``column`` is written. SchemaError when it does not fit."""
        ...

    def plan(self, schema: str, prefix: bytes, column: ColumnType) -> Value:
        """As ``match``, for a whole payload, ``prefix`` in front. A null is a null payload, whose
        bytes don't count.
        """
        value = self.match(schema, column)
        front = prefix + value.branch
        return replace(value, branch=front, null=front)
