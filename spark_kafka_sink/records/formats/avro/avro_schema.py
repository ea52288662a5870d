"""Avro schemas, read from their JSON (the specification's 1.12).

Owns: :class:`AvroType`, and :func:`parse_schema`, which refuses what no reader would accept.
Never: columns (``column_match``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import SchemaError, safe_text

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL_NAME: Final = re.compile(rf"{_NAME.pattern}(\.{_NAME.pattern})*")
#: Of a field that has no default; null is one.
NO_DEFAULT: Final = object()
#: Nested deeper than any schema that is meant.
_DEEPEST: Final = 64


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
        if _FULL_NAME.fullmatch(text.strip()) is None:
            raise _wrong("it is not JSON") from None
        declared = text.strip()  # string, as some write it, for "string"
    return _Parser().type(declared, "", 0)


def same_type(one: AvroType, other: AvroType) -> bool:
    """Whether both encode every value as the same bytes, with the same names."""
    return _same(one, other, set())


def _same(one: AvroType, other: AvroType, seen: set[tuple[int, int]]) -> bool:
    if (id(one), id(other)) in seen:
        return True
    seen.add((id(one), id(other)))
    plain = ("kind", "name", "logical", "symbols", "size", "precision", "scale")
    if any(getattr(one, name) != getattr(other, name) for name in plain):
        return False
    if [f.name for f in one.fields] != [f.name for f in other.fields]:
        return False
    if len(one.inner) != len(other.inner):
        return False
    pairs = [*zip(one.inner, other.inner, strict=True)]
    pairs += [(a.type, b.type) for a, b in zip(one.fields, other.fields, strict=True)]
    return all(_same(a, b, seen) for a, b in pairs)


class _Parser:
    """One text: named types are known from their declaration on."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def type(self, declared: object, space: str, depth: int) -> AvroType:
        if depth > _DEEPEST:
            raise _wrong(f"it is nested deeper than {_DEEPEST} levels")
        if isinstance(declared, str):
            return self._by_name(declared, space)
        if isinstance(declared, list):
            return self._union(declared, space, depth)
        if not isinstance(declared, dict):
            raise _wrong("a type is a name, an object or an array")
        kind = declared.get("type")
        if isinstance(kind, dict | list) and not _NAMED.intersection(declared):
            return self.type(kind, space, depth + 1)
        if not isinstance(kind, str):
            raise _wrong("an object has no type")
        if kind in _NAMED:
            return self._declaration(kind, declared, space, depth)
        if kind in ("array", "map"):
            inner = self.type(
                declared.get("items" if kind == "array" else "values"), space, depth + 1
            )
            return AvroType(kind, inner=(inner,))
        found = self._by_name(kind, space)
        return _with_logical(found, declared) if kind in PRIMITIVES else found

    def _by_name(self, name: str, space: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        known = self._named.get(_full(name, space)) or self._named.get(name)
        if known is None:
            raise _wrong(f"type {safe_text(name)} is not declared")
        return known

    def _union(self, declared: Sequence[object], space: str, depth: int) -> AvroType:
        branches = tuple(self.type(one, space, depth + 1) for one in declared)
        if any(branch.kind == "union" for branch in branches):
            raise _wrong("a union holds a union")
        names = [branch.name or branch.kind for branch in branches]
        if not names or len(set(names)) < len(names):
            raise _wrong("a union is empty, or has a type twice")
        return AvroType("union", inner=branches)

    def _declaration(
        self, kind: str, declared: Mapping[str, Any], space: str, depth: int
    ) -> AvroType:
        given = declared.get("name")
        if not isinstance(given, str) or _FULL_NAME.fullmatch(given) is None:
            raise _wrong(f"{safe_text(str(given))} is no name of a type")
        name = _full(given, declared.get("namespace") or space)
        if name in self._named:
            raise _wrong(f"type {name} is declared twice")
        found = self._named[name] = AvroType("record" if kind == "error" else kind, name)
        if kind == "enum":
            found.symbols = _symbols(declared.get("symbols"), name)
        elif kind == "fixed":
            found.size = _whole(declared.get("size"), f"size of {name}")
            return _with_logical(found, declared)
        else:
            fields = declared.get("fields")
            if not isinstance(fields, list):
                raise _wrong(f"record {name} has no fields")
            inside = name.rpartition(".")[0]
            found.fields = [self._field(one, name, inside, depth) for one in fields]
            names = [one.name for one in found.fields]
            if len(set(names)) < len(names):
                raise _wrong(f"record {name} has a field twice")
        return found

    def _field(self, declared: object, record: str, space: str, depth: int) -> AvroField:
        name = declared.get("name") if isinstance(declared, dict) else None
        if not isinstance(declared, dict) or not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _wrong(f"a field of record {record} has no name, or one that is not allowed")
        aliases = declared.get("aliases") or []
        kind = self.type(declared.get("type"), space, depth + 1)
        return AvroField(name, tuple(map(str, aliases)), kind, declared.get("default", NO_DEFAULT))


def _with_logical(found: AvroType, declared: Mapping[str, Any]) -> AvroType:
    """The logical type counts when it is one of the type; else readers ignore it, as here."""
    logical = declared.get("logicalType")
    if logical == "decimal" and found.kind in ("bytes", "fixed"):
        found.precision = _whole(declared.get("precision"), "a decimal's precision")
        found.scale = _whole(declared.get("scale", 0), "a decimal's scale", least=0)
        found.logical = logical
    elif isinstance(logical, str) and found.kind in _LOGICAL.get(logical, ()):
        found.logical = logical
    return found


_LOGICAL: Final = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    **dict.fromkeys(
        (
            f"{local}timestamp-{unit}"
            for local in ("", "local-")
            for unit in ("millis", "micros", "nanos")
        ),
        ("long",),
    ),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
}


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _symbols(given: object, name: str) -> tuple[str, ...]:
    if (
        not isinstance(given, list)
        or not all(isinstance(one, str) and _NAME.fullmatch(one) for one in given)
        or len(set(given)) < len(given)
    ):
        raise _wrong(f"the symbols of enum {name} are not names, or one is there twice")
    return tuple(given)


def _whole(given: object, what: str, least: int = 1) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise _wrong(f"the {what} is not a number of at least {least}")
    return given


def _wrong(problem: str) -> SchemaError:
    return SchemaError(f"the Avro schema can't be used: {problem}", kind=Kind.UNUSABLE_SCHEMA)
