"""Converts dataclasses to JSON and back, and to JSON Schema. Each field of such a dataclass has a
description.

A :class:`Described` has the description of a field and its unit:

    rows: Annotated[int, Described("Rows that brokers have acknowledged.", "rows")]

The value of a field is a str, an int, a float, a bool, a StrEnum, another such dataclass, or a
tuple of such values. An optional field can also be None. In JSON, the names of fields are in
camelCase.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache

T = typing.TypeVar("T")

#: The field names of each class, here and in JSON.
_names: dict[type, tuple[tuple[str, str], ...]] = {}

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True, slots=True)
class Described:
    """The description of a field, as a sentence, and the unit of its values. The unit is empty if
    the values have no unit.
    """

    meaning: str
    unit: str = ""


def json_name(name: str) -> str:
    """Converts the name of a field to its name in JSON: ``max_queue_ms`` becomes ``maxQueueMs``."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def as_json(value: object) -> Json:
    """Converts a described dataclass, or the value of a field, to a value for ``json.dumps``."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple):
        return [as_json(one) for one in value]
    cls = type(value)
    names = _names.get(cls)
    if names is None:
        assert is_dataclass(cls)
        names = _names[cls] = tuple((one.name, json_name(one.name)) for one in fields(cls))
    return {shown: as_json(getattr(value, name)) for name, shown in names}


def from_json(cls: type[T], fields: Mapping[str, object]) -> T:
    """Creates a dataclass ``cls`` from a parsed JSON object. This is the inverse of
    :func:`as_json`.

    Names that ``cls`` does not have are ignored. (A later version of this package can have more
    fields.) Raises KeyError for a missing name, and ValueError or TypeError for a wrong value.
    """
    values = {name: _value_of(hint, fields[shown]) for name, shown, hint in _hints(cls)}  # type: ignore[arg-type] # mypy: no class is hashable
    return cls(**values)


@cache
def _hints(cls: type) -> tuple[tuple[str, str, object], ...]:
    """The name of each field, its name in JSON, and its type."""
    names = (one.name for one in fields(cls))
    described = described_fields(cls)
    return tuple((n, shown, hint) for n, (shown, _, hint) in zip(names, described, strict=True))


def _value_of(hint: object, value: object) -> object:
    inner = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return None if value is None else _value_of(inner[0], value)
    if typing.get_origin(hint) is tuple:
        return tuple(_value_of(inner[0], one) for one in _checked(list, value))
    assert isinstance(hint, type)
    if is_dataclass(hint):
        return from_json(hint, _checked(dict, value))
    if issubclass(hint, StrEnum):
        return hint(_checked(str, value))
    return float(_checked((int, float), value)) if hint is float else _checked(hint, value)


def _checked(of: type | tuple[type, ...], value: object) -> typing.Any:  # noqa: ANN401 - of JSON
    if not isinstance(value, of):
        raise TypeError(f"a {type(value).__name__} in place of another type")
    return value


def json_schema(cls: type) -> dict[str, Json]:
    """Creates the JSON Schema (draft 2020-12) of a described dataclass.

    All fields are required. The description of a field in the schema also has the unit. The
    description of the schema is the first paragraph of the docstring of ``cls``.
    """
    properties: dict[str, Json] = {}
    for name, described, hint in described_fields(cls):
        unit = f" Unit: {described.unit}." if described.unit else ""
        properties[name] = {"description": described.meaning + unit, **_schema_of(hint)}
    return {
        "type": "object",
        "description": (cls.__doc__ or "").partition("\n\n")[0],
        "properties": properties,
        "required": list(properties),
    }


def described_fields(cls: type) -> Iterator[tuple[str, Described, object]]:
    """Yields the JSON name, the description and the type of each field, in the order of the
    class.
    """
    hints = typing.get_type_hints(cls, include_extras=True)
    for one in fields(cls):
        hint, described = typing.get_args(hints[one.name])
        yield json_name(one.name), described, hint


def _schema_of(hint: object) -> dict[str, Json]:
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return {"type": "array", "items": _schema_of(inner[0])}
    if isinstance(hint, types.UnionType):
        (one,) = (part for part in inner if part is not types.NoneType)
        return {"anyOf": [_schema_of(one), {"type": "null"}]}
    assert isinstance(hint, type)
    if is_dataclass(hint):
        return json_schema(hint)
    if issubclass(hint, StrEnum):
        return {"type": "string", "enum": [str(member) for member in hint]}
    return {"type": _TYPES[hint]}


_TYPES: dict[type, Json] = {str: "string", int: "integer", float: "number", bool: "boolean"}
