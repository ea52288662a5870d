"""Avro schemas: read from their JSON (the specification's 1.12), and made of columns.

Owns: :class:`AvroType`; :func:`parse_schema`: a registry has accepted the schema, or will refuse
it, so only what would mislead the encoder is looked for; and :func:`derived_schema`, as Spark's
``to_avro`` makes it, but for nulls. Never: columns against a schema (``avro_format``).

A field that may be null is ``["null", T]`` with the default null, as Kafka Connect writes it: the
field can be removed, or added, without breaking readers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from spark_kafka_sink.base.errors import SchemaError, safe_text
from spark_kafka_sink.records.formats.binary.matching import (
    below,
    check_map_key,
    check_name,
    unusable,
)
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType

_PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
#: What arrays and maps declare.
_INNER: Final = {"array": "items", "map": "values"}
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
LOGICAL: Final = {
    "int": ("date", "time-millis"),
    "long": ("time-micros", *(f"{local}timestamp-{unit}" for local in ("", "local-")
                              for unit in ("millis", "micros", "nanos"))),
    "string": ("uuid",),
    "fixed": ("uuid", "duration"),
}  # fmt: skip
#: Of a field that has no default; null is one.
NO_DEFAULT: Final = object()
_DIGITS_OF_A_BIT: Final = math.log10(2)


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record."""

    name: str
    aliases: tuple[str, ...]
    type: AvroType
    default: object = NO_DEFAULT


@dataclass(slots=True, eq=False)
class AvroType:
    """``kind`` is the specification's name of the type, ``name`` the full name of a named one. A
    record may hold itself. ``inner`` are a union's branches, or the items or values.
    """

    kind: str
    name: str = ""
    logical: str = ""
    fields: list[AvroField] = field(default_factory=list)
    inner: tuple[AvroType, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    precision: int = 0
    scale: int = 0
    #: Why columns don't fit it, by their ids: of one match.
    problems: dict[int, SchemaError] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """For messages."""
        if self.kind == "union":
            return f"[{', '.join(branch.text for branch in self.inner)}]"
        shown = self.logical or self.kind
        if self.logical == "decimal":
            shown = f"decimal({self.precision},{self.scale})"
        return f"{shown} {self.name}".rstrip()


def parse_schema(text: str) -> AvroType:
    """The type that ``text`` declares. Raises SchemaError."""
    try:
        declared = json.loads(text)
    except (ValueError, RecursionError):
        if text.strip() not in _PRIMITIVES:
            raise _wrong("it is not JSON") from None
        declared = text.strip()  # string, as some write it, for "string"
    try:
        return _Parser().type(declared, "")
    except RecursionError:
        raise _wrong("it is nested too deeply") from None
    except (KeyError, TypeError, AttributeError) as error:
        what = safe_text(str(error), 100)
        raise _wrong(f"something is missing, or of another type than Avro's: {what}") from None


class _Parser:
    """One text: named types are known from their declaration on. KeyError, TypeError and
    AttributeError are raised for what is not there, or something else.
    """

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def type(self, declared: Any, space: str) -> AvroType:  # noqa: ANN401 - of JSON
        if isinstance(declared, str):
            return self._by_name(declared, space)
        if isinstance(declared, list):
            branches = tuple([self.type(one, space) for one in declared])
            names = [branch.name or branch.kind for branch in branches]
            if not names or "union" in names or len(set(names)) < len(names):
                raise _wrong("a union is empty, or holds a union, or has a type twice")
            return AvroType("union", inner=branches)
        kind = declared["type"]
        if kind in ("array", "map"):
            return AvroType(kind, inner=(self.type(declared[_INNER[kind]], space),))
        if kind in ("record", "error", "enum", "fixed"):
            return self._declaration(kind, declared, space)
        found = self.type(kind, space)
        return _with_logical(found, declared) if found.kind == kind else found

    def _by_name(self, name: str, space: str) -> AvroType:
        if name in _PRIMITIVES:
            return AvroType(name)
        known = self._named.get(_full(name, space)) or self._named.get(name)
        if known is None:
            raise _wrong(f"type {safe_text(name)} is not declared")
        return known

    def _declaration(self, kind: str, declared: Mapping[str, Any], space: str) -> AvroType:
        name = _full(declared["name"], declared.get("namespace", space))
        if name in self._named or _NAME.fullmatch(name.rpartition(".")[2]) is None:
            raise _wrong(f"{safe_text(name)} is no name of a type, or declared twice")
        found = self._named[name] = AvroType("record" if kind == "error" else kind, name)
        if kind == "enum":
            found.symbols = tuple(map(str, declared["symbols"]))
            _check_names(found.symbols, name)
        elif kind == "fixed":
            found.size = _whole(declared["size"])
            return _with_logical(found, declared)
        else:
            inside = name.rpartition(".")[0]
            for one in declared["fields"]:
                kind_of = self.type(one["type"], inside)
                aliases = tuple(map(str, one.get("aliases") or ()))
                default = one.get("default", NO_DEFAULT)
                found.fields.append(AvroField(str(one["name"]), aliases, kind_of, default))
            _check_names([one.name for one in found.fields], name)
        return found


def _with_logical(found: AvroType, declared: Mapping[str, Any]) -> AvroType:
    """The logical type counts when it is one of the type; else readers ignore it, as here."""
    logical = declared.get("logicalType")
    if logical == "decimal" and found.kind in ("bytes", "fixed"):
        precision, scale = declared.get("precision"), declared.get("scale", 0)
        found.precision, found.scale = _whole(precision), _whole(scale, least=0)
        digits = (8 * found.size - 1) * _DIGITS_OF_A_BIT
        most = digits if found.kind == "fixed" else found.precision
        if found.scale > found.precision or found.precision > most:
            raise _wrong(
                f"decimal({found.precision},{found.scale}) is none, or its fixed too short"
            )
        found.logical = logical
    elif logical in LOGICAL.get(found.kind, ()):
        found.logical = str(logical)
    return found


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _check_names(names: Sequence[str], owner: str) -> None:
    """Of fields or symbols."""
    if len(set(names)) < len(names) or not all(map(_NAME.fullmatch, names)):
        raise _wrong(f"{owner} has a field or symbol twice, or one that is no name")


def _whole(given: object, least: int = 1) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise _wrong(f"{safe_text(str(given))} is not a number of at least {least}")
    return given


def _wrong(problem: str) -> SchemaError:
    return unusable(f"the Avro schema can't be used: {problem}")


def derived_schema(column: ColumnType, name: str) -> str:
    """The JSON of a schema of ``column``, whose record has this name."""
    made = _type(replace(column, nullable=False), name, "", set())
    return json.dumps(made, separators=(",", ":"))


def _type(column: ColumnType, name: str, path: str, used: set[str]) -> object:
    """``name`` is that of a record, if it is free: those of others are in ``used``."""
    kind, logical = column.kind.avro
    made: object = kind
    if column.kind is ColumnKind.STRUCT:
        made = _record(column, name, path, used)
    elif kind in _INNER:
        if column.kind is ColumnKind.MAP:
            check_map_key(column, path)
        inner = _type(column.children[-1], name, f"{path}[]", used)
        made = {"type": kind, _INNER[kind]: inner}
    elif logical:
        digits = {"precision": column.precision, "scale": column.scale} if column.precision else {}
        made = {"type": kind, "logicalType": logical, **digits}
    return ["null", made] if column.nullable and made != "null" else made


def _record(column: ColumnType, name: str, path: str, used: set[str]) -> object:
    """Names of records within others are the path to them, and each is there once."""
    while name in used:
        name += "_"
    used.add(name)
    fields = []
    for field_name, child in zip(column.names, column.children, strict=True):
        inside = below(path, field_name)
        hint = ", or name a schema whose field has this name as an alias"
        check_name(_NAME, field_name, inside, "Avro", hint)
        kind = _type(child, f"{name}_{field_name}", inside, used)
        default = {"default": None} if child.nullable or kind == "null" else {}
        fields.append({"name": field_name, "type": kind, **default})
    space, _, short = name.rpartition(".")
    named = {"name": short, "namespace": space} if space else {"name": short}
    return {"type": "record", **named, "fields": fields}
