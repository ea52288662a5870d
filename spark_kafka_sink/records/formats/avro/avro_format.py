"""Avro behind the seam of formats. Owns: :class:`AvroFormat` and its plan. Never: a registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.records.formats.avro.avro_nodes import Record, Value
from spark_kafka_sink.records.formats.avro.avro_schema import AvroType, parse_schema, same_type
from spark_kafka_sink.records.formats.avro.column_match import match
from spark_kafka_sink.records.formats.avro.derived_schema import derived_schema
from spark_kafka_sink.records.formats.column_type import ColumnType

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.records.payloads import Payloads


@dataclass(frozen=True, slots=True)
class AvroPlan:
    """How columns are written: ``prefix``, then ``value``; see ``SchemaFormat.plan``."""

    prefix: bytes
    value: Value
    bare: bool

    def encode(self, columns: Sequence[pa.Array], rows: int, path: str) -> Payloads:
        """One payload for each row."""
        from spark_kafka_sink.records.formats.avro.avro_encoder import encode, encode_record
        from spark_kafka_sink.records.formats.row_pieces import RowPieces

        out = RowPieces(rows)
        out.add_bytes(self.prefix)
        if self.bare:
            encode(self.value, columns[0], out, path)
            return out.payloads(columns[0])
        out.add_bytes(self.value.branch)
        assert isinstance(self.value.node, Record)
        encode_record(self.value.node, columns, out, "")
        return out.payloads()


class AvroFormat:
    """``SchemaFormat`` of Avro."""

    schema_type = "AVRO"
    has_bare = True

    def derive(self, column: ColumnType, name: str) -> str:
        return derived_schema(column, name)

    def is_bare(self, schema: str) -> bool:
        return _record_of(parse_schema(schema)) is None

    def name_of(self, schema: str) -> str:
        record = _record_of(parse_schema(schema))
        return "" if record is None else record.name

    def same(self, one: str, other: str) -> bool:
        return same_type(parse_schema(one), parse_schema(other))

    def plan(self, schema: str, prefix: bytes, column: ColumnType, *, bare: bool) -> AvroPlan:
        kind = parse_schema(schema)
        if not bare and _record_of(kind) is None:
            raise SchemaError(
                "several columns are a record, and the schema has none",
                hint="name one column, or a schema of a record",
                kind=Kind.COLUMNS_AND_SCHEMA,
            )
        value = match(kind, column, "")
        # The null of a bare value is a null payload, whose bytes don't count.
        return AvroPlan(prefix, Value(value.node, value.branch, b"" if bare else None), bare)


def _record_of(kind: AvroType) -> AvroType | None:
    """The record of a schema, which may be one of a union."""
    inner = kind.inner if kind.kind == "union" else (kind,)
    return next((one for one in inner if one.kind == "record"), None)
