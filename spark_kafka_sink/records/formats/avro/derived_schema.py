"""The Avro schema of columns that have none: as Spark's ``to_avro`` makes it, but for nulls.

Owns: :func:`derived_schema`. Never: columns against a schema (``column_match``).

A field that may be null is ``["null", T]`` with the default null, as Kafka Connect writes it: the
field can be removed, or added, without breaking readers.
"""

from __future__ import annotations

import json
import re
from typing import Final

from spark_kafka_sink.base.errors import SchemaError, safe_text
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: The Avro type of each kind but those that have others in them.
PLAIN: Final[dict[ColumnKind, object]] = {
    ColumnKind.NULL: "null",
    ColumnKind.BOOLEAN: "boolean",
    ColumnKind.INT: "int",
    ColumnKind.LONG: "long",
    ColumnKind.FLOAT: "float",
    ColumnKind.DOUBLE: "double",
    ColumnKind.STRING: "string",
    ColumnKind.BINARY: "bytes",
    ColumnKind.DATE: {"type": "int", "logicalType": "date"},
    ColumnKind.TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros"},
    ColumnKind.TIMESTAMP_NTZ: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def derived_schema(column: ColumnType, name: str) -> str:
    """The schema's text; ``name`` is the record's, with its namespace. Raises SchemaError for names
    that Avro does not allow, and for maps whose keys are no strings.
    """
    return json.dumps(_Deriving(name).type(column, name, ""), separators=(",", ":"))


class _Deriving:
    """Names of nested records are the path to them, and each is there once."""

    def __init__(self, name: str) -> None:
        self._used = {name}

    def type(self, column: ColumnType, name: str, path: str) -> object:
        """Without its nulls."""
        if column.kind is ColumnKind.STRUCT:
            return self._record(column, name, path)
        if column.kind is ColumnKind.ARRAY:
            return {"type": "array", "items": self._nullable(column.children[0], name, f"{path}[]")}
        if column.kind is ColumnKind.MAP:
            check_map_key(column, path)
            values = self._nullable(column.children[1], name, f"{path}[]")
            return {"type": "map", "values": values}
        if column.kind is ColumnKind.DECIMAL:
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": column.precision,
                "scale": column.scale,
            }
        return PLAIN[column.kind]

    def _nullable(self, column: ColumnType, name: str, path: str) -> object:
        kind = self.type(column, name, path)
        return ["null", kind] if column.nullable and kind != "null" else kind

    def _record(self, column: ColumnType, name: str, path: str) -> object:
        fields = []
        for field_name, child in zip(column.names, column.children, strict=True):
            below = f"{path}.{field_name}" if path else field_name
            if _NAME.fullmatch(field_name) is None:
                raise SchemaError(
                    f"column {safe_text(below)} has a name that Avro does not allow for a field",
                    hint="rename it to letters, digits and underscores, or name a schema whose"
                    " field has this name as an alias",
                )
            field: dict[str, object] = {
                "name": field_name,
                "type": self._nullable(child, self._unused(f"{name}_{field_name}", child), below),
            }
            if child.nullable or child.kind is ColumnKind.NULL:
                field["default"] = None
            fields.append(field)
        space, _, short = name.rpartition(".")
        return {
            "type": "record",
            "name": short,
            **({"namespace": space} if space else {}),
            "fields": fields,
        }

    def _unused(self, name: str, column: ColumnType) -> str:
        """A name for the record that is in ``column``, if one is."""
        if not _has_record(column):
            return name
        free, number = name, 2
        while free in self._used:
            free, number = f"{name}_{number}", number + 1
        self._used.add(free)
        return free


def _has_record(column: ColumnType) -> bool:
    return column.kind is ColumnKind.STRUCT or any(map(_has_record, column.children))


def check_map_key(column: ColumnType, path: str) -> None:
    """SchemaError for a map whose keys are no strings."""
    if column.children[0].kind is not ColumnKind.STRING:
        raise SchemaError(
            f"column {safe_text(path)} is of type {safe_text(column.text, 200)}, and a map's keys"
            " are strings in this format",
            hint="cast the keys to strings, or make the map an array of structs",
        )
