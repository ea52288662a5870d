"""Avro behind the seam of formats.

Owns: :class:`AvroFormat`, and the schema of columns that have none: as Spark's ``to_avro`` makes
it, but for nulls. Never: columns against a schema (``avro_match``), a registry.

A field that may be null is ``["null", T]`` with the default null, as Kafka Connect writes it: the
field can be removed, or added, without breaking readers.
"""

from __future__ import annotations

import json

from spark_kafka_sink.records.formats.avro.avro_match import match
from spark_kafka_sink.records.formats.avro.avro_schema import NAME, AvroType, parse_schema
from spark_kafka_sink.records.formats.binary.binary_plan import BinaryPlan
from spark_kafka_sink.records.formats.binary.matching import below, check_map_key, check_name
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.schema_format import SchemaFormat


class AvroFormat(SchemaFormat):
    """``SchemaFormat`` of Avro."""

    schema_type = "AVRO"

    def derive(self, column: ColumnType, name: str) -> str:
        return json.dumps(_type(column, name, "", set()), separators=(",", ":"))

    def is_bare(self, schema: str) -> bool:
        return _record_of(parse_schema(schema)) is None

    def name_of(self, schema: str) -> str:
        record = _record_of(parse_schema(schema))
        return "" if record is None else record.name

    def plan(self, schema: str, prefix: bytes, column: ColumnType) -> BinaryPlan:
        return BinaryPlan(prefix, match(parse_schema(schema), column, ""))


def _record_of(kind: AvroType) -> AvroType | None:
    """The record of a schema, which may be one of a union."""
    inner = kind.inner if kind.kind == "union" else (kind,)
    return next((one for one in inner if one.kind == "record"), None)


def _type(column: ColumnType, name: str, path: str, used: set[str]) -> object:
    """Without its nulls. ``name`` is free for a record, whose names are in ``used``."""
    if column.kind is ColumnKind.STRUCT:
        return _record(column, name, path, used)
    if column.kind is ColumnKind.ARRAY:
        return {"type": "array", "items": _nullable(column.children[0], name, f"{path}[]", used)}
    if column.kind is ColumnKind.MAP:
        check_map_key(column, path)
        return {"type": "map", "values": _nullable(column.children[1], name, f"{path}[]", used)}
    kind, logical = column.kind.avro
    if column.kind is ColumnKind.DECIMAL:
        digits = {"precision": column.precision, "scale": column.scale}
        return {"type": kind, "logicalType": logical, **digits}
    return {"type": kind, "logicalType": logical} if logical else kind


def _nullable(column: ColumnType, name: str, path: str, used: set[str]) -> object:
    kind = _type(column, name, path, used)
    return ["null", kind] if column.nullable and kind != "null" else kind


def _record(column: ColumnType, name: str, path: str, used: set[str]) -> object:
    """Names of records within others are the path to them, and each is there once."""
    while name in used:
        name += "_"
    used.add(name)
    fields = []
    for field_name, child in zip(column.names, column.children, strict=True):
        inside = below(path, field_name)
        hint = ", or name a schema whose field has this name as an alias"
        check_name(NAME, field_name, inside, "Avro", hint)
        kind = _nullable(child, f"{name}_{field_name}", inside, used)
        default = {"default": None} if child.nullable or kind == "null" else {}
        fields.append({"name": field_name, "type": kind, **default})
    space, _, short = name.rpartition(".")
    named = {"name": short, "namespace": space} if space else {"name": short}
    return {"type": "record", **named, "fields": fields}
