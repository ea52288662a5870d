"""The format Protobuf: reads schemas with protoc, derives schemas from columns, and finds the
column for each field.

A field without a column is not written. A null field is not written either. Columns that do not fit
the schema are an error at planning.

Only the driver uses this module, and only this module imports protobuf. So only the driver needs
the extra ``protobuf``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, SchemaError, safe_text
from spark_kafka_sink.records import nodes
from spark_kafka_sink.records.formats.binary import matching
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.schema_format import References, SchemaFormat
from spark_kafka_sink.records.nodes import Coding, Number, Value
from spark_kafka_sink.records.varint import unsigned_varint, varint

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

_K = ColumnKind
_FILE: Final = "schema.proto"
_TIMESTAMP: Final = _K.TIMESTAMP.protobuf
#: Messages with one field, value.
_WRAPPERS: Final = {
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_KEYS: Final = (_K.STRING, _K.INT, _K.LONG, _K.BOOLEAN)
#: Of protoc's run, and of its reasons in an error.
_LONGEST_S: Final = 60
_MOST_REASONS: Final = 3
_NO_FIELD: Final = "which Protobuf has no field for"
#: FieldDescriptor's numbers of types.
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(10, 19)
#: How they begin (wire types).
_VARINT, _64_BITS, _AFTER_LENGTH, _32_BITS = 0, 1, 2, 5
_INT, _UINT = (-(1 << 31), (1 << 31) - 1), (0, (1 << 32) - 1)
_WHOLE: Final = (_K.INT, _K.LONG)
#: Its wire type, the kinds of columns that are written as it, and how; there is more in ``_node``.
_TYPES: Final[Mapping[int, tuple[int, Sequence[ColumnKind], nodes.Node | None]]] = {
    _BOOL: (_VARINT, (_K.BOOLEAN,), nodes.Boolean()),
    _INT32: (_VARINT, _WHOLE, Number(Coding.VARINT, 1, *_INT)),
    _INT64: (_VARINT, _WHOLE, Number(Coding.VARINT)),
    _UINT32: (_VARINT, _WHOLE, Number(Coding.VARINT, 1, *_UINT)),
    _UINT64: (_VARINT, _WHOLE, Number(Coding.VARINT, 1, 0)),
    _SINT32: (_VARINT, _WHOLE, Number(Coding.ZIGZAG, 1, *_INT)),
    _SINT64: (_VARINT, _WHOLE, Number(Coding.ZIGZAG)),
    _FIXED32: (_32_BITS, _WHOLE, Number(Coding.FIXED32, 1, *_UINT)),
    _FIXED64: (_64_BITS, _WHOLE, Number(Coding.FIXED64, 1, 0)),
    _SFIXED32: (_32_BITS, _WHOLE, Number(Coding.FIXED32, 1, *_INT)),
    _SFIXED64: (_64_BITS, _WHOLE, Number(Coding.FIXED64)),
    _FLOAT: (_32_BITS, (_K.FLOAT,), Number(Coding.FIXED32)),
    _DOUBLE: (_64_BITS, (_K.FLOAT, _K.DOUBLE), Number(Coding.FIXED64)),
    _STRING: (_AFTER_LENGTH, (_K.STRING,), nodes.Bytes(Coding.VARINT, is_text=True)),
    _BYTES: (_AFTER_LENGTH, (_K.BINARY,), nodes.Bytes(Coding.VARINT)),
    _ENUM: (_VARINT, (), None),
    **dict.fromkeys((_MESSAGE, _GROUP), (_AFTER_LENGTH, (), None)),
}


class ProtobufFormat(SchemaFormat):
    """The format Protobuf. Implements :class:`SchemaFormat`.

    If a schema has several messages, ``name`` selects one of them. If ``name`` is None, the first
    message is used.
    """

    schema_type = "PROTOBUF"
    has_bare = False

    def __init__(self, name: str | None) -> None:
        self.name = name

    def derive(self, column: ColumnType, name: str) -> str:
        package, _, short = name.rpartition(".")
        lines = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
        # A field or a package of this name would be taken for the beginning of the type's name.
        is_hidden = package.startswith("google") or any("google" in it for it in _names(column))
        timestamp = f".{_TIMESTAMP}" if is_hidden else f"{_TIMESTAMP}"
        body = _derived(column, short, "", "", timestamp)
        if any(f"{_TIMESTAMP} " in line or f"{_TIMESTAMP}>" in line for line in body):
            lines.append('import "google/protobuf/timestamp.proto";')
        return "\n".join([*lines, "", *body, ""])

    def name_of(self, schema: str, references: References = ()) -> str:
        return str(message_of(schema, self.name, references)[0].full_name)

    def indexes(self, schema: str, references: References = ()) -> bytes:
        path = message_of(schema, self.name, references)[1]
        return b"\x00" if path == (0,) else b"".join(map(varint, (len(path), *path)))

    def match(self, schema: str, column: ColumnType, references: References = ()) -> Value:
        return Value(_message(message_of(schema, self.name, references)[0], column, ""))


# -- a schema, read


@lru_cache(64)
def file_descriptor(text: str, references: References = ()) -> FileDescriptor:
    """Parses a .proto file. ``text`` is the content of the file. ``references`` are the files that
    this file imports, as pairs of import path and text.

    Raises SchemaError if the file is invalid, and ConfigError if protoc is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool

        known = _known_imports()
    except ImportError as error:
        raise ConfigError(
            "the format protobuf reads schemas with protoc, which is not installed on the driver",
            hint="pip install 'spark-kafka-sink[protobuf]'",
            kind=Kind.MISSING_PACKAGE,
        ) from error
    with tempfile.TemporaryDirectory(prefix="kprod-") as directory:
        for name, one in (*references, (_FILE, text)):
            _write_file(Path(directory), name, one)
        out = Path(directory) / "descriptors"
        paths = [f"--proto_path={one}" for one in (directory, *known)]
        _run_protoc(directory, [*paths, "--include_imports", f"--descriptor_set_out={out}", _FILE])
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for one in found.file:
        pool.Add(one)
    return pool.FindFileByName(_FILE)


def _known_imports() -> list[str]:
    """The directories with .proto files that a schema may import even if the registry does not have
    these files: google/protobuf, confluent, google/type, google/api. Raises ImportError if protoc
    is not installed.
    """
    found = [str(files("grpc_tools") / "_proto"), str(files(__package__) / "protos")]
    with contextlib.suppress(ImportError):  # of an older installation, which has protoc only
        found.append(str(Path(str(files("google.type") / "money.proto")).parents[2]))
    return found


def _write_file(directory: Path, name: str, text: str) -> None:
    """Writes an imported file into ``directory``. ``name`` is a path from a registry. A path that
    leads out of the directory is an error.
    """
    path = PurePosixPath(name)
    parts = path.parts
    if path.is_absolute() or ".." in parts or not parts or "\\" in name or "\0" in name:
        raise matching.unusable(
            f"the Protobuf schema refers to {safe_text(name)}, which is no path"
        )
    (directory / path).parent.mkdir(parents=True, exist_ok=True)
    (directory / path).write_text(text, "utf-8", "replace")


def _run_protoc(directory: str, arguments: Sequence[str]) -> None:
    """Runs protoc in a separate process. Raises SchemaError with protoc's reason if protoc rejects
    the schema.
    """
    paths = os.pathsep.join(sys.path)
    run = subprocess.run(  # noqa: S603 - this Python, with paths made here
        [sys.executable, "-m", "grpc_tools.protoc", *arguments],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONPATH": paths},
        stdin=subprocess.DEVNULL,
        timeout=_LONGEST_S,
    )
    if run.returncode != 0:
        text = run.stderr.decode("utf-8", "replace").replace(f"{directory}/", "")
        lines = text.splitlines()
        reasons = [one for one in lines if ": warning: " not in one and "directory does" not in one]
        raise matching.unusable(
            "protoc does not accept the Protobuf schema:"
            f" {safe_text('; '.join(reasons[:_MOST_REASONS]), 600)}",
            "imports are the schema's references in the registry, and google/protobuf, google/type,"
            f" google/api and confluent; {matching.WITH_REFERENCES}",
        )


def message_of(
    text: str, name: str | None, references: References = ()
) -> tuple[Descriptor, tuple[int, ...]]:
    """Finds a message in a .proto file. Returns the message and its message indexes: the way from
    the file to the message, through the messages that enclose it.

    ``text`` is the content of the file. ``name`` is the message's full name, or its name without
    the package. If ``name`` is None, the result is the first message of the file. Raises
    SchemaError if there is no such message.
    """
    # In upb's order, which is the file's.
    file = file_descriptor(text, references)
    messages = list(_messages(file.message_types_by_name.values(), ()))
    named = [it for it in messages if name in (None, it[0].full_name)]
    named += [it for it in messages if it[0].name == name]
    if not named:
        there = ", ".join(one.name for one, way in messages if len(way) == 1) or "none"
        what = f"the Protobuf schema has no message {safe_text(name or '')}".rstrip()
        raise matching.unusable(what, f"it has {safe_text(there, 300)}")
    return named[0]


def _messages(
    messages: Iterable[Descriptor], way: tuple[int, ...]
) -> Iterator[tuple[Descriptor, tuple[int, ...]]]:
    """Yields the messages and their nested messages, each with its message indexes. The messages
    that protoc makes for entries of maps are left out.
    """
    for at, one in enumerate(it for it in messages if not it.GetOptions().map_entry):
        yield one, (*way, at)
        yield from _messages(one.nested_types, (*way, at))


# -- a schema, made of columns


def _names(column: ColumnType) -> Iterator[str]:
    """The names of all fields in a column, and in its nested structs."""
    yield from column.names
    for child in column.children:
        yield from _names(child)


def _derived(column: ColumnType, name: str, path: str, indent: str, timestamp: str) -> list[str]:
    """Derives a message from a struct column. Returns its lines in the .proto file. Fields are
    numbered in the order of the columns. ``timestamp`` is the name with which the file refers to
    google.protobuf.Timestamp.
    """
    lines, inner = [f"{indent}message {name} {{"], indent + "  "
    for number, (field, child, inside) in enumerate(matching.fields_of(column, path), 1):
        matching.check_name(field, inside, "Protobuf")
        held = child.children[-1] if child.kind in (_K.ARRAY, _K.MAP) else child
        kind = timestamp if held.kind is _K.TIMESTAMP else held.kind.protobuf
        if held.kind is _K.STRUCT:
            kind = f"Type{number}"
            while kind in column.names:  # a field and a message share their names
                kind += "_"
            lines += _derived(held, kind, inside, inner, timestamp)
        if kind is None:
            raise matching.unfit(held, inside, _NO_FIELD)
        declared = f"optional {kind}" if child.nullable else kind
        if child.kind is _K.ARRAY:
            declared = f"repeated {kind}"
        elif child.kind is _K.MAP:
            key = child.children[0].kind
            if key not in _KEYS:
                raise matching.unfit(child, inside, _NO_FIELD)
            declared = f"map<{key.protobuf}, {kind}>"
        lines.append(f"{inner}{declared} {field} = {number};")
    return [*lines, f"{indent}}}"]


# -- columns as fields of a message


def _message(message: Descriptor, column: ColumnType, path: str) -> nodes.Record:
    """Finds the column for each field of ``message``. ``column`` is a struct column. For the
    outermost message, ``column`` is a struct of all columns. Raises SchemaError if a column does
    not fit.
    """
    fields = sorted(message.fields, key=lambda one: int(one.number))
    named = [((one.name, one.json_name), one) for one in fields]
    owner = f"message is {message.full_name}"
    matched = matching.matched_fields(named, column, path, owner, _field)
    at = {one.name: one.index for one in matched}
    choices = [tuple(at[f.name] for f in one.fields if f.name in at) for one in message.oneofs]
    return nodes.Record(matched, choices=tuple(one for one in choices if len(one) > 1))


def _field(field: FieldDescriptor, column: ColumnType | None, path: str) -> Value | bytes:
    if column is None:
        if field.is_required:
            raise matching.missing(path, "is required")
        return b""
    tag = _tag(field)
    if not field.is_repeated:
        null = None if field.is_required else b""
        return Value(_node(field, column, path), tag, null, _zeros(field))
    entry = field.message_type
    is_map = entry is not None and entry.GetOptions().map_entry
    if column.kind is not (_K.MAP if is_map else _K.ARRAY):
        raise _unfit(field, column, path)
    if is_map:
        inside = zip(entry.fields, column.children, (f"{path} (a key)", f"{path}[]"), strict=True)
        parts = [Value(_node(one, child, where), _tag(one)) for one, child, where in inside]
        node: nodes.Node = replace(nodes.entry(*parts), length=True)
    else:
        node = _node(field, column.children[0], f"{path}[]")
    packed = nodes.Items(Value(node), packed=tag)
    return Value(packed if field.is_packed else nodes.Items(Value(node, tag)), null=b"")


def _zeros(field: FieldDescriptor) -> tuple[object, ...]:
    """The values that mean the default of a field. Such a value is not written, and other producers
    don't write it either. So equal keys have equal bytes, and get the same partition.
    """
    if field.has_presence:
        return ()
    if field.type == _ENUM:
        return tuple(one.name.encode() for one in field.enum_type.values if one.number == 0)
    return (b"" if field.type == _STRING else field.default_value,)


def _tag(field: FieldDescriptor) -> bytes:
    wire_type = _AFTER_LENGTH if field.is_packed else _TYPES[field.type][0]
    return unsigned_varint(field.number << 3 | wire_type)


def _node(field: FieldDescriptor, column: ColumnType, path: str) -> nodes.Node:
    _, kinds, node = _TYPES[field.type]
    if node is not None and column.kind in kinds:
        return node
    if field.type == _ENUM and column.kind is _K.STRING:
        names = {one.name: one.number for one in field.enum_type.values}
        return nodes.Symbols(tuple(names), tuple(names.values()), Coding.VARINT)
    message = "" if field.type != _MESSAGE else field.message_type.full_name
    if message and column.kind is _K.STRUCT:
        return replace(_message(field.message_type, column, path), length=True)
    if column.kind is _K.TIMESTAMP and message == _TIMESTAMP:
        return nodes.Timestamp()
    if message in _WRAPPERS:
        inner = field.message_type.fields_by_name["value"]
        return nodes.Message(Value(_node(inner, column, path), _tag(inner), b"", _zeros(inner)))
    raise _unfit(field, column, path)


def _unfit(field: FieldDescriptor, column: ColumnType, path: str) -> SchemaError:
    what = f"and the schema's field {safe_text(field.full_name, 200)} can't hold it"
    return matching.unfit(column, path, what)
