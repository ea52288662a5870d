"""Defaults of an Avro schema's fields as bytes. Owns: :func:`encoded_default`. Never: a column."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from spark_kafka_sink.records.formats.avro.avro_schema import AvroType
from spark_kafka_sink.records.varint import varint


def encoded_default(kind: AvroType, value: object) -> bytes:
    """A default of a schema's JSON, encoded. Raises ValueError when it is not of the type."""
    match kind.kind, value:
        case "union", _:
            return _of_union(kind.inner, value)
        case "null", None:
            return b""
        case "boolean", bool():
            return bytes([value])
        case _, int() | float() if not isinstance(value, bool):
            return _number(kind.kind, value)
        case _, str():
            return _text(kind, value)
        case "array", list():
            return _block([encoded_default(kind.inner[0], one) for one in value])
        case "map", dict():
            pairs = [(_sized(k.encode()), v) for k, v in value.items()]
            return _block([key + encoded_default(kind.inner[0], one) for key, one in pairs])
        case "record", dict():
            given = [(one.type, value.get(one.name, one.default)) for one in kind.fields]
            return b"".join(encoded_default(inner, one) for inner, one in given)
    raise ValueError(kind.kind)


def _number(kind: str, value: float) -> bytes:
    bits = {"int": 31, "long": 63}.get(kind)
    if bits is not None and isinstance(value, int) and -(1 << bits) <= value < 1 << bits:
        return varint(value)
    try:
        return struct.pack({"float": "<f", "double": "<d"}[kind], value)
    except (KeyError, OverflowError, struct.error):
        raise ValueError(kind) from None


def _text(kind: AvroType, value: str) -> bytes:
    if kind.kind == "string":
        return _sized(value.encode())
    if kind.kind == "enum":
        return varint(kind.symbols.index(value))
    data = value.encode("latin-1")
    if kind.kind == "fixed" and len(data) == kind.size:
        return data
    if kind.kind != "bytes":
        raise ValueError(kind.kind)
    return _sized(data)


def _of_union(branches: Sequence[AvroType], value: object) -> bytes:
    """As the first branch that it fits."""
    for index, branch in enumerate(branches):
        try:
            return varint(index) + encoded_default(branch, value)
        except ValueError:
            continue
    raise ValueError("union")


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def _block(items: Sequence[bytes]) -> bytes:
    return (varint(len(items)) if items else b"") + b"".join(items) + b"\x00"
