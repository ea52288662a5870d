"""The Avro schema of columns that have none: as Spark's ``to_avro`` makes it, but for nulls.

Owns: :func:`derived_schema`. Never: columns against a schema (``avro_match``).

A field that may be null is ``["null", T]`` with the default null, as Kafka Connect writes it: the
field can be removed, or added, without breaking readers.
"""

from __future__ import annotations

import json
import re
from typing import Final

from spark_kafka_sink.base.errors import SchemaError, safe_text
from spark_kafka_sink.records.formats.binary.matching import below
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.type_table import TYPES

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def derived_schema(column: ColumnType, name: str) -> str:
    """The schema's text; ``name`` is the record's, with its namespace. Raises SchemaError for names
    that Avro does not allow, and for maps whose keys are no strings.
    """
    return json.dumps(_type(column, name, "", set()), separators=(",", ":"))


def _type(column: ColumnType, name: str, path: str, used: set[str]) -> object:
    """Without its nulls. ``name`` is free for a record, whose names are in ``used``."""
    if column.kind is ColumnKind.STRUCT:
        return _record(column, name, path, used)
    if column.kind is ColumnKind.ARRAY:
        return {"type": "array", "items": _nullable(column.children[0], name, f"{path}[]", used)}
    if column.kind is ColumnKind.MAP:
        check_map_key(column, path)
        return {"type": "map", "values": _nullable(column.children[1], name, f"{path}[]", used)}
    kind, logical = TYPES[column.kind].avro
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
        if _NAME.fullmatch(field_name) is None:
            raise SchemaError(
                f"column {safe_text(inside)} has a name that Avro does not allow for a field",
                hint="rename it to letters, digits and underscores, or name a schema whose"
                " field has this name as an alias",
            )
        kind = _nullable(child, f"{name}_{field_name}", inside, used)
        default = {"default": None} if child.nullable or kind == "null" else {}
        fields.append({"name": field_name, "type": kind, **default})
    space, _, short = name.rpartition(".")
    named = {"name": short, "namespace": space} if space else {"name": short}
    return {"type": "record", **named, "fields": fields}


def check_map_key(column: ColumnType, path: str) -> None:
    """SchemaError for a map whose keys are no strings."""
    if column.children[0].kind is not ColumnKind.STRING:
        raise SchemaError(
            f"column {safe_text(path)} is of type {safe_text(column.text, 200)}, and a map's keys"
            " are strings in this format",
            hint="cast the keys to strings, or make the map an array of structs",
        )
