"""The types of columns as formats see them: neither Spark's classes nor Arrow's.

Owns: :class:`ColumnType`, and how a name of a schema finds a column. Never: Spark
(``datasource/schemas/column_types.py`` makes them), Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto


class ColumnKind(Enum):
    """What a column holds."""

    NULL = auto()
    BOOLEAN = auto()
    #: Of at most 32 bits.
    INT = auto()
    LONG = auto()
    FLOAT = auto()
    DOUBLE = auto()
    DECIMAL = auto()
    STRING = auto()
    BINARY = auto()
    DATE = auto()
    TIMESTAMP = auto()
    TIMESTAMP_NTZ = auto()
    STRUCT = auto()
    ARRAY = auto()
    MAP = auto()


@dataclass(frozen=True, slots=True)
class ColumnType:
    """``text`` is Spark's name of it, for messages. ``children`` are a struct's fields, with their
    ``names``; the elements of an array; or key and value of a map.
    """

    kind: ColumnKind
    text: str
    nullable: bool = True
    children: tuple[ColumnType, ...] = ()
    names: tuple[str, ...] = ()
    precision: int = 0
    scale: int = 0


def find_name(names: Sequence[str], wanted: Sequence[str]) -> int | None:
    """The index of the first of ``wanted`` (a name and its aliases) among ``names``: as it is
    written, else in any case when only one is meant.
    """
    for name in wanted:
        if name in names:
            return names.index(name)
    for name in wanted:
        found = [i for i, one in enumerate(names) if one.lower() == name.lower()]
        if len(found) == 1:
            return found[0]
    return None
