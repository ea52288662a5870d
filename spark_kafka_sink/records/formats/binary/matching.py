"""Finds the column for each field of a schema, by its name.

This module also creates the errors for columns that do not fit a schema. Avro, Protobuf and JSON
Schema share this code. Each format knows its own types.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from spark_kafka_sink.base.documentation import page_address
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import SchemaError, named, safe_text
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.nodes import Field, Value

F = TypeVar("F")
#: The hint for a schema with a text that refers to other schemas.
WITH_REFERENCES: Final = (
    "a schema that refers to others is registered with its references: register it that way, and"
    " set use.latest.version=true or use.schema.id in place of valueSchema or keySchema"
)
#: The names that fields can have in Avro and in Protobuf.
NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def below(path: str, name: str) -> str:
    """The path of the field ``name`` inside of ``path``, for error texts: ``address.city``."""
    return f"{path}.{name}" if path else name


def fields_of(column: ColumnType, path: str) -> Iterator[tuple[str, ColumnType, str]]:
    """The name, the type and the path of each field of a struct column."""
    for name, child in zip(column.names, column.children, strict=True):
        yield name, child, below(path, name)


def matched_fields(
    fields: Sequence[tuple[tuple[str, ...], F]],
    column: ColumnType,
    path: str,
    owner: str,
    written: Callable[[F, ColumnType | None, str], Value | bytes],
) -> tuple[Field, ...]:
    """Finds the column for each field of a record. Returns the encodings of the fields, in the
    order of ``fields``.

    * ``fields``: pairs of a field's names (its name and its aliases) and the field itself.
    * ``column``: the struct with the columns.
    * ``path``, ``owner``: the path of the struct, and the name of the record, for messages.
    * ``written(field, column, path)`` returns the encoding of a field. ``column`` is None if no
      column fits the field. If the encoding is empty bytes, the field is left out of the result.

    A column fits a field if the column has one of the field's names. If no column has such a name,
    the letter case is ignored: the column ``ID`` fits the field ``id``. If the struct has both a
    column ``ID`` and a column ``Id``, neither of them fits the field ``id``.

    Raises SchemaError if a column fits no field, or if two fields fit the same column.
    """
    exact = {name: i for i, name in enumerate(column.names)}
    in_any_case = Counter(map(str.lower, column.names))
    folded = {name.lower(): i for name, i in exact.items() if in_any_case[name.lower()] == 1}
    found: list[int] = []
    taken: dict[int, str] = {}
    for names, _ in fields:
        ways = [exact.get(name) for name in names] + [folded.get(one.lower()) for one in names]
        index = next((one for one in ways if one is not None), -1)
        found.append(index)
        if index >= 0 and taken.setdefault(index, names[0]) != names[0]:
            raise misfit(
                f"column {safe_text(column.names[index])} is both {taken[index]} and"
                f" {safe_text(below(path, names[0]))} of the schema",
                "rename the column to the intended one",
            )
    extra = [name for i, name in enumerate(column.names) if i not in taken]
    if extra:
        inside = f" of {safe_text(path)}" if path else ""
        raise misfit(
            f"the schema has no field for {safe_text(named(extra, 10), 300)}{inside}",
            f"drop these, or write with a schema that has them (its {owner}:"
            f" {safe_text(named([names[0] for names, _ in fields], 20), 300)})",
        )
    matched = []
    for (names, field), index in zip(fields, found, strict=True):
        inside = below(path, names[0])
        value = written(field, column.children[index] if index >= 0 else None, inside)
        if value:
            matched.append(Field(names[0], index, value))
    return tuple(matched)


def check_map_key(column: ColumnType, path: str) -> None:
    """Raises SchemaError if the keys of a map column are not strings."""
    if column.children[0].kind is not ColumnKind.STRING:
        raise unfit(column, path, "and a map's keys are strings in this format")


def check_name(name: str, path: str, format_: str, else_: str = "") -> None:
    """Raises SchemaError if a column's name can't be the name of a field in a derived schema.
    ``format_`` is the name of the format. ``else_`` is a text that is appended to the error's hint.
    """
    if NAME.fullmatch(name) is None:
        raise SchemaError(
            f"column {safe_text(path)} has a name that {format_} does not allow for a field",
            hint=f"rename it to letters, digits and underscores{else_}",
        )


def unfit(column: ColumnType, path: str, what: str) -> SchemaError:
    """Creates the error for a column with a type that can't be encoded. ``path`` is the path of the
    column, and ``what`` is the end of the message.
    """
    return misfit(
        f"column {safe_text(path) or 'of the payload'} is of type {safe_text(column.text, 200)},"
        f" {what}",
        f"cast the column; the possible types are in {page_address('formats')}",
    )


def missing(path: str, why: str, hint: str = "") -> SchemaError:
    """Creates the error for a field of the schema, at ``path``, that has no column. ``why`` is the
    reason why the field needs a column, such as "is required". ``hint`` is the end of the error's
    hint.
    """
    return misfit(
        f"the schema's field {safe_text(path)} {why}, and there is no column for it",
        f"add a column of that name{hint}",
    )


def misfit(message: str, hint: str) -> SchemaError:
    """Creates the error for columns that do not fit a schema."""
    return SchemaError(message, hint=hint, kind=Kind.COLUMNS_AND_SCHEMA)


def unusable(problem: str, hint: str | None = None) -> SchemaError:
    """Creates the error for a schema that the sink can't write with."""
    return SchemaError(problem, hint=hint, kind=Kind.UNUSABLE_SCHEMA)
