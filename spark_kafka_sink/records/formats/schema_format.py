"""The seam of formats with a schema: what each is asked for.

Owns: :class:`SchemaFormat` (on the driver, without Arrow), the bytes before a payload, and
:class:`PayloadPlan`, the ``PayloadEncoder`` that travels to the tasks. Never: a registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol
from uuid import UUID

from spark_kafka_sink.records.formats.binary.nodes import Value
from spark_kafka_sink.records.formats.column_type import ColumnType

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.records.payloads import Payloads


def wire_prefix(schema_id: int) -> bytes:
    """Confluent's: a zero, and the id, big endian."""
    return b"\x00" + schema_id.to_bytes(4, "big")


def header_value(guid: UUID) -> bytes:
    """Confluent's, in a header: a one, and the GUID."""
    return b"\x01" + guid.bytes


@dataclass(frozen=True, slots=True)
class PayloadPlan:
    """How a key or value is written: ``prefix``, then ``value``."""

    prefix: bytes
    value: Value

    def encode(self, column: pa.Array, path: str) -> Payloads:
        """As ``PayloadEncoder`` says. Arrow is loaded here, in a task."""
        from spark_kafka_sink.records.formats.binary.encoder import payloads_of

        return payloads_of(self.prefix, self.value, column, path)


class SchemaFormat(Protocol):
    """One format. A schema is its text; a ``column`` that is no struct is a payload by itself.
    ``name`` chooses a record of a schema that may have several.
    """

    name: str | None
    #: Its name in a registry's API.
    schema_type: ClassVar[str]
    #: Whether a payload may be a single value.
    has_bare: ClassVar[bool] = True

    def __init__(self, name: str | None = None) -> None:
        self.name = name

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

    def plan(self, schema: str, prefix: bytes, column: ColumnType) -> PayloadPlan:
        """How ``column`` is written, ``prefix`` in front. SchemaError when it does not fit."""
        ...
