"""The interface through which the driver uses the payload formats with a schema.

The driver sends the result of :meth:`SchemaFormat.plan` to the tasks. There ``binary/encoder.py``
encodes columns with this result. This module does not import Arrow, and requests nothing from a
registry.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Protocol, TypeAlias

from spark_kafka_sink.records.formats.column_type import ColumnType
from spark_kafka_sink.records.nodes import Value

#: The schemas to which a schema refers, as pairs of name and text. The schema refers to another
#: schema by this name. In the tuple, a schema comes after the schemas that it needs itself.
References: TypeAlias = "tuple[tuple[str, str], ...]"


class SchemaFormat(Protocol):
    """A payload format with a schema, such as Avro. The methods have these arguments:

    * ``schema``: the text of the schema.
    * ``references``: the schemas to which this schema refers, as pairs of name and text.
    * ``column``: usually a struct of all columns. If it is not a struct, its value is the whole key
      or value of the record.
    """

    #: Its name in a registry's API.
    schema_type: ClassVar[str]
    #: Whether a payload may be a single value.
    has_bare: ClassVar[bool] = True

    def derive(self, column: ColumnType, name: str) -> str:
        """Derives a schema from columns. ``name`` is the name of the record in the schema. Raises
        SchemaError if the format has no type for a column's type.
        """
        ...

    def is_bare(self, schema: str, references: References = ()) -> bool:
        """True if ``schema`` describes a single value, such as a string, and not a record with
        fields.
        """
        return not self.name_of(schema, references)

    def name_of(self, schema: str, references: References = ()) -> str:
        """The full name of the record that ``schema`` describes. Empty if it describes no record.
        Raises SchemaError if the schema can't be parsed.
        """
        ...

    def indexes(self, schema: str, references: References = ()) -> bytes:
        """The bytes between the schema's id and the encoded value. For Protobuf, these bytes select
        the message in the schema. For all other formats, the result is empty.
        """
        del schema, references
        return b""

    def match(self, schema: str, column: ColumnType, references: References = ()) -> Value:
        """The encoding of ``column`` for ``schema``, without the id of the schema. Raises
        SchemaError if the column does not fit the schema.
        """
        ...

    def plan(
        self, schema: str, prefix: bytes, column: ColumnType, references: References = ()
    ) -> Value:
        """The encoding of a record's whole key or value: first the bytes ``prefix`` (with the
        schema's id), then ``column`` as in :meth:`match`.

        If ``column`` is null in a row, the whole key or value is null. Raises the same error as
        :meth:`match`.
        """
        value = self.match(schema, column, references)
        front = prefix + value.branch
        return replace(value, branch=front, null=front)
