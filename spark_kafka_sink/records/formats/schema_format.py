"""The interface of the payload formats with a schema.

Owns: :class:`SchemaFormat`, which the driver uses. Never: a registry; Arrow. In a task,
``binary/encoder.py`` encodes columns according to the plan that a format has made.
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

    A schema is given as its text, with ``references`` to the texts of other schemas. ``column`` is
    usually a struct of all columns. If it is not a struct, its value is the whole payload.
    """

    #: Its name in a registry's API.
    schema_type: ClassVar[str]
    #: Whether a payload may be a single value.
    has_bare: ClassVar[bool] = True

    def derive(self, column: ColumnType, name: str) -> str:
        """Derives a schema from columns. Raises SchemaError if the format has no type for a
        column's type.
        """
        ...

    def is_bare(self, schema: str, references: References = ()) -> bool:
        """True if payloads of ``schema`` are single values, without fields."""
        return not self.name_of(schema, references)

    def name_of(self, schema: str, references: References = ()) -> str:
        """The full name of the record that ``schema`` defines. Empty if it defines no record.
        Raises SchemaError for an unreadable schema.
        """
        ...

    def indexes(self, schema: str, references: References = ()) -> bytes:
        """The bytes between the schema id and the value in a payload. For Protobuf they identify
        the message of the schema. For other formats they are empty.
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
        """The encoding of a whole payload: ``prefix``, and then ``column``, encoded as
        :meth:`match` describes. A row whose ``column`` is null has no payload, so the encoding of a
        null does not matter.
        """
        value = self.match(schema, column, references)
        front = prefix + value.branch
        return replace(value, branch=front, null=front)
