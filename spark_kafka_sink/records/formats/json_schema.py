"""The format JSON Schema: the id of a schema, and then the same JSON as ``valueFormat=json``.

This module derives a schema from columns, and checks that columns fit a schema. A schema's rules
for values (``pattern``, ``minimum``, ``enum``) are not checked. Confluent's serializers do not
check them by default either.

The schema determines what becomes of a null field:

* The schema requires the field and allows null: ``null`` is written. (pydantic declares an
  ``Optional`` without a default in this way.)
* The schema requires the field and does not allow null: the row can't be sent.
* The schema does not require the field: the field is left out of the JSON.

A null in an array, or as a value in a map, is written if the schema allows this null. If the schema
does not allow this null, the row can't be sent.
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


#: The JSON of a part of a schema.
_Json = Any


class _Part(NamedTuple):
    """A part of a schema, and the whole ``document`` that contains the part. References in the part
    are resolved in this document.
    """

    json: _Json
    document: Mapping[str, Any]

    def inner(self, json: _Json) -> _Part:
        """Creates a part with the JSON ``json``, in the same document as this part."""
        return _Part(json, self.document)


class _NullRule(NamedTuple):
    """A rule for the nulls at one place in the JSON.

    * ``way``, ``path``: the place, as in :class:`_Place`.
    * ``refusal``: the reason why a row with a null at this place can't be sent. If it is empty, the
      row can be sent, and ``null`` is written.

    At a place without a rule, a null field is left out of the JSON. A null in an array, or as a
    value in a map, is written.
    """

    way: tuple[int, ...]
    path: str
    refusal: str


class _Place(NamedTuple):
    """The place of a column in the JSON. ``path`` is the path of this place as a text for messages.
    ``way`` is the same path as a tuple of indexes, as in ``nodes.JsonText``.
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
            check = _Check(others)
            # A branch may require what another does, too.
            rules = dict.fromkeys(check.null_rules(_Part(root, root), column, _Place()))
        except RecursionError:
            raise _wrong("it is nested too deeply, or within itself") from None
        except _UnusableError as error:
            raise _wrong(str(error), error.hint) from None
        except (TypeError, AttributeError) as error:
            raise _wrong(f"a part of it is of another type than JSON Schema's: {error}") from None
        required = tuple((rule.way, rule.path, rule.refusal) for rule in rules if rule.refusal)
        return Value(JsonText(required, frozenset(rule.way for rule in rules if not rule.refusal)))


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
    """Checks that columns fit one schema. ``others`` are the documents that the schema refers to,
    by name.

    The methods raise these errors:

    * SchemaError: the columns do not fit.
    * _UnusableError: the schema is invalid.
    * TypeError, AttributeError: a part of the schema's JSON has a wrong type.
    """

    def __init__(self, others: Mapping[str, Mapping[str, Any]]) -> None:
        self._others = dict(others)
        self._steps = 0
        # A document is also known by its own address.
        for document in others.values():
            self._others.setdefault(str(document.get("$id")).rstrip("#"), document)

    def null_rules(self, part: _Part, column: ColumnType, at: _Place) -> Iterator[_NullRule]:
        """Yields the rules for nulls in ``column``, one for each place in the JSON that needs a
        rule.

        ``part`` is the schema of the column, and ``at`` is the place of the column. Raises
        SchemaError if the column does not fit the schema.
        """
        declared = part.json
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise _UnusableError("it has too many alternatives within each other")
        if declared is True:
            return
        if declared is False:
            raise unfit(column, at.path, "and the schema allows nothing")
        if "$ref" in declared:
            yield from self.null_rules(self._target(declared["$ref"], part.document), column, at)
            # Draft 7 and older ignore what is beside a reference.
            if "/draft/20" not in str(part.document.get("$schema")):
                return
        alternatives = [*(declared.get("oneOf") or ()), *(declared.get("anyOf") or ())]
        if alternatives:
            yield from self._one_of(list(map(part.inner, alternatives)), column, at)
        types = _types(declared)
        wanted = column.kind.json["type"]
        if types and wanted not in types and not (wanted == "integer" and "number" in types):
            raise unfit(column, at.path, f"and the schema has {safe_text(' or '.join(types))}")
        if column.kind is _K.STRUCT:
            yield from self._struct(part, column, at)
        elif column.children:
            inner = declared.get("items", True) if wanted == "array" else _rest(declared)
            yield from self._items(part.inner(inner), column.children[-1], at)

    def _one_of(self, branches: list[_Part], column: ColumnType, at: _Place) -> Iterator[_NullRule]:
        problem: SchemaError | None = None
        fitting: list[list[_NullRule]] = []
        for branch in branches:
            try:
                fitting.append(list(self.null_rules(branch, column, at)))
            except SchemaError as error:
                if _types(branch.json) != ["null"]:
                    problem = error
        if not fitting:
            raise problem or unfit(column, at.path, "and the schema has no type for it")
        # It is unknown which branch a row belongs to, so only the rules of all branches count.
        yield from (rule for rule in fitting[0] if all(rule in rules for rules in fitting))

    def _items(self, part: _Part, child: ColumnType, at: _Place) -> Iterator[_NullRule]:
        """The rules for the items of an array, or for the values of a map."""
        if isinstance(part.json, list):
            problem = f"items of {safe_text(at.path)} is a list, a schema for each position"
            raise _UnusableError(problem)
        inside = _Place(f"{at.path}[]", (*at.way, ITEMS))
        if child.nullable and child.kind is not _K.NULL and not self._allows_null(part):
            refusal = "is null, and the schema allows no null there"
            yield _NullRule(inside.way, inside.path, refusal)
        yield from self.null_rules(part, child, inside)

    def _allows_null(self, part: _Part) -> bool:
        try:
            list(self.null_rules(part, _NULL, _Place()))
        except SchemaError:
            return False
        return True

    def _struct(self, part: _Part, column: ColumnType, at: _Place) -> Iterator[_NullRule]:
        declared = part.json
        properties, required = declared.get("properties") or {}, declared.get("required") or []
        rest = _rest(declared)
        for index, (name, child, path) in enumerate(matching.fields_of(column, at.path)):
            if name not in properties and rest is False:
                raise unfit(child, path, "and the schema has no such property, and no other")
            way = (*at.way, index)
            inner = part.inner(properties.get(name, rest))
            yield from self.null_rules(inner, child, _Place(path, way))
            if name in required and child.nullable:
                refusal = "" if self._allows_null(inner) else _REQUIRED
                yield _NullRule(way, path, refusal)
        missing = next((str(name) for name in required if name not in column.names), None)
        if missing is not None:
            hint = ": names in JSON are the columns' names, letter by letter"
            raise matching.missing(matching.below(at.path, missing), "is required", hint)

    def _target(self, reference: object, source: Mapping[str, Any]) -> _Part:
        """Finds the target of a ``$ref`` in the document ``source``. If the target is in another
        document, references in the target are resolved in that document.
        """
        address, _, path = str(reference).partition("#")
        document = source
        if address:
            base = str(source.get("$id") or "")
            known = (self._others.get(name) for name in (address, urljoin(base, address)))
            document = next((found for found in known if found is not None), {})
        if not document or (path and not path.startswith("/")):
            raise _UnusableError(
                f"{safe_text(str(reference))} is no path in it, and none of its references",
                matching.WITH_REFERENCES,
            )
        target: _Json = document
        for step in path.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, dict) else None
        if target is None:
            raise _UnusableError(f"{safe_text(str(reference))} is not in it")
        return _Part(target, document)


def _rest(declared: _Json) -> _Json:
    """The schema of all properties that ``declared`` does not name (``additionalProperties``). If
    ``declared`` has ``patternProperties``, the result is true: any property is allowed.
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
