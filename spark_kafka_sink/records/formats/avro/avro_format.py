"""Avro behind the seam of formats. Owns: :class:`AvroFormat`. Never: a registry."""

from __future__ import annotations

from spark_kafka_sink.records.formats.avro.avro_match import match
from spark_kafka_sink.records.formats.avro.avro_schema import AvroType, parse_schema
from spark_kafka_sink.records.formats.avro.derived_schema import derived_schema
from spark_kafka_sink.records.formats.binary.binary_plan import BinaryPlan
from spark_kafka_sink.records.formats.binary.matching import misfit
from spark_kafka_sink.records.formats.binary.nodes import Value
from spark_kafka_sink.records.formats.column_type import ColumnType
from spark_kafka_sink.records.formats.schema_format import SchemaFormat


class AvroFormat(SchemaFormat):
    """``SchemaFormat`` of Avro."""

    schema_type = "AVRO"

    def derive(self, column: ColumnType, name: str) -> str:
        return derived_schema(column, name)

    def is_bare(self, schema: str) -> bool:
        return _record_of(parse_schema(schema)) is None

    def name_of(self, schema: str) -> str:
        record = _record_of(parse_schema(schema))
        return "" if record is None else record.name

    def plan(self, schema: str, prefix: bytes, column: ColumnType, *, bare: bool) -> BinaryPlan:
        kind = parse_schema(schema)
        if not bare and _record_of(kind) is None:
            raise misfit(
                "several columns are a record, and the schema has none",
                "name one column, or a schema of a record",
            )
        value = match(kind, column, "")
        # The null of a bare value is a null payload, whose bytes don't count.
        return BinaryPlan(prefix, Value(value.node, value.branch, b"" if bare else None), bare)


def _record_of(kind: AvroType) -> AvroType | None:
    """The record of a schema, which may be one of a union."""
    inner = kind.inner if kind.kind == "union" else (kind,)
    return next((one for one in inner if one.kind == "record"), None)
