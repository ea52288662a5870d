"""The format Avro (specification 1.12): reads schemas, derives schemas from columns, and finds the
column for each field.

Columns that do not fit the schema are an error at planning. The encoder in the tasks finds the
errors that depend on values: numbers that are too large, and nulls where a value is required. A
schema is checked only for errors that would lead to wrong bytes. The registry checks the whole
schema.

A field gets the column whose name is the field's name or an alias of the field. If there is no such
column, the letter case of the names is ignored. A field without a column gets the field's default.

A derived schema is the schema that Spark's ``to_avro`` derives, with one difference. A nullable
field has the type ``["null", T]`` and the default null, as in Kafka Connect. With this default,
readers still work after such a field is added or removed.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any, Final, NamedTuple

from spark_kafka_sink.base.errors import SchemaError, safe_text
from spark_kafka_sink.records import nodes
from spark_kafka_sink.records.formats.binary import matching
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.schema_format import References, SchemaFormat
from spark_kafka_sink.records.nodes import Coding, Value
from spark_kafka_sink.records.varint import sized, varint

_K = ColumnKind
#: The attributes of arrays and maps.
_INNER: Final = {"array": "items", "map": "values"}
_PRIMITIVES: Final = {kind.avro[0] for kind in _K} - {"record", *_INNER}
#: The default of a field that has none; null is a default.
_NO_DEFAULT: Final = object()
#: Values in a default: types that hold each other could double them at each level.
_MOST_VALUES: Final = 10_000
#: Of defaults: formats of struct, encodings, and errors.
_NUMBERS: Final = {"int": "<i", "long": "<q", "float": "<f", "double": "<d"}
_TEXTS: Final = {"string": "utf-8", "bytes": "latin-1"}
_NOT_OF_TYPE: Final = (ValueError, OverflowError, struct.error)
#: Most digits of a decimal of Spark and of Arrow.
_DIGITS: Final = 38
#: The most bytes of a type ``fixed`` for decimals. Every row gets all bytes of the type.
_LONGEST_DECIMAL: Final = 256
_UUID_BYTES: Final = 16
_LONG: Final = nodes.Number()
_INT: Final = nodes.Number(least=-(1 << 31), most=(1 << 31) - 1)
_MILLIS: Final = nodes.Number(divisor=1000)
_DOUBLE: Final = nodes.Number(Coding.FIXED64)
_TEXT: Final = nodes.Bytes(Coding.ZIGZAG, is_text=True)
_DAY_S: Final = 24 * 60 * 60
#: Integers are also written as logical types of numbers, as what they are. No reader can make a
#: time of day of a number outside of a day.
_WHOLE: Final = {("int", logical): _INT for logical in ("", "date")} | {
    ("int", "time-millis"): nodes.Number(least=0, most=_DAY_S * 1_000 - 1),
    ("long", "time-micros"): nodes.Number(least=0, most=_DAY_S * 1_000_000 - 1),
} | {
    ("long", logical): _LONG
    for logical in ("", *(f"{local}timestamp-{unit}" for local in ("", "local-")
                          for unit in ("millis", "micros", "nanos")))
}  # fmt: skip
#: The types that a column of a kind may be written as: the Avro type and its logical type ("":
#: none).
_NODES: Final[Mapping[ColumnKind, Mapping[tuple[str, str], nodes.Node]]] = {
    _K.NULL: {("null", ""): nodes.Record(())},
    _K.BOOLEAN: {("boolean", ""): nodes.Boolean()},
    _K.INT: _WHOLE,
    _K.LONG: _WHOLE,
    _K.FLOAT: {("float", ""): nodes.Number(Coding.FIXED32), ("double", ""): _DOUBLE},
    _K.DOUBLE: {("double", ""): _DOUBLE},
    _K.STRING: {("string", ""): _TEXT, ("string", "uuid"): nodes.Uuid(is_fixed=False),
                ("fixed", "uuid"): nodes.Uuid(is_fixed=True)},
    _K.BINARY: {("bytes", ""): nodes.Bytes(Coding.ZIGZAG)},
    _K.DATE: {("int", "date"): _LONG},
    **{kind: {("long", f"{local}timestamp-micros"): _LONG,
              ("long", f"{local}timestamp-millis"): _MILLIS}
       for kind, local in ((_K.TIMESTAMP, ""), (_K.TIMESTAMP_NTZ, "local-"))},
}  # fmt: skip
#: The known logical types, as pairs of type and logical type. Decimals are not in this set.
_LOGICAL: Final = {written for kinds in _NODES.values() for written in kinds}


class AvroFormat(SchemaFormat):
    """The format Avro. Implements :class:`SchemaFormat`."""

    schema_type = "AVRO"

    def derive(self, column: ColumnType, name: str) -> str:
        made = _derived(replace(column, nullable=False), name, "", set())
        return json.dumps(made, separators=(",", ":"))

    def name_of(self, schema: str, references: References = ()) -> str:
        branches = _parsed(schema, references).branches
        return next((one.name for _, one in branches if one.kind == "record"), "")

    def match(self, schema: str, column: ColumnType, references: References = ()) -> Value:
        return _match(_parsed(schema, references), column, "")


class _Field(NamedTuple):
    type: _Type
    default: object


@dataclass(slots=True, eq=False)
class _Type:
    """A type in an Avro schema.

    * ``kind``: Avro's name for the type, such as "record" or "long".
    * ``name``: the full name of a named type.
    * ``logical``: the logical type. Empty if there is none.
    * ``fields``: the fields of a record, each with its name and aliases.
    * ``inner``: the types of a union's branches, of an array's items, or of a map's values.
    * ``symbols``: the symbols of an enum.
    * ``size``: the number of bytes of the type ``fixed``. 0 for all other types.
    """

    kind: str
    name: str = ""
    logical: str = ""
    # Fields are set after the object is created: the type of a field can be the record itself.
    fields: list[tuple[tuple[str, ...], _Field]] = field(default_factory=list)
    inner: tuple[_Type, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    decimal: nodes.Decimal | None = None
    #: The errors of columns that do not fit this type, by the id of the column type, within one
    #: call of ``match``.
    problems: dict[int, SchemaError] = field(default_factory=dict)

    @property
    def branches(self) -> Sequence[tuple[bytes, _Type]]:
        """The branches of a union as pairs: the encoded index of the branch, and its type. The
        encoded index is written before the value.

        If the type is no union, the only pair is empty bytes and the type itself.
        """
        numbered = [(varint(i), one) for i, one in enumerate(self.inner)]
        return numbered if self.kind == "union" else [(b"", self)]

    @property
    def text(self) -> str:
        """The type as text for error messages."""
        if self.kind == "union":
            return f"[{', '.join(branch.text for branch in self.inner)}]"
        return f"{self.logical or self.kind} {self.name}".rstrip()


# -- a schema, read


def _parsed(text: str, references: References) -> _Type:
    """Parses the schema ``text``, and returns the type that it declares. The schema may use the
    named types in ``references``. Raises SchemaError if the schema is invalid.
    """
    known: dict[str, _Type] = {}
    for _, one in references:
        _declared_in(one, known)
    return _declared_in(text, known)


def _declared_in(text: str, known: dict[str, _Type]) -> _Type:
    """Parses the schema ``text``, and returns the type that it declares. Adds the named types of
    the schema to ``known``. Raises SchemaError if the schema is invalid.
    """
    bare = text.strip()  # string, as some write it, for "string"
    try:
        declared = bare if bare in _PRIMITIVES else json.loads(text)
    except (ValueError, RecursionError):
        raise _wrong("it is not JSON") from None
    try:
        return _type(declared, "", known)
    except RecursionError:
        raise _wrong("it is nested too deeply") from None
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        what = safe_text(str(error), 100)
        raise _wrong(f"something is missing, or of another type than Avro's: {what}") from None


def _type(declared: Any, space: str, known: dict[str, _Type]) -> _Type:  # noqa: ANN401 - of JSON
    """Parses ``declared``, a part of a schema's JSON, as a type.

    ``space`` is the enclosing namespace. ``known`` has the named types that were declared before.
    Raises SchemaError for an invalid type. Raises KeyError, TypeError or AttributeError if a part
    of the JSON is missing or has the wrong type.
    """
    if isinstance(declared, str):
        if declared in _PRIMITIVES:
            return _Type(declared)
        named = known.get(_full(declared, space)) or known.get(declared)
        if named is None:
            problem = f"type {safe_text(declared)} is not declared"
            raise _wrong(problem, matching.WITH_REFERENCES)
        return named
    if isinstance(declared, list):
        branches = tuple([_type(one, space, known) for one in declared])
        names = [branch.name or branch.kind for branch in branches]
        if not names or "union" in names or len(set(names)) < len(names):
            raise _wrong("a union is empty, or holds a union, or has a type twice")
        return _Type("union", inner=branches)
    kind = declared["type"]
    if kind in ("array", "map"):
        return _Type(kind, inner=(_type(declared[_INNER[kind]], space, known),))
    if kind in ("record", "error", "enum", "fixed"):
        return _declaration(declared, space, known)
    found = _type(kind, space, known)
    return _with_logical(found, declared) if found.kind == kind else found


def _declaration(declared: Mapping[str, Any], space: str, known: dict[str, _Type]) -> _Type:
    kind = declared["type"]
    name = _full(declared["name"], declared.get("namespace", space))
    if name in known or matching.NAME.fullmatch(name.rpartition(".")[2]) is None:
        raise _wrong(f"{safe_text(name)} is no name of a type, or declared twice")
    found = known[name] = _Type("record" if kind == "error" else kind, name)
    if kind == "fixed":
        found.size = index(declared["size"])
        if found.size < 1:
            raise _wrong(f"the size of {name} is {found.size}")
        return _with_logical(found, declared)
    if kind == "enum":
        names = found.symbols = tuple(map(str, declared["symbols"]))
    else:
        for one in declared["fields"]:
            of = _type(one["type"], name.rpartition(".")[0], known)
            key = (str(one["name"]), *map(str, one.get("aliases") or ()))
            found.fields.append((key, _Field(of, one.get("default", _NO_DEFAULT))))
        names = tuple([key[0] for key, _ in found.fields])
    if len(set(names)) < len(names) or not all(map(matching.NAME.fullmatch, names)):
        raise _wrong(f"{name} has a field or symbol twice, or a name that is not legal")
    return found


def _with_logical(found: _Type, declared: Mapping[str, Any]) -> _Type:
    """Sets the logical type of ``found`` from ``declared``, and returns ``found``. An invalid
    logical type is ignored, as the specification requires ("Logical Types").
    """
    logical = declared.get("logicalType")
    if logical == "decimal" and found.kind in ("bytes", "fixed"):
        found.decimal = _decimal(declared, found.size if found.kind == "fixed" else None)
        if found.decimal is not None:
            found.logical = f"decimal({found.decimal.precision},{found.decimal.scale})"
    elif (found.kind, str(logical)) in _LOGICAL and found.size in (0, _UUID_BYTES):
        found.logical = str(logical)
    return found


def _decimal(declared: Mapping[str, Any], size: int | None) -> nodes.Decimal | None:
    """Reads the logical type decimal from ``declared``. None if the declaration is invalid.

    ``size`` is the number of bytes of the Avro type ``fixed``, and None for the Avro type
    ``bytes``. A valid declaration has these properties:

    * The precision is a positive integer.
    * The scale is an integer from 0 to the precision.
    * With ``fixed``, every number with ``precision`` digits fits into ``size`` bytes.
    """
    precision, scale = declared.get("precision"), declared.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not precision:
        return None
    most = precision if size is None else (8 * size - 1) * math.log10(2)
    return nodes.Decimal(precision, scale, size) if 0 <= scale <= precision <= most else None


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _wrong(problem: str, hint: str | None = None) -> SchemaError:
    return matching.unusable(f"the Avro schema can't be used: {problem}", hint)


# -- a schema, made of columns


def _derived(column: ColumnType, name: str, path: str, used: set[str]) -> object:
    """Derives a schema from a column, as JSON values. If the column is a struct, ``name`` is the
    name of its record. ``used`` are the names of other records. These names must not be used again.
    """
    kind, logical = column.kind.avro
    made: object = kind
    if column.kind is _K.STRUCT:
        made = _derived_record(column, name, path, used)
    elif kind in _INNER:
        if column.kind is _K.MAP:
            matching.check_map_key(column, path)
        inner = _derived(column.children[-1], name, f"{path}[]", used)
        made = {"type": kind, _INNER[kind]: inner}
    elif logical:
        digits = {"precision": column.precision, "scale": column.scale} if column.precision else {}
        made = {"type": kind, "logicalType": logical, **digits}
    return ["null", made] if column.nullable and made != "null" else made


def _derived_record(column: ColumnType, name: str, path: str, used: set[str]) -> object:
    """Derives the schema of a struct column. The name of a nested record is the name of the
    enclosing record, "_" and the name of the column. If that name is already used, "_" is appended.
    """
    while name in used:
        name += "_"
    used.add(name)
    fields = []
    for field_name, child, inside in matching.fields_of(column, path):
        hint = ", or name a schema whose field has this name as an alias"
        matching.check_name(field_name, inside, "Avro", hint)
        kind = _derived(child, f"{name}_{field_name}", inside, used)
        default = {"default": None} if child.nullable or kind == "null" else {}
        fields.append({"name": field_name, "type": kind, **default})
    space, _, short = name.rpartition(".")
    named = {"name": short, "namespace": space} if space else {"name": short}
    return {"type": "record", **named, "fields": fields}


# -- columns as values of a schema


def _match(kind: _Type, column: ColumnType, path: str) -> Value:
    """The encoding of ``column`` for the Avro type ``kind``. If the column does not fit the type,
    raises SchemaError. The text of the error has ``path``.
    """
    null = next((prefix for prefix, one in kind.branches if one.kind == "null"), None)
    exact = column.kind.avro
    exact_first = sorted(kind.branches, key=lambda it: (it[1].kind, it[1].logical) != exact)
    problems: list[SchemaError] = []
    if column.kind is _K.DECIMAL and (several := _decimals(exact_first, column, path)):
        return Value(nodes.Decimals(several), b"", null)
    for prefix, branch in exact_first:
        try:
            if id(column) in branch.problems:  # else branches within each other were endless
                raise branch.problems[id(column)]
            if (node := _node(branch, column, path)) is not None:
                return Value(node, prefix, null)
        except SchemaError as error:
            branch.problems[id(column)] = error
            problems.append(error)
    what = f"and the schema has {safe_text(kind.text, 200)} there"
    raise problems[0] if len(problems) == 1 else matching.unfit(column, path, what)


def _decimals(
    branches: Sequence[tuple[bytes, _Type]], column: ColumnType, path: str
) -> tuple[tuple[bytes, nodes.Decimal], ...]:
    """The decimal types of a union, each with the bytes that select its branch. Empty if the union
    has fewer than two decimal types.

    Each value is encoded with the first of these types that can hold it. A type with the column's
    own precision and scale comes first.
    """
    own = (column.precision, column.scale)
    found = [(prefix, _node(one, column, path)) for prefix, one in branches if one.decimal]
    fit = [(prefix, one) for prefix, one in found if isinstance(one, nodes.Decimal)]
    fit.sort(key=lambda it: (it[1].precision, it[1].scale) != own)
    return tuple(fit) if len(fit) > 1 else ()


def _node(kind: _Type, column: ColumnType, path: str) -> nodes.Node | None:
    """The node that encodes ``column`` as the type ``kind``. None if the column can't be encoded as
    this type.
    """
    match column.kind, kind.kind:
        case _K.STRUCT, "record":
            owner = f"record is {kind.name}"
            found = matching.matched_fields(kind.fields, column, path, owner, _field)
            return nodes.Record(found)
        case _K.ARRAY, "array":
            item = _match(kind.inner[0], column.children[0], f"{path}[]")
            return nodes.Items(item, is_block=True)
        case _K.MAP, "map":
            matching.check_map_key(column, path)
            value = _match(kind.inner[0], column.children[1], f"{path}[]")
            return nodes.Items(Value(nodes.entry(Value(_TEXT), value)), is_block=True)
        case _K.STRING, "enum":
            return nodes.Symbols(kind.symbols, tuple(range(len(kind.symbols))), Coding.ZIGZAG)
        case _K.BINARY, "fixed" if kind.decimal is None:
            return nodes.Bytes(kind.size)
        case _K.DECIMAL, _ if (number := kind.decimal) is not None:
            fits = column.scale == number.scale or number.precision <= _DIGITS
            if fits and kind.size <= _LONGEST_DECIMAL:  # (of bytes the size is 0)
                return number
    return _NODES.get(column.kind, {}).get((kind.kind, kind.logical))


def _field(one: _Field, column: ColumnType | None, path: str) -> Value | bytes:
    if column is not None:
        return _match(one.type, column, path)
    if one.default is _NO_DEFAULT:
        hint = ", or give the field a default in the schema"
        raise matching.missing(path, "has no default", hint)
    try:
        return _encoded(one.type, one.default, iter(range(_MOST_VALUES)))
    except (*_NOT_OF_TYPE, RecursionError, StopIteration):
        raise matching.misfit(
            f"the default of the schema's field {safe_text(path)} is not of its type, or endless",
            "add a column of that name, or correct the schema",
        ) from None


def _encoded(kind: _Type, value: object, more: Iterator[int]) -> bytes:
    """Encodes ``value``, the default of a field, as the type ``kind``.

    Each nested value takes one item from ``more``. If no item is left, the default is too large,
    and StopIteration is raised. Raises one of the errors in ``_NOT_OF_TYPE`` if the value does not
    have the type.
    """
    next(more)
    match kind.kind, value:
        case "union", _:
            for prefix, branch in kind.branches:  # as the first that it fits
                with suppress(*_NOT_OF_TYPE):
                    return prefix + _encoded(branch, value, more)
        case "null", None:
            return b""
        case "boolean", bool():
            return bytes([value])
        case name, int() | float() if name in _NUMBERS and type(value) is not bool:
            # An error when it is out of bounds, or has a fraction where there is none.
            data = struct.pack(_NUMBERS[name], value)
            return data if name in ("float", "double") else varint(int(value))
        case name, str() if name in _TEXTS:
            return sized(value.encode(_TEXTS[name]))
        case "enum", str():
            return varint(kind.symbols.index(value))
        case "fixed", str() if len(value) == kind.size:
            return value.encode(_TEXTS["bytes"])
        case "array", list():
            return _block([_encoded(kind.inner[0], one, more) for one in value])
        case "map", dict():
            inner = kind.inner[0]
            return _block([sized(k.encode()) + _encoded(inner, v, more) for k, v in value.items()])
        case "record", dict():
            given = [(of, value.get(names[0], of.default)) for names, of in kind.fields]
            return b"".join([_encoded(of.type, one, more) for of, one in given])
    raise ValueError(kind.kind)


def _block(items: Sequence[bytes]) -> bytes:
    return (varint(len(items)) if items else b"") + b"".join(items) + b"\x00"
