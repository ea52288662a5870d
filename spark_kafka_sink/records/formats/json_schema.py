"""JSON with a schema: the JSON that ``valueFormat=json`` writes, after the id of its schema.

Owns: :class:`JsonSchemaFormat`: a schema of columns, and whether columns fit a schema. Never: the
text of values (``records/json``), which is not compared with what a schema says of values
(``pattern``, ``minimum``, ``enum``), as serializers don't by default.

Nulls are left out. So a field that a schema requires is refused where its column is null, and a
null in an array or a map must be allowed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from spark_kafka_sink.base.errors import SchemaError, safe_text
from spark_kafka_sink.base.json_object import json_object
from spark_kafka_sink.records.formats.binary import matching
from spark_kafka_sink.records.formats.binary.matching import unfit
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.schema_format import SchemaFormat
from spark_kafka_sink.records.nodes import JsonText, Value

_K = ColumnKind
_NULL: Final = ColumnType(_K.NULL, "void")
_DIALECT: Final = "http://json-schema.org/draft-07/schema#"
#: Steps through references and alternatives: those of one document could go round for ever.
_MOST_STEPS: Final = 200_000


#: A part of a schema.
_Json = Any
#: The way to a field, and its path.
_Required = tuple[tuple[int, ...], str]


class _Place(NamedTuple):
    """Of a column within the payload: ``way`` are the indexes of fields on the way to it, None
    within an array or a map.
    """

    path: str = ""
    way: tuple[int, ...] | None = ()


class JsonSchemaFormat(SchemaFormat):
    """``SchemaFormat`` of JSON Schema."""

    schema_type = "JSON"

    def derive(self, column: ColumnType, name: str) -> str:
        made = {"$schema": _DIALECT, "title": name, **_derived(column)}
        return json.dumps(made, separators=(",", ":"))

    def is_bare(self, schema: str) -> bool:
        given = _parsed(schema).get("type")
        return given is not None and "object" not in str(given)

    def name_of(self, schema: str) -> str:
        title = _parsed(schema).get("title")
        return title if isinstance(title, str) else ""

    def match(self, schema: str, column: ColumnType) -> Value:
        root = _parsed(schema)
        try:
            required = tuple(_Check(root).required(root, column, _Place()))
        except RecursionError:
            raise _wrong("it is nested too deeply, or within itself") from None
        except _UnusableError as error:
            raise _wrong(str(error)) from None
        except (TypeError, AttributeError) as error:
            raise _wrong(f"a part of it is of another type than JSON Schema's: {error}") from None
        return Value(JsonText(required))


def _derived(column: ColumnType) -> dict[str, object]:
    made = dict(column.kind.json)
    if column.kind is _K.STRUCT:
        fields = dict(zip(column.names, column.children, strict=True))
        made["properties"] = {name: _derived(child) for name, child in fields.items()}
        if required := [name for name, child in fields.items() if not child.nullable]:
            made["required"] = required
    elif column.children:
        item = _derived(column.children[-1])
        inner = {"oneOf": [{"type": "null"}, item]} if column.children[-1].nullable else item
        made["items" if column.kind is _K.ARRAY else "additionalProperties"] = inner
    return made


class _UnusableError(Exception):
    """Of the schema, whatever the columns are."""


class _Check:
    """Columns against one schema. SchemaError is raised when they don't fit, _UnusableError,
    TypeError and AttributeError (of a part that is of another type) for the schema itself.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self._steps = 0
        # Draft 7 and older ignore what is beside a reference.
        self._beside_references = "/draft/20" in str(root.get("$schema"))

    def required(self, declared: _Json, column: ColumnType, at: _Place) -> Iterator[_Required]:
        """The fields whose nulls are refused. SchemaError when ``column`` does not fit."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise _UnusableError("it has too many alternatives within each other")
        if declared is True:
            return
        if declared is False:
            raise unfit(column, at.path, "and the schema allows nothing")
        if "$ref" in declared:
            yield from self.required(self._referred(declared["$ref"]), column, at)
            if not self._beside_references:
                return
        alternatives = [*(declared.get("oneOf") or ()), *(declared.get("anyOf") or ())]
        if alternatives:
            yield from self._one_of(alternatives, column, at)
        types = _types(declared)
        wanted = column.kind.json["type"]
        if types and wanted not in types and not (wanted == "integer" and "number" in types):
            raise unfit(column, at.path, f"and the schema has {safe_text(' or '.join(types))}")
        if column.kind is _K.STRUCT:
            yield from self._struct(declared, column, at)
        elif column.children:
            inner = declared.get("items", True) if wanted == "array" else _rest(declared)
            yield from self._inner(inner, column.children[-1], at)

    def _one_of(self, branches: list[_Json], column: ColumnType, at: _Place) -> Iterator[_Required]:
        problem: SchemaError | None = None
        fitting: list[list[_Required]] = []
        for branch in branches:
            try:
                fitting.append(list(self.required(branch, column, at)))
            except SchemaError as error:
                if _types(branch) != ["null"]:
                    problem = error
        if not fitting:
            raise problem or unfit(column, at.path, "and the schema has no type for it")
        # Which of them a row is of is not looked at, so what all of them require.
        yield from (one for one in fitting[0] if all(one in other for other in fitting))

    def _inner(self, declared: _Json, child: ColumnType, at: _Place) -> Iterator[_Required]:
        if isinstance(declared, list):
            said = f"items of {safe_text(at.path)} is a list, a schema for each position"
            raise _UnusableError(said)
        inside = _Place(f"{at.path}[]", None)
        if child.nullable:
            try:
                list(self.required(declared, _NULL, inside))
            except SchemaError:
                what = "may be null, and the schema allows no null there"
                raise unfit(child, inside.path, what) from None
        yield from self.required(declared, child, inside)

    def _struct(self, declared: _Json, column: ColumnType, at: _Place) -> Iterator[_Required]:
        properties, required = declared.get("properties") or {}, declared.get("required") or []
        rest = _rest(declared)
        for index, (name, child, path) in enumerate(matching.fields_of(column, at.path)):
            if name not in properties and rest is False:
                raise unfit(child, path, "and the schema has no such property, and no other")
            way = None if at.way is None else (*at.way, index)
            yield from self.required(properties.get(name, rest), child, _Place(path, way))
            if name in required and child.nullable:
                if way is None:
                    raise unfit(child, path, "may be null in an array, and the schema requires it")
                yield way, path
        missing = next((str(name) for name in required if name not in column.names), None)
        if missing is not None:
            hint = ": names of JSON are those of the columns, letter by letter"
            raise matching.missing(matching.below(at.path, missing), "is required", hint)

    def _referred(self, reference: object) -> object:
        found: _Json = self.root
        if not isinstance(reference, str) or reference.partition("/")[0] != "#":
            raise _UnusableError("it refers to another document, or to a name instead of a path")
        for part in reference.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        if found is None:
            raise _UnusableError(f"{safe_text(reference)} is not in it")
        return found


def _rest(declared: _Json) -> _Json:
    """The schema of properties without a name in it; patterns are not looked at."""
    return "patternProperties" in declared or declared.get("additionalProperties", True)


def _types(declared: object) -> list[str]:
    given = declared.get("type", ()) if isinstance(declared, dict) else ()
    return [given] if isinstance(given, str) else list(map(str, given))


def _parsed(schema: str) -> dict[str, Any]:
    found = json_object(schema)
    if found is None:
        raise _wrong("it is no JSON object")
    return found


def _wrong(problem: str) -> SchemaError:
    return matching.unusable(f"the JSON schema can't be used: {problem}")
