"""Protobuf behind the seam of formats. Owns: :class:`ProtobufFormat`. Never: a registry."""

from __future__ import annotations

from spark_kafka_sink.records.formats.binary.binary_plan import BinaryPlan
from spark_kafka_sink.records.formats.binary.matching import misfit
from spark_kafka_sink.records.formats.binary.nodes import Value
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.protobuf.proto_match import match_message
from spark_kafka_sink.records.formats.protobuf.proto_schema import derived_schema, message_of
from spark_kafka_sink.records.formats.schema_format import SchemaFormat
from spark_kafka_sink.records.varint import varint


class ProtobufFormat(SchemaFormat):
    """``SchemaFormat`` of Protobuf. ``name`` chooses a message of a file that has several."""

    schema_type = "PROTOBUF"
    has_bare = False

    def __init__(self, name: str | None) -> None:
        self._name = name

    def derive(self, column: ColumnType, name: str) -> str:
        return derived_schema(column, name)

    def name_of(self, schema: str) -> str:
        return str(message_of(schema, self._name)[0].full_name)

    def indexes(self, schema: str) -> bytes:
        path = message_of(schema, self._name)[1]
        return b"\x00" if path == (0,) else b"".join(map(varint, (len(path), *path)))

    def plan(self, schema: str, prefix: bytes, column: ColumnType, *, bare: bool) -> BinaryPlan:
        if column.kind is not ColumnKind.STRUCT:
            raise misfit(
                "a payload of Protobuf is a message, and the column is no struct",
                "name columns, or a struct with .*",
            )
        record = match_message(message_of(schema, self._name)[0], column, "")
        return BinaryPlan(prefix, Value(record, null=b"" if bare else None), bare)
