"""Schemas of Protobuf: text to descriptors and back from columns.

Owns: :func:`file_descriptor`, by protoc, and :func:`derived_schema`. Never: columns against a
message (``protobuf_format``). The only place that imports protobuf, on the driver.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.records.formats.binary.matching import below, check_name, unfit, unusable
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor

_FILE: Final = "schema.proto"
_TIMESTAMP: Final = ColumnKind.TIMESTAMP.protobuf
_HOLDERS: Final = (ColumnKind.ARRAY, ColumnKind.MAP)
_KEYS: Final = (ColumnKind.STRING, ColumnKind.INT, ColumnKind.LONG, ColumnKind.BOOLEAN)
_NO_FIELD: Final = "which Protobuf has no field for"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@lru_cache(64)
def file_descriptor(text: str) -> FileDescriptor:
    """The file that ``text`` declares. Raises SchemaError, and ConfigError without protoc."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool
        from grpc_tools import protoc
    except ImportError as error:
        raise ConfigError(
            "the format protobuf reads schemas with protoc, which is not installed on the driver",
            hint="pip install 'spark-kafka-sink[protobuf]'",
            kind=Kind.MISSING_PACKAGE,
        ) from error
    with tempfile.TemporaryDirectory(prefix="kprod-") as directory:
        (Path(directory) / _FILE).write_text(text, "utf-8", "replace")
        out = Path(directory) / "descriptors"
        known = files("grpc_tools") / "_proto"
        arguments = ["-I", directory, "-I", str(known), "--include_imports"]
        command = ["protoc", *arguments, f"--descriptor_set_out={out}", _FILE]
        if protoc.main(command) != 0:
            raise unusable(
                "protoc does not accept the Protobuf schema; its reason is on the standard error of"
                " this process",
                "imports are those of google/protobuf only: a registry's references are not looked"
                " up",
            )
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for one in found.file:
        pool.Add(one)
    return pool.FindFileByName(_FILE)


def message_of(text: str, name: str | None) -> tuple[Descriptor, tuple[int, ...]]:
    """The message of this name (None: the first), and the indexes on the way to it."""
    # In upb's order, which is the file's.
    messages = list(_messages(file_descriptor(text).message_types_by_name.values(), ()))
    named = [it for it in messages if name in (None, it[0].full_name)]
    named += [it for it in messages if it[0].name == name]
    if not named:
        there = ", ".join(one.name for one, way in messages if len(way) == 1) or "none"
        what = f"the Protobuf schema has no message {safe_text(name or '')}".rstrip()
        raise unusable(what, f"it has {safe_text(there, 300)}")
    return named[0]


def _messages(
    messages: Iterable[Descriptor], way: tuple[int, ...]
) -> Iterator[tuple[Descriptor, tuple[int, ...]]]:
    """Each, and those within it, with the indexes on the way to it. Entries of maps are none."""
    for at, one in enumerate(it for it in messages if not it.GetOptions().map_entry):
        yield one, (*way, at)
        yield from _messages(one.nested_types, (*way, at))


def derived_schema(column: ColumnType, name: str) -> str:
    """The text of a file with one message; fields are numbered in the order of the columns."""
    package, _, short = name.rpartition(".")
    lines = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
    body = _message(column, short, "", "")
    if any(f" {_TIMESTAMP}" in line for line in body):
        lines.append('import "google/protobuf/timestamp.proto";')
    return "\n".join([*lines, "", *body, ""])


def _message(column: ColumnType, name: str, path: str, indent: str) -> list[str]:
    lines = [f"{indent}message {name} {{"]
    inner = indent + "  "
    for number, (field, child) in enumerate(zip(column.names, column.children, strict=True), 1):
        inside = below(path, field)
        check_name(_NAME, field, inside, "Protobuf")
        held = child.children[-1] if child.kind in _HOLDERS else child
        kind = held.kind.protobuf
        if held.kind is ColumnKind.STRUCT:
            kind = f"Type{number}"
            lines += _message(held, kind, inside, inner)
        if kind is None:
            raise unfit(held, inside, _NO_FIELD)
        lines.append(f"{inner}{_declared(child, kind, inside)} {field} = {number};")
    return [*lines, f"{indent}}}"]


def _declared(column: ColumnType, kind: str, path: str) -> str:
    """The type of a field, whose items or values are of ``kind``."""
    if column.kind is ColumnKind.ARRAY:
        return f"repeated {kind}"
    if column.kind is ColumnKind.MAP:
        key = column.children[0].kind
        if key not in _KEYS:
            raise unfit(column, path, _NO_FIELD)
        return f"map<{key.protobuf}, {kind}>"
    return f"optional {kind}" if column.nullable else kind
