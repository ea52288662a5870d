"""JSON with a schema: the JSON that ``valueFormat=json`` writes, after the id of its schema.

Owns: :class:`JsonSchemaFormat`: a schema of columns, and whether columns fit a schema. Never: the
text of values (``records/json``), which is not compared with what a schema says of values
(``pattern``, ``minimum``, ``enum``), as serializers don't by default.

Nulls are left out. So a field that a schema requires is refused where its column is null, and a
null in an array or a map must be allowed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spark_kafka_sink.base.documentation import page_address
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import SchemaError, safe_text
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.records.payloads import Payloads

_K = ColumnKind
_DIALECT: Final = "http://json-schema.org/draft-07/schema#"
#: The JSON type of each kind of column. Floats that are no numbers are strings.
_TYPES: Final = {
    _K.BOOLEAN: {"type": "boolean"},
    _K.INT: {"type": "integer"},
    _K.LONG: {"type": "integer"},
    _K.FLOAT: {"type": "number"},
    _K.DOUBLE: {"type": "number"},
    _K.DECIMAL: {"type": "number"},
    _K.STRING: {"type": "string"},
    _K.BINARY: {"type": "string", "contentEncoding": "base64"},
    _K.DATE: {"type": "string", "format": "date"},
    _K.TIMESTAMP: {"type": "string", "format": "date-time"},
    _K.TIMESTAMP_NTZ: {"type": "string"},
}
_ALTERNATIVES: Final = ("oneOf", "anyOf")
_DEEPEST: Final = 64


@dataclass(frozen=True, slots=True)
class Required:
    """A field that must not be left out, by the indexes of fields on the way to it."""

    path: tuple[int, ...]
    name: str


@dataclass(frozen=True, slots=True)
class JsonPlan:
    """``prefix`` and JSON; ``names`` are those of the columns, which are fields unless ``bare``."""

    prefix: bytes
    names: tuple[str, ...]
    required: tuple[Required, ...]
    bare: bool

    def encode(self, columns: Sequence[pa.Array], rows: int, path: str) -> Payloads:
        """One payload for each row."""
        del path
        from spark_kafka_sink.records.formats.row_pieces import RowPieces
        from spark_kafka_sink.records.json.json_text import json_objects, json_value

        text = json_value(columns[0]) if self.bare else json_objects(self.names, columns, rows)
        out = RowPieces(rows)
        out.add_bytes(self.prefix)
        out.add_column(text)
        for one in self.required:
            _refuse_nulls(out, columns[0] if self.bare else None, columns, one)
        return out.payloads(text if self.bare else None)


def _refuse_nulls(
    out: Any,  # noqa: ANN401 - a RowPieces, which is not imported on the driver
    whole: pa.Array | None,
    columns: Sequence[pa.Array],
    required: Required,
) -> None:
    """The rows whose parent is there and whose field is not."""
    import numpy as np

    parents = np.ones(out.rows, np.bool_)
    path = required.path
    if whole is not None:
        parents = whole.is_valid().to_numpy(zero_copy_only=False)
        column, path = whole.field(path[0]), path[1:]
    else:
        column, path = columns[path[0]], path[1:]
    for index in path:
        parents = parents & column.is_valid().to_numpy(zero_copy_only=False)
        column = column.field(index)
    nulls = parents & ~column.is_valid().to_numpy(zero_copy_only=False)
    out.refuse(nulls, required.name, "is null, and the schema requires the field")


class JsonSchemaFormat:
    """``SchemaFormat`` of JSON Schema."""

    schema_type = "JSON"
    has_bare = True

    def derive(self, column: ColumnType, name: str) -> str:
        made = {"$schema": _DIALECT, "title": name, **_derived(column, "")}
        return json.dumps(made, separators=(",", ":"))

    def is_bare(self, schema: str) -> bool:
        declared = _parsed(schema)
        return "object" not in _types(declared) if "type" in declared else False

    def name_of(self, schema: str) -> str:
        title = _parsed(schema).get("title")
        return title if isinstance(title, str) else ""

    def same(self, one: str, other: str) -> bool:
        return _parsed(one) == _parsed(other)

    def plan(self, schema: str, prefix: bytes, column: ColumnType, *, bare: bool) -> JsonPlan:
        declared = _parsed(schema)
        check = _Check(declared)
        check.type(declared, column, "", (), 0)
        return JsonPlan(prefix, column.names, tuple(check.required), bare)


def _derived(column: ColumnType, path: str) -> dict[str, object]:
    if column.kind is _K.STRUCT:
        fields = zip(column.names, column.children, strict=True)
        made: dict[str, object] = {
            "type": "object",
            "properties": {n: _derived(c, f"{path}.{n}" if path else n) for n, c in fields},
        }
        required = [
            name
            for name, child in zip(column.names, column.children, strict=True)
            if not child.nullable
        ]
        return made | ({"required": required} if required else {})
    if column.kind is _K.ARRAY:
        return {"type": "array", "items": _or_null(column.children[0], f"{path}[]")}
    if column.kind is _K.MAP:
        values = _or_null(column.children[1], f"{path}[]")
        return {"type": "object", "additionalProperties": values}
    if column.kind is _K.NULL:
        return {"type": "null"}
    return dict(_TYPES[column.kind])


def _or_null(column: ColumnType, path: str) -> dict[str, object]:
    made = _derived(column, path)
    return {"oneOf": [{"type": "null"}, made]} if column.nullable else made


class _Check:
    """Columns against one schema; ``required`` are the fields whose nulls are refused."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self.required: list[Required] = []

    def type(
        self,
        declared: object,
        column: ColumnType,
        path: str,
        indexes: tuple[int, ...] | None,
        depth: int,
    ) -> None:
        """SchemaError when ``column`` does not fit. ``indexes`` None: within an array or a map."""
        if depth > _DEEPEST:
            raise _wrong(f"it is nested deeper than {_DEEPEST} levels")
        if declared is True:
            return None
        if not isinstance(declared, dict):
            raise _misfit(column, path, "allows nothing")
        if "$ref" in declared:
            return self.type(self._referred(declared["$ref"]), column, path, indexes, depth + 1)
        for name in _ALTERNATIVES:
            if name in declared:
                return self._one_of(declared[name], column, path, indexes, depth)
        wanted = str(_TYPES.get(column.kind, {}).get("type", _CONTAINERS.get(column.kind, "null")))
        types = _types(declared)
        if types and wanted not in types and not (wanted == "integer" and "number" in types):
            raise _misfit(column, path, f"has {' or '.join(types)}")
        if column.kind is _K.STRUCT:
            self._struct(declared, column, path, indexes, depth)
        elif column.kind is _K.ARRAY:
            item = column.children[0]
            self._inner(declared.get("items", True), item, f"{path}[]", depth)
        elif column.kind is _K.MAP:
            value = column.children[1]
            self._inner(declared.get("additionalProperties", True), value, f"{path}[]", depth)
        return None

    def _one_of(
        self,
        branches: object,
        column: ColumnType,
        path: str,
        indexes: tuple[int, ...] | None,
        depth: int,
    ) -> None:
        problem: SchemaError | None = None
        for branch in branches if isinstance(branches, list) else []:
            before = len(self.required)
            try:
                return self.type(branch, column, path, indexes, depth + 1)
            except SchemaError as error:
                del self.required[before:]
                if _types(branch) != ["null"]:
                    problem = error
        raise problem or _misfit(column, path, "has no type for it")

    def _inner(self, declared: object, column: ColumnType, path: str, depth: int) -> None:
        """Of an array or a map, whose nulls are written."""
        if column.nullable and not _allows_null(declared):
            raise _misfit(column, path, "does not allow a null there, which the column may have")
        self.type(declared, column, path, None, depth + 1)

    def _struct(
        self,
        declared: Mapping[str, Any],
        column: ColumnType,
        path: str,
        indexes: tuple[int, ...] | None,
        depth: int,
    ) -> None:
        properties = declared.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = declared.get("required")
        required = required if isinstance(required, list) else []
        rest = declared.get("additionalProperties", True)
        for at, (name, child) in enumerate(zip(column.names, column.children, strict=True)):
            below = f"{path}.{name}" if path else name
            if name not in properties and rest is False:
                raise _misfit(child, below, "has no such property, and allows no other")
            inner = None if indexes is None else (*indexes, at)
            self.type(properties.get(name, rest), child, below, inner, depth + 1)
            if name in required and child.nullable:
                if inner is None:
                    raise _misfit(child, below, "requires it, and within an array it may be null")
                self.required.append(Required(inner, below))
        missing = [name for name in required if name not in column.names]
        if missing:
            raise SchemaError(
                f"the schema requires {safe_text(str(missing[0]))}"
                f"{f' of {safe_text(path)}' if path else ''}, and there is no column for it",
                hint="add a column of that name: names of JSON are those of the columns, letter by"
                " letter",
                kind=Kind.COLUMNS_AND_SCHEMA,
            )

    def _referred(self, reference: object) -> object:
        found: Any = self._root
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise _wrong("it refers to another document")
        for part in reference.lstrip("#").split("/")[1:]:
            found = found.get(part) if isinstance(found, dict) else None
        if found is None:
            raise _wrong(f"{safe_text(reference)} is not in it")
        return found


_CONTAINERS: Final = {_K.STRUCT: "object", _K.MAP: "object", _K.ARRAY: "array"}


def _types(declared: object) -> list[str]:
    given = declared.get("type") if isinstance(declared, dict) else None
    return [given] if isinstance(given, str) else list(map(str, given or []))


def _allows_null(declared: object) -> bool:
    if not isinstance(declared, dict):
        return declared is True
    branches = [b for name in _ALTERNATIVES for b in declared.get(name, ())]
    types = _types(declared)
    return "null" in types or any(map(_allows_null, branches)) or not (types or branches)


def _parsed(schema: str) -> dict[str, Any]:
    try:
        found = json.loads(schema)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _wrong("it is no JSON object")
    return found


def _misfit(column: ColumnType, path: str, what: str) -> SchemaError:
    return SchemaError(
        f"column {safe_text(path) or 'of the payload'} is of type {safe_text(column.text, 200)},"
        f" and the schema {what}",
        hint="cast the column, or write with another schema; what is written as what is in"
        f" {page_address('formats')}",
        kind=Kind.COLUMNS_AND_SCHEMA,
    )


def _wrong(problem: str) -> SchemaError:
    return SchemaError(f"the JSON schema can't be used: {problem}", kind=Kind.UNUSABLE_SCHEMA)
