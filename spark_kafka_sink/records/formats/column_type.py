"""The types of columns as formats see them: neither Spark's classes nor Arrow's.

Owns: :class:`ColumnType`. Never: Spark
(``datasource/schemas/column_types.py`` makes them), Arrow.
"""

from __future__ import annotations

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
