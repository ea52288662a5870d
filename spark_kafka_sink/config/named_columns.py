"""The options that name columns for a record's key, value and headers, and their parsing.

A list of columns is written as in SQL: ``id, name, `a,b```. ``datasource/write/named_columns.py``
checks that the columns exist and have the right types.
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
    """Returns the name of the struct column in a text: ``payload`` for the text ``payload.*``.
    Returns None if the text does not end in ``.*``.
    """
    found = _STRUCT.fullmatch(text)
    return None if found is None else _name(found)


def column_names(text: str | None) -> tuple[str, ...]:
    """Parses a list of column names, such as ``id, name``. Returns an empty tuple if ``text`` is
    None. Raises ValueError with the reason if the list can't be parsed.
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
    """Returns ``text`` if it is a valid list of columns. Otherwise raises ValueError with the
    reason.

    If ``all_too`` is true, ``*`` (all columns) and ``payload.*`` (all fields of a struct) are also
    valid.
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
    """The format of a record's key or value that the sink creates from the columns in
    ``keyColumns`` or ``valueColumns``.
    """

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
    """The rule for the name of a schema's subject in the registry (Confluent's subject name
    strategy).
    """

    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"


class TimestampColumn(StrEnum):
    """The use of a column ``timestamp`` in the rows (option ``timestampColumn``)."""

    #: The record's timestamp.
    USE = "use"
    #: A column like others: a record has the time of sending.
    IGNORE = "ignore"


class OnNullKey(StrEnum):
    """The key that the sink writes for a row whose key columns are all null."""

    #: The record has no key.
    NO_KEY = "no-key"
    #: The key is written as its format writes nulls: ``{}`` as JSON.
    WRITE = "write"


class OnNullValue(StrEnum):
    """The record that the sink writes for a row whose value is null."""

    #: A record with a null value, which deletes its key from a compacted topic.
    TOMBSTONE = "tombstone"
    ERROR = "error"
    #: No record; the report counts the row.
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class JsonOptions:
    """The options for columns that are written as JSON.

    ``timestamp_format`` and ``timestamp_ntz_format`` are patterns of
    ``config/timestamp_pattern.py``. None means the default format of Spark's ``to_json``.
    ``time_zone`` is the time zone of Spark's session, for the timestamps inside of a VARIANT.
    """

    ignore_null_fields: bool = True
    plain_decimals: bool = False
    timestamp_format: str | None = None
    timestamp_ntz_format: str | None = None
    time_zone: str = "UTC"

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> JsonOptions:
        """Reads the options for JSON from ``values``. ``values`` has the sink's checked options by
        attribute name.
        """
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
    """The columns that the options name for key, value and headers, as the user writes their names.

    A field is empty if its option is not set. ``value_is_struct`` is true for an option such as
    ``valueColumns=payload.*``. In this case ``value`` is ``("payload",)``, and the record's value
    is made from the fields of this struct.
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
        """Reads the options that name columns. ``values`` has the sink's checked options by
        attribute name.
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
