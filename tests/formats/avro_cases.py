"""Schemas of Avro, made by Hypothesis together with columns that fit them.

:class:`Case` holds the same type three times: as a schema's JSON, as the type of a column, and as
Arrow's type, and values for it as fastavro reads them back.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType

_K = ColumnKind
UTC = dt.UTC
_INT, _LONG = 2**31, 2**63
_FIRST, _LAST = dt.datetime(1800, 1, 1), dt.datetime(2200, 1, 1)  # noqa: DTZ001 - Hypothesis wants it
_INSTANTS = st.datetimes(_FIRST, _LAST)


@dataclass(frozen=True)
class Case:
    schema: Any
    column: ColumnType
    arrow: pa.DataType
    values: st.SearchStrategy = field(repr=False)

    @property
    def kind(self):
        return self.schema if isinstance(self.schema, str) else self.schema.get("type")


def _plain(schema, kind, arrow, values, **more) -> Case:
    return Case(schema, ColumnType(kind, kind.name, False, **more), arrow, values)


def _logical(kind, logical):
    return {"type": kind, "logicalType": logical}


TEXT = st.text(max_size=20)
PLAIN = (
    _plain("boolean", _K.BOOLEAN, pa.bool_(), st.booleans()),
    _plain("int", _K.INT, pa.int8(), st.integers(-128, 127)),
    _plain("int", _K.INT, pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    _plain("int", _K.INT, pa.int32(), st.integers(-_INT, _INT - 1)),
    _plain("long", _K.INT, pa.int32(), st.integers(-_INT, _INT - 1)),
    _plain("long", _K.LONG, pa.int64(), st.integers(-_LONG, _LONG - 1)),
    _plain("int", _K.LONG, pa.int64(), st.integers(-_INT, _INT - 1)),
    _plain("float", _K.FLOAT, pa.float32(), st.floats(width=32, allow_nan=False)),
    _plain("double", _K.FLOAT, pa.float32(), st.floats(width=32, allow_nan=False)),
    _plain("double", _K.DOUBLE, pa.float64(), st.floats(allow_nan=False)),
    _plain("string", _K.STRING, pa.string(), TEXT),
    _plain("string", _K.STRING, pa.large_string(), TEXT),
    _plain("string", _K.STRING, pa.dictionary(pa.int32(), pa.string()), TEXT),
    _plain("bytes", _K.BINARY, pa.binary(), st.binary(max_size=20)),
    _plain(_logical("int", "date"), _K.DATE, pa.date32(), st.dates(dt.date(1, 1, 1))),
    _plain(
        _logical("long", "timestamp-micros"), _K.TIMESTAMP, pa.timestamp("us", "UTC"),
        _INSTANTS.map(lambda one: one.replace(tzinfo=UTC)),
    ),
    _plain(
        _logical("long", "timestamp-millis"), _K.TIMESTAMP, pa.timestamp("us", "UTC"),
        _INSTANTS.map(
            lambda one: one.replace(tzinfo=UTC, microsecond=one.microsecond // 1000 * 1000)
        ),
    ),
    _plain(
        _logical("long", "local-timestamp-micros"), _K.TIMESTAMP_NTZ, pa.timestamp("us"), _INSTANTS,
    ),
)  # fmt: skip


def fastavro_pads(unscaled: int) -> bool:
    """-128, -32768, ...: fastavro writes a byte more than Java's ``BigInteger.toByteArray``."""
    size = -unscaled
    return size > 0 and size & (size - 1) == 0 and size.bit_length() % 8 == 0


@st.composite
def decimals(draw) -> Case:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    most = 10**precision - 1
    values = (
        st.integers(-most, most)
        .filter(lambda n: not fastavro_pads(n))
        .map(lambda n: decimal.Decimal(n).scaleb(-scale, decimal.Context(prec=40)))
    )
    schema = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    if draw(st.booleans()):
        size = (most.bit_length() + 8) // 8 + draw(st.integers(0, 3))
        schema |= {"type": "fixed", "name": "f", "size": size}
    column = ColumnType(_K.DECIMAL, "decimal", False, precision=precision, scale=scale)
    return Case(schema, column, pa.decimal128(precision, scale), values)


@st.composite
def named_types(draw) -> Case:
    name = "n"
    if draw(st.booleans()):
        symbols = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
        schema = {"type": "enum", "name": name, "symbols": symbols}
        return _plain(schema, _K.STRING, pa.string(), st.sampled_from(symbols))
    size = draw(st.integers(1, 20))
    schema = {"type": "fixed", "name": name, "size": size}
    return _plain(schema, _K.BINARY, pa.binary(), st.binary(min_size=size, max_size=size))


@st.composite
def nullable(draw, inner: Case) -> Case:
    """A union with null, in either order, maybe with a branch that no column is for."""
    branches = [inner.schema, "null"]
    if draw(st.booleans()):
        branches.reverse()
    if draw(st.booleans()) and inner.kind not in ("bytes", "fixed"):
        other = {"type": "fixed", "name": "other", "size": 3}
        branches.insert(draw(st.integers(0, 2)), other)
    values = st.none() | inner.values
    return Case(branches, replace(inner.column, nullable=True), inner.arrow, values)


def lists(inner: Case) -> Case:
    column = ColumnType(_K.ARRAY, "array", False, (inner.column,))
    schema = {"type": "array", "items": inner.schema}
    return Case(schema, column, pa.list_(inner.arrow), st.lists(inner.values, max_size=4))


def maps(inner: Case) -> Case:
    key = ColumnType(_K.STRING, "string", False)
    column = ColumnType(_K.MAP, "map", False, (key, inner.column))
    values = st.dictionaries(st.text(max_size=5), inner.values, max_size=4)
    schema = {"type": "map", "values": inner.schema}
    return Case(schema, column, pa.map_(pa.string(), inner.arrow), values)


@st.composite
def records(draw, inner: st.SearchStrategy[Case]) -> Case:
    """Fields in another order than the columns, some with an alias, some with a default only."""
    fields = draw(st.lists(inner, min_size=1, max_size=4))
    names = [f"c{i}" for i in range(len(fields))]
    declared = [
        {"name": f"x{name}", "aliases": ["other", name], "type": field.schema}
        if draw(st.booleans())
        else {"name": name, "type": field.schema}
        for name, field in zip(names, fields, strict=True)
    ]
    order = draw(st.permutations(range(len(fields))))
    schema = {
        "type": "record",
        "name": "r",
        "fields": [declared[i] for i in order],
    }
    column = ColumnType(
        _K.STRUCT, "struct", False, tuple(field.column for field in fields), tuple(names)
    )
    arrow = pa.struct([(name, f.arrow) for name, f in zip(names, fields, strict=True)])
    values = st.fixed_dictionaries(
        {name: field.values for name, field in zip(names, fields, strict=True)}
    )
    return Case(schema, column, arrow, values)


@st.composite
def any_case(draw, depth: int = 2) -> Case:
    kind = draw(st.integers(0, 9 if depth else 3))
    if kind <= 1:
        return draw(st.sampled_from(PLAIN))
    if kind <= 3:
        return draw(DECIMALS if kind == 2 else NAMED)
    if kind == 4:
        return draw(records(any_case(depth - 1)))
    inner = draw(any_case(depth - 1))
    if kind == 5:
        return lists(inner)
    if kind == 6:
        return maps(inner)
    return inner if isinstance(inner.schema, list) else draw(nullable(inner))


DECIMALS, NAMED = decimals(), named_types()
#: Of any type.
CASES = any_case().map(lambda one: replace(one, schema=uniquely_named(one.schema, count(1))))


def uniquely_named(schema: Any, numbers: Iterator[int]) -> Any:
    """The schema with another name for each named type."""
    if isinstance(schema, list):
        return [uniquely_named(one, numbers) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: uniquely_named(value, numbers) if key in ("items", "values", "type") else value
        for key, value in schema.items()
    }
    if "name" in made:
        made["name"] = f"{made['name']}_{next(numbers)}"
    if "fields" in made:
        made["fields"] = [
            field | {"type": uniquely_named(field["type"], numbers)} for field in made["fields"]
        ]
    return made


def _is_other(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("name", "").startswith("other_")


def as_read(schema: Any, value: Any) -> Any:
    """``value`` under the names of the schema, as fastavro reads it."""
    if isinstance(schema, list):
        if value is None:
            return None
        (mine,) = [one for one in schema if one != "null" and not _is_other(one)]
        return as_read(mine, value)
    if not isinstance(schema, dict):
        return value
    if schema["type"] == "array":
        return [as_read(schema["items"], one) for one in value]
    if schema["type"] == "map":
        return {key: as_read(schema["values"], one) for key, one in value.items()}
    if schema["type"] == "record":
        given = {}
        for field in schema["fields"]:
            name = next(n for n in (field["name"], *field.get("aliases", ())) if n in value)
            given[field["name"]] = as_read(field["type"], value[name])
        return given
    return value
