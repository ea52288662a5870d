"""The interface of the payload formats with a schema.

Owns: :class:`SchemaFormat` (on the driver). Never: a registry; Arrow. In a task,
``binary/encoder.py`` encodes as the plan from here describes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Protocol, TypeAlias

from spark_kafka_sink.records.formats.column_type import ColumnType
from spark_kafka_sink.records.nodes import Value

#: Texts of the schemas that one refers to, each after its name there and after those that it needs.
References: TypeAlias = "tuple[tuple[str, str], ...]"


class SchemaFormat(Protocol):
    """A payload format with a schema.

    A schema is its text, with ``references`` to the texts of other schemas. A ``column`` that is
    not a struct is the whole payload.
    """

    #: Its name in a registry's API.
    schema_type: ClassVar[str]
    #: Whether a payload may be a single value.
    has_bare: ClassVar[bool] = True

    def derive(self, column: ColumnType, name: str) -> str:
        """A schema for columns that have no schema yet. Raises SchemaError if a column's type has
        no counterpart.
        """
        ...

    def is_bare(self, schema: str, references: References = ()) -> bool:
        """True if payloads of ``schema`` are single values, without fields."""
        return not self.name_of(schema, references)

    def name_of(self, schema: str, references: References = ()) -> str:
        """The full name of the record that ``schema`` defines; empty if it defines no record.
        Raises SchemaError for an unreadable schema.
        """
        ...

    def indexes(self, schema: str, references: References = ()) -> bytes:
        """The bytes after the schema id in a payload. For Protobuf they identify the message of the
        schema.
        """
        del schema, references
        return b""

    def match(self, schema: str, column: ColumnType, references: References = ()) -> Value:
        """The encoding of ``column`` by ``schema``. Raises SchemaError if the column does not
        fit.
        """
        ...

    def plan(
        self, schema: str, prefix: bytes, column: ColumnType, references: References = ()
    ) -> Value:
        """Like :meth:`match`, for a whole payload with ``prefix`` before it. The payload of a null
        is null, so its bytes do not matter.
        """
        value = self.match(schema, column, references)
        front = prefix + value.branch
        return replace(value, branch=front, null=front)
