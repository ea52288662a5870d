"""Protobuf behind the seam of formats. Owns: :class:`ProtobufFormat` and its plan. Never: a
registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.protobuf.proto_match import match_message
from spark_kafka_sink.records.formats.protobuf.proto_nodes import Message
from spark_kafka_sink.records.formats.protobuf.proto_schema import (
    derived_schema,
    file_descriptor,
    message_of,
)
from spark_kafka_sink.records.varint import varint

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.records.payloads import Payloads


@dataclass(frozen=True, slots=True)
class ProtobufPlan:
    """How columns are written: ``prefix``, which has the message's indexes, then ``message``."""

    prefix: bytes
    message: Message
    bare: bool

    def encode(self, columns: Sequence[pa.Array], rows: int, path: str) -> Payloads:
        """One payload for each row."""
        del path
        from spark_kafka_sink.records.formats.arrow_values import children
        from spark_kafka_sink.records.formats.protobuf.proto_encoder import encode_message
        from spark_kafka_sink.records.formats.row_pieces import RowPieces

        out = RowPieces(rows)
        out.add_bytes(self.prefix)
        fields = children(columns[0], with_nulls=True) if self.bare else columns
        encode_message(self.message, fields, out, "")
        return out.payloads(columns[0] if self.bare else None)


class ProtobufFormat:
    """``SchemaFormat`` of Protobuf. ``name`` chooses a message of a file that has several."""

    schema_type = "PROTOBUF"
    has_bare = False

    def __init__(self, name: str | None) -> None:
        self._name = name

    def derive(self, column: ColumnType, name: str) -> str:
        return derived_schema(column, name)

    def is_bare(self, schema: str) -> bool:
        del schema
        return False

    def name_of(self, schema: str) -> str:
        return str(message_of(schema, self._name)[0].full_name)

    def same(self, one: str, other: str) -> bool:
        texts = [file_descriptor(text).serialized_pb for text in (one, other)]
        return bool(texts[0] == texts[1])

    def plan(self, schema: str, prefix: bytes, column: ColumnType, *, bare: bool) -> ProtobufPlan:
        if column.kind is not ColumnKind.STRUCT:
            raise SchemaError(
                "a payload of Protobuf is a message, and the column is no struct",
                hint="name columns, or a struct with .*",
                kind=Kind.COLUMNS_AND_SCHEMA,
            )
        message, path = message_of(schema, self._name)
        indexes = b"\x00" if path == (0,) else b"".join(map(varint, (len(path), *path)))
        return ProtobufPlan(prefix + indexes, match_message(message, column, ""), bare)
