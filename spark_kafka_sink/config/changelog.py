"""Describes change feeds, and reads the option ``changelog``.

A change feed is a table whose rows are changes of another table. One column shows the type of the
change: insert, update, delete, or preimage. A preimage is a row with the values from before an
update.

:data:`CHANGELOGS` has the predefined feeds. The option has the name of a predefined feed, or
describes a feed in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol


class ChangelogMode(StrEnum):
    """The kind of records that the sink writes for a changed row (option ``changelog.mode``)."""

    #: The row, or a tombstone.
    UPSERT = "upsert"
    #: An envelope with the row before and after, and a tombstone after that of a delete.
    DEBEZIUM = "debezium"


@dataclass(frozen=True, slots=True)
class Changelog:
    """A kind of change feed, such as Delta's or Debezium's."""

    #: The name of the column that has the type of a change.
    column: str
    #: ``inserts``, ``updates``, ``deletes`` and ``preimages`` have the values in ``column`` for
    #: each type.
    inserts: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    preimages: tuple[str, ...] = ()
    #: The names of the columns that order the changes. A later change has greater values. The name
    #: of a nested field has dots.
    order: tuple[str, ...] = ()
    #: The names of the columns that belong to the feed, and not to the table.
    metadata: tuple[str, ...] = ()
    #: The names of two struct columns, with the row before and after a change. None if the row is
    #: in the other columns of the DataFrame.
    images: tuple[str, str] | None = None
    #: The name of the column with the time of the commit in the source.
    time: str | None = None
    #: The values in ``column`` for the rows of a snapshot. (Debezium first reads the existing rows
    #: of a table.) If a row of a snapshot and a change have the same position, the change is later.
    snapshots: tuple[str, ...] = ()

    @property
    def types(self) -> tuple[str, ...]:
        """All known values of ``column``: for inserts, updates, deletes and preimages."""
        return (*self.inserts, *self.updates, *self.deletes, *self.preimages)


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """The parsed values of the options ``changelog`` and ``changelog.mode``."""

    log: Changelog
    mode: ChangelogMode = ChangelogMode.UPSERT

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ChangeOptions | None:
        """Reads the options ``changelog`` and ``changelog.mode``. Returns None if ``changelog`` is
        not set: the rows are then ordinary rows, not changes.

        ``values`` has the sink's checked options by attribute name.
        """
        text = values["changelog"]
        return None if text is None else cls(changelog_of(text), values["changelog_mode"])


#: Types that ``upserts`` gives to rows that have no place in the order; the sink refuses them.
TIED: Final = "kprod:several-last-changes"
UNORDERED: Final = "kprod:no-order"

#: Metadata after ``upserts``, of the column of change types and of the key columns (of Debezium's
#: rows): the names of the keys. A table keeps it, whose feed has a new column of change types.
KEYS_OF_UPSERTS: Final = "kprod.keys"

#: The predefined feeds, by name. The names of the columns come from Delta Lake's change data feed,
#: Debezium's ``Envelope`` (in ``debezium-core``), and Flink's ``RowKind``, which Paimon's audit log
#: has as a column.
CHANGELOGS: Final = {
    "delta-cdf": Changelog(
        "_change_type",
        ("insert",),
        ("update_postimage",),
        ("delete",),
        ("update_preimage",),
        order=("_commit_version",),
        metadata=("_commit_version", "_commit_timestamp"),
        time="_commit_timestamp",
    ),
    "debezium": Changelog(
        "op",
        ("c", "r"),
        ("u",),
        ("d",),
        images=("before", "after"),
        time="ts_ms",
        snapshots=("r",),
    ),
    "flink": Changelog("rowkind", ("+I",), ("+U",), ("-D",), ("-U",)),
}

#: The names of a description beside column, in the order of the fields after ``column``.
_NAMES: Final = ("insert", "update", "delete", "before", "order", "metadata")
#: The position of an event in ``source``, by connector: PostgreSQL, MySQL and MariaDB, SQL Server,
#: Oracle. Each is in the order of its log.
_POSITIONS: Final = (
    ("lsn",),
    ("file", "pos", "row"),
    ("commit_lsn", "change_lsn", "event_serial_no"),
    ("commit_scn", "scn", "rs_id", "ssn"),
)
#: The collation that compares bytes.
_BYTES: Final = "UTF8_BINARY"
#: 0.0 and -0.0, bits of NaN; the order of a map's entries and of a variant's fields.
_UNSTABLE: Final = ("float", "double", "map", "variant")
WORDS: Final = (
    f"{', '.join(CHANGELOGS)}, or JSON such as"
    ' {"column": "op", "insert": ["I"], "update": ["U"], "delete": ["D"]}'
)


def changelog_of(text: str) -> Changelog:
    """The change feed that the option's text means: a name such as ``debezium``, or JSON that
    describes a feed.

    Raises ValueError with the reason if the text is neither a known name nor such JSON.
    """
    named = CHANGELOGS.get(text.strip().lower())
    if named is not None:
        return named
    if not text.lstrip().startswith("{"):
        raise ValueError(f"String must be one of {', '.join(CHANGELOGS)}, or JSON")
    try:
        given = json.loads(text)
    except ValueError:
        raise ValueError("It is no valid JSON") from None
    return _described(given)


def checked_changelog(text: str) -> str:
    """Returns ``text`` if it is a valid value of the option ``changelog``. Otherwise raises
    ValueError with the reason.
    """
    changelog_of(text)
    return text


def source_position(fields: Collection[str]) -> tuple[str, ...]:
    """The fields of Debezium's ``source`` struct that order its events, such as ``("lsn",)`` for
    PostgreSQL.

    ``fields`` are the names of all fields of the struct. The fields differ between connectors, so
    the names identify the connector. The result is empty if the connector is unknown.
    """
    return next((known for known in _POSITIONS if set(known) <= set(fields)), ())


class SparkType(Protocol):
    """A data type of Spark. ``config`` must not import Spark, so this protocol declares the method
    that this module calls.
    """

    def typeName(self) -> str: ...  # noqa: N802 - Spark's name


def unstable_type(data_type: SparkType) -> str | None:
    """Returns the name of a type in ``data_type`` that can't be in a key. Returns None if there is
    none.

    With such a type, equal values can be written with different bytes. An example is ``double``,
    with 0.0 and -0.0. The record that deletes a row could then have another key than the record
    that inserted the row.
    """
    name = data_type.typeName()
    if name in _UNSTABLE:
        return name
    if getattr(data_type, "collation", _BYTES) != _BYTES:
        return "collated string"
    inner = [field.dataType for field in getattr(data_type, "fields", ())]
    if hasattr(data_type, "elementType"):
        inner.append(data_type.elementType)
    return next(filter(None, map(unstable_type, inner)), None)


def _described(given: dict[str, object]) -> Changelog:
    unknown = sorted(given.keys() - {"column", *_NAMES})
    if unknown:
        known = ", ".join(("column", *_NAMES))
        raise ValueError(f"The JSON has a name {unknown[0]!r}; known are {known}")
    column = given.get("column")
    if not isinstance(column, str) or not column:
        raise ValueError("The JSON needs a name column, the column of change types")
    inserts, updates, deletes, preimages, order, metadata = (
        _texts(name, given.get(name, [])) for name in _NAMES
    )
    made = Changelog(column, inserts, updates, deletes, preimages, order, metadata)
    if len(set(made.types)) != len(made.types):
        raise ValueError("The JSON names a change type twice")
    if not made.inserts and not made.updates:
        raise ValueError("The JSON names no change type for insert or update")
    if made.preimages and not made.updates:
        raise ValueError("The JSON names a change type for before, and none for update")
    return made


def _texts(name: str, given: object) -> tuple[str, ...]:
    values = [given] if isinstance(given, str) else given
    if not isinstance(values, list) or not all(isinstance(one, str) and one for one in values):
        raise ValueError(f"{name} takes a text or a list of texts that are not empty")
    return tuple(values)
