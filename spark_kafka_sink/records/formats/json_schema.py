"""The format JSON Schema: the same JSON as with ``valueFormat=json``, with the id of a schema in
front.

Owns: :class:`JsonSchemaFormat`, which derives a schema from columns, and checks that columns fit a
schema. Never: the text of values (``records/json``). A schema's rules for values (``pattern``,
``minimum``, ``enum``) are not checked, as in Confluent's serializers by default.

A null field is left out of the JSON, with one exception: if the schema requires the field and
allows null, ``null`` is written. (pydantic declares an ``Optional`` without a default in this way.)
A row is refused if a required field is null and the schema does not allow null, or if an array or a
map has a null that the schema does not allow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin

from spark_kafka_sink.base.errors import SchemaError, safe_text
from spark_kafka_sink.base.json_object import json_object
from spark_kafka_sink.records.formats.binary import matching
from spark_kafka_sink.records.formats.binary.matching import unfit
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.schema_format import References, SchemaFormat
from spark_kafka_sink.records.nodes import ITEMS, JsonText, Value

_K = ColumnKind
_NULL: Final = ColumnType(_K.NULL, "void")
_REQUIRED: Final = "is null, and the schema requires the field"
_DIALECT: Final = "http://json-schema.org/draft-07/schema#"
#: The limit of steps through references and alternatives: references of a document could go round
#: for ever.
_MOST_STEPS: Final = 200_000


#: A part of a schema.
_Json = Any
#: The way to a value, its path, and why its nulls are refused; "": they are written.
_Required = tuple[tuple[int, ...], str, str]


class _Place(NamedTuple):
    """The place of a column in the JSON. ``path`` is its name for messages. ``way`` is its path as
    a tuple of indexes, as in ``nodes.JsonText``.
    """

    path: str = ""
    way: tuple[int, ...] = ()


class JsonSchemaFormat(SchemaFormat):
    """The format JSON Schema. Implements :class:`SchemaFormat`."""

    schema_type = "JSON"

    def derive(self, column: ColumnType, name: str) -> str:
        made = {"$schema": _DIALECT, "title": name, **_derived(column)}
        return json.dumps(made, separators=(",", ":"))

    def is_bare(self, schema: str, references: References = ()) -> bool:
        del references
        given = _parsed(schema).get("type")
        return given is not None and "object" not in str(given)

    def name_of(self, schema: str, references: References = ()) -> str:
        del references
        title = _parsed(schema).get("title")
        return title if isinstance(title, str) else ""

    def match(self, schema: str, column: ColumnType, references: References = ()) -> Value:
        root = _parsed(schema)
        others = {name: _parsed(text) for name, text in references}
        try:
            check = _Check(root, others)
            # A branch may require what another does, too.
            found = dict.fromkeys(check.required(root, column, _Place()))
        except RecursionError:
            raise _wrong("it is nested too deeply, or within itself") from None
        except _UnusableError as error:
            raise _wrong(str(error), error.hint) from None
        except (TypeError, AttributeError) as error:
            raise _wrong(f"a part of it is of another type than JSON Schema's: {error}") from None
        required = tuple(one for one in found if one[2])
        return Value(JsonText(required, frozenset(way for way, _, why in found if not why)))


def _derived(column: ColumnType) -> dict[str, object]:
    made = dict(column.kind.json)
    if column.kind is _K.STRUCT:
        fields = dict(zip(column.names, column.children, strict=True))
        made["properties"] = {name: _derived(child) for name, child in fields.items()}
        if required := [name for name, child in fields.items() if not child.nullable]:
            made["required"] = required
    elif column.children:
        child = column.children[-1]
        inner = _derived(child)
        # Two branches that are null would both be valid for a null, and oneOf takes one only.
        if child.nullable and child.kind is not _K.NULL:
            inner = {"oneOf": [{"type": "null"}, inner]}
        made["items" if column.kind is _K.ARRAY else "additionalProperties"] = inner
    return made


class _UnusableError(Exception):
    """Raised if the schema itself is invalid, so that no columns can be written with it."""

    def __init__(self, problem: str, hint: str | None = None) -> None:
        super().__init__(problem)
        self.hint = hint


class _Check:
    """Checks that columns fit one schema.

    Raises SchemaError if they do not fit. Raises _UnusableError if the schema is invalid. TypeError
    or AttributeError is raised if a part of the schema's JSON has a wrong type.
    """

    def __init__(self, root: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> None:
        self.root = root
        self._others = dict(others)
        self._steps = 0
        # A document is also known by its own address.
        for one in others.values():
            self._others.setdefault(str(one.get("$id")).rstrip("#"), one)

    def required(self, declared: _Json, column: ColumnType, at: _Place) -> Iterator[_Required]:
        """Finds the values in ``column`` whose nulls are not left out. Such a null is written as
        ``null``, or its row can't be sent. Yields for each value its path, its name for messages,
        and the reason why its row can't be sent. The reason is empty if ``null`` is written.

        ``declared`` is the schema of the column, and ``at`` its place. Raises SchemaError if the
        column does not fit the schema.
        """
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise _UnusableError("it has too many alternatives within each other")
        if declared is True:
            return
        if declared is False:
            raise unfit(column, at.path, "and the schema allows nothing")
        if "$ref" in declared:
            here = self.root
            # A referenced schema is in a document whose own references are within it.
            self.root, target = self._referred(declared["$ref"])
            found = list(self.required(target, column, at))
            self.root = here
            yield from found
            # Draft 7 and older ignore what is beside a reference.
            if "/draft/20" not in str(here.get("$schema")):
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
        inside = _Place(f"{at.path}[]", (*at.way, ITEMS))
        if child.nullable and child.kind is not _K.NULL and not self._allows_null(declared):
            yield inside.way, inside.path, "is null, and the schema allows no null there"
        yield from self.required(declared, child, inside)

    def _allows_null(self, declared: _Json) -> bool:
        here = self.root
        try:
            list(self.required(declared, _NULL, _Place()))
        except SchemaError:
            return False
        finally:
            self.root = here
        return True

    def _struct(self, declared: _Json, column: ColumnType, at: _Place) -> Iterator[_Required]:
        properties, required = declared.get("properties") or {}, declared.get("required") or []
        rest = _rest(declared)
        for index, (name, child, path) in enumerate(matching.fields_of(column, at.path)):
            if name not in properties and rest is False:
                raise unfit(child, path, "and the schema has no such property, and no other")
            way = (*at.way, index)
            inner = properties.get(name, rest)
            yield from self.required(inner, child, _Place(path, way))
            if name in required and child.nullable:
                why = "" if self._allows_null(inner) else _REQUIRED
                yield way, path, why
        missing = next((str(name) for name in required if name not in column.names), None)
        if missing is not None:
            hint = ": names in JSON are the columns' names, letter by letter"
            raise matching.missing(matching.below(at.path, missing), "is required", hint)

    def _referred(self, reference: object) -> tuple[Mapping[str, Any], _Json]:
        """Finds the target of a ``$ref``. Returns its document, and the part of the document that
        it refers to.
        """
        address, _, path = str(reference).partition("#")
        root = self.root
        if address:
            base = str(root.get("$id") or "")
            known = (self._others.get(one) for one in (address, urljoin(base, address)))
            root = next((one for one in known if one is not None), {})
        if not root or (path and not path.startswith("/")):
            raise _UnusableError(
                f"{safe_text(str(reference))} is no path in it, and none of its references",
                matching.WITH_REFERENCES,
            )
        found: _Json = root
        for part in path.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        if found is None:
            raise _UnusableError(f"{safe_text(str(reference))} is not in it")
        return root, found


def _rest(declared: _Json) -> _Json:
    """The schema of properties that the schema does not name (``additionalProperties``).
    ``patternProperties`` is ignored.
    """
    return "patternProperties" in declared or declared.get("additionalProperties", True)


def _types(declared: object) -> list[str]:
    given = declared.get("type", ()) if isinstance(declared, dict) else ()
    return [given] if isinstance(given, str) else list(map(str, given))


def _parsed(schema: str) -> dict[str, Any]:
    found = json_object(schema)
    if found is None:
        raise _wrong("it is no JSON object")
    return found


def _wrong(problem: str, hint: str | None = None) -> SchemaError:
    return matching.unusable(f"the JSON schema can't be used: {problem}", hint)
