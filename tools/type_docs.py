"""Generates the table of types in docs/formats.md.

The table replaces the text between ``<!-- types -->`` and ``<!-- / -->``. To find the accepted
types, this module gives a column of each type to each format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from spark_kafka_sink.base.errors import SchemaError
from spark_kafka_sink.records.formats.avro_format import AvroFormat
from spark_kafka_sink.records.formats.column_type import ColumnKind as K
from spark_kafka_sink.records.formats.column_type import ColumnType
from spark_kafka_sink.records.formats.protobuf_format import ProtobufFormat
from tools.tables import row

ROOT = Path(__file__).resolve().parent.parent
_MARKED = re.compile(r"(<!-- types -->\n).*?(<!-- / -->)", re.DOTALL)
_SPARK = {
    K.NULL: "void", K.BOOLEAN: "boolean", K.INT: "byte, short, int", K.LONG: "bigint",
    K.FLOAT: "float", K.DOUBLE: "double", K.DECIMAL: "decimal(p, s)",
    K.STRING: "string, char, varchar", K.BINARY: "binary", K.DATE: "date",
    K.TIMESTAMP: "timestamp", K.TIMESTAMP_NTZ: "timestamp_ntz",
}  # fmt: skip
_PROTOBUF_MAP = "map, if the keys are strings, integers or booleans"
_NESTED = (
    ("array", "array", "", "repeated", "", "array"),
    ("map", "map, if the keys are strings", "", _PROTOBUF_MAP, "", "object"),
    ("struct", "record", "", "message", "", "object"),
)
_LOGICAL = (
    "date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros",
    "timestamp-nanos", "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos",
)  # fmt: skip
_INTEGERS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64",
             "sfixed32", "sfixed64")  # fmt: skip
_AVRO = (
    "boolean", "int", "long", "float", "double", "string", "bytes",
    *({"type": "int" if name in _LOGICAL[:2] else "long", "logicalType": name}
      for name in _LOGICAL),
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4},
    {"type": "enum", "name": "e", "symbols": ["A"]},
    {"type": "fixed", "name": "f", "size": 16},
    {"type": "fixed", "name": "f", "size": 16, "logicalType": "uuid"},
    {"type": "fixed", "name": "f", "size": 16, "logicalType": "decimal", "precision": 20},
)  # fmt: skip
_PROTOBUF = (
    "bool", *_INTEGERS, "float", "double", "string", "bytes", "E", "google.protobuf.Timestamp",
)  # fmt: skip


def page() -> str:
    """docs/formats.md with the newest table."""
    text = (ROOT / "docs/formats.md").read_text(encoding="utf-8")
    table = "\n".join(_lines()) + "\n"
    return _MARKED.sub(lambda mark: f"{mark[1]}{table}{mark[2]}", text)


def _lines() -> Iterator[str]:
    yield row("Spark", "Avro", "Avro, also", "Protobuf", "Protobuf, also", "JSON Schema")
    yield row(*["---"] * 6)
    for kind, spark in _SPARK.items():
        column = ColumnType(kind, spark, precision=10, scale=2)
        yield row(
            spark,
            _avro_name({"type": kind.avro[0], "logicalType": kind.avro[1]}),
            _but(kind.avro[1] or kind.avro[0], _avro(column)) if kind is not K.NULL else "",
            "none: cast it" if kind.protobuf is None else kind.protobuf,
            _but(kind.protobuf or "", _protobuf(column)),
            _json_type(kind),
        )
    for nested in _NESTED:
        yield row(*nested)


def _but(first: str, accepted: list[str]) -> str:
    """All others; together under one name what is there as a whole."""
    for names, together in (
        (_LOGICAL, "logical types of int and long"),
        (_INTEGERS, "all other integer types"),
    ):
        if set(names) <= set(accepted):
            accepted = [*(name for name in accepted if name not in names), together]
            accepted += ["int", "long"] if names == _LOGICAL else []
    return ", ".join(dict.fromkeys(name for name in accepted if name != first))


def _avro_name(declared: object) -> str:
    if not isinstance(declared, dict):
        return str(declared)
    kind, logical = declared["type"], declared.get("logicalType")
    if logical == "decimal":
        return "decimal" if kind == "bytes" else "decimal of type `fixed`"
    if kind == "fixed" and logical == "uuid":
        return "uuid of type `fixed`"
    return str(logical or kind)


def _json_type(kind: K) -> str:
    """The type in JSON Schema, with its format or encoding in brackets."""
    first, *more = map(str, kind.json.values())
    return f"{first} ({', '.join(more)})" if more else first


def _avro(column: ColumnType) -> list[str]:
    accepted = []
    for declared in _AVRO:
        try:
            AvroFormat().plan(json.dumps(["null", declared]), b"", column)
        except SchemaError:
            continue
        accepted.append(_avro_name(declared))
    return accepted


def _protobuf(column: ColumnType) -> list[str]:
    accepted = []
    record = ColumnType(K.STRUCT, "struct", nullable=False, children=(column,), names=("a",))
    for kind in _PROTOBUF:
        used = 'import "google/protobuf/timestamp.proto";' if "." in kind else ""
        text = f'syntax = "proto3"; {used} message M {{ {kind} a = 1; }} enum E {{ X = 0; }}'
        try:
            ProtobufFormat(None).plan(text, b"", record)
        except SchemaError:
            continue
        accepted.append("enum" if kind == "E" else kind)
    return accepted
