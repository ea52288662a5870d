"""Which columns the options name for keys, values and headers, and what becomes of a null value.

Owns: the list of columns in an option's text, as SQL writes one (``id, name, `a,b```),
:class:`NamedColumns`, and which of these options go together. Never: whether such columns exist,
and of which types (``datasource/write/named_columns.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

#: All columns of the DataFrame.
ALL_COLUMNS = "*"

#: A name in backticks, in which two are one, or anything up to the next comma.
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,]*?))\s*(,|$)", re.DOTALL)

#: The same with all of its fields: ``payload.*``.
_STRUCT = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,*]+))\.\*\s*", re.DOTALL)


def _name(found: re.Match[str]) -> str:
    return found[2].strip() if found[1] is None else found[1].replace("``", "`")


def struct_name(text: str) -> str | None:
    """The column of ``payload.*``; None for anything else."""
    found = _STRUCT.fullmatch(text)
    return None if found is None else _name(found)


def column_names(text: str | None) -> tuple[str, ...]:
    """The names in ``text``, in order; none of None. Raises ValueError with the reason."""
    names: list[str] = []
    at, more = 0, text is not None
    while more:
        found = _NAME.match(text or "", at)
        if found is None:
            raise ValueError("A name in backticks must end in one, and a comma follows it")
        name = _name(found)
        if not name:
            raise ValueError("A name of a column is missing")
        if name.lower() in map(str.lower, names):
            raise ValueError(f"Column {name} is named twice")
        names.append(name)
        at, more = found.end(), bool(found[3])
    return tuple(names)


def checked_columns(text: str, *, all_too: bool) -> str:
    """``text`` if it lists columns, or names all with ``all_too``. ValueError with the reason."""
    if all_too and struct_name(text) is not None:
        return text
    names = column_names(text)
    if ALL_COLUMNS in names and not all_too:
        raise ValueError("* is not the name of a column")
    if ALL_COLUMNS in names and len(names) > 1:
        raise ValueError("* can't be combined with names")
    return text


class ColumnFormat(StrEnum):
    """How named columns become a record's key or value."""

    #: An object with a field for each, as ``to_json(struct(...))`` writes it.
    JSON = "json"
    #: The text or the bytes of the only one.
    STRING = "string"
    #: With a schema, whose id in a registry is in front.
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON_SCHEMA = "json-schema"


#: Formats whose records carry the id of a schema.
WITH_SCHEMA: Final = frozenset({ColumnFormat.AVRO, ColumnFormat.PROTOBUF, ColumnFormat.JSON_SCHEMA})


class SubjectStrategy(StrEnum):
    """Under which subject a registry keeps a schema."""

    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"


class OnNullValue(StrEnum):
    """What becomes of a row whose value is null."""

    #: A record with a null value, which deletes its key from a compacted topic.
    TOMBSTONE = "tombstone"
    ERROR = "error"
    #: No record; the report counts the row.
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class NamedColumns:
    """Names as the user writes them; empty where no option names any. ``value_is_struct``: of the
    only one, a struct, all fields.
    """

    key: tuple[str, ...] = ()
    key_format: ColumnFormat = ColumnFormat.JSON
    value: tuple[str, ...] = ()
    value_format: ColumnFormat = ColumnFormat.JSON
    headers: tuple[str, ...] = ()
    on_null_value: OnNullValue = OnNullValue.TOMBSTONE
    value_is_struct: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> NamedColumns:
        """From the sink's options by attribute, each of which was checked."""
        struct = struct_name(values["value_columns"] or "")
        return cls(
            key=column_names(values["key_columns"]),
            key_format=values["key_format"],
            value=column_names(values["value_columns"]) if struct is None else (struct,),
            value_format=values["value_format"],
            headers=column_names(values["headers_columns"]),
            on_null_value=values["on_null_value"],
            value_is_struct=struct is not None,
        )
