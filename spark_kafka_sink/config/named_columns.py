"""The columns that options name for keys, values and headers, and the rules for null values.

Owns: the list of columns in an option's text, in SQL's syntax (``id, name, `a,b```),
:class:`NamedColumns`, and the valid combinations of these options. Never: the existence and the
types of the columns (``datasource/write/named_columns.py``).
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
    """The struct column that a text like ``payload.*`` names, here ``payload``. None if the text
    does not end in ``.*``.
    """
    found = _STRUCT.fullmatch(text)
    return None if found is None else _name(found)


def column_names(text: str | None) -> tuple[str, ...]:
    """Parses the column names in ``text``, in order. Empty if ``text`` is None. Raises ValueError
    with the reason.
    """
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
    """Returns ``text`` if it is a valid list of columns, otherwise raises ValueError with the
    reason. With ``all_too`` the texts for all columns, such as ``*``, are also valid.
    """
    if all_too and struct_name(text) is not None:
        return text
    names = column_names(text)
    if ALL_COLUMNS in names and not all_too:
        raise ValueError("* is not the name of a column")
    if ALL_COLUMNS in names and len(names) > 1:
        raise ValueError("* can't be combined with names")
    return text


class ColumnFormat(StrEnum):
    """The format of a record's key or value, if options name the columns of the key or value."""

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
    """The strategy for the subject name of a schema in a registry."""

    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"


class TimestampColumn(StrEnum):
    """The use of a DataFrame's column ``timestamp`` (option ``timestampColumn``)."""

    #: The record's timestamp.
    USE = "use"
    #: A column like others: a record has the time of sending.
    IGNORE = "ignore"


class OnNullKey(StrEnum):
    """The treatment of a key whose columns are all null."""

    #: The record has no key.
    NO_KEY = "no-key"
    #: The key is written as its format writes nulls: ``{}`` as JSON.
    WRITE = "write"


class OnNullValue(StrEnum):
    """The treatment of a row whose value is null."""

    #: A record with a null value, which deletes its key from a compacted topic.
    TOMBSTONE = "tombstone"
    ERROR = "error"
    #: No record; the report counts the row.
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class JsonOptions:
    """The options that determine how values are written as JSON.

    Formats are patterns of ``config/timestamp_pattern.py``. A format of None means the default
    format of ``to_json``. ``time_zone`` is the session's time zone. It is used for timestamps
    within a VARIANT, because the timestamps of columns have a time zone in their type.
    """

    ignore_null_fields: bool = True
    plain_decimals: bool = False
    timestamp_format: str | None = None
    timestamp_ntz_format: str | None = None
    time_zone: str = "UTC"

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> JsonOptions:
        """Reads the options of JSON in ``values``, the checked options of the sink by attribute."""
        return cls(
            ignore_null_fields=values["json_ignore_null_fields"],
            plain_decimals=values["json_plain_decimals"],
            timestamp_format=values["json_timestamp_format"],
            timestamp_ntz_format=values["json_timestamp_ntz_format"],
            time_zone=values["session_time_zone"] or "UTC",
        )


#: As ``to_json`` with its defaults.
AS_TO_JSON: Final = JsonOptions()


@dataclass(frozen=True, slots=True)
class NamedColumns:
    """The columns that options name, spelled as the user writes them. Empty if no option names
    columns.

    If ``value_is_struct`` is true, the options name a single column, which is a struct. The value
    of the record consists of the struct's fields.
    """

    key: tuple[str, ...] = ()
    key_format: ColumnFormat = ColumnFormat.JSON
    value: tuple[str, ...] = ()
    value_format: ColumnFormat = ColumnFormat.JSON
    headers: tuple[str, ...] = ()
    on_null_key: OnNullKey = OnNullKey.NO_KEY
    on_null_value: OnNullValue = OnNullValue.TOMBSTONE
    value_is_struct: bool = False
    timestamp_column: TimestampColumn = TimestampColumn.USE
    json: JsonOptions = AS_TO_JSON

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> NamedColumns:
        """Reads the options that name columns in ``values``, the checked options of the sink by
        attribute.
        """
        struct = struct_name(values["value_columns"] or "")
        return cls(
            key=column_names(values["key_columns"]),
            key_format=values["key_format"],
            value=column_names(values["value_columns"]) if struct is None else (struct,),
            value_format=values["value_format"],
            headers=column_names(values["headers_columns"]),
            on_null_key=values["on_null_key"],
            on_null_value=values["on_null_value"],
            value_is_struct=struct is not None,
            timestamp_column=values["timestamp_column"],
            json=JsonOptions.of(values),
        )
