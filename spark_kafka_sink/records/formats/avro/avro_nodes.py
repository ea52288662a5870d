"""How columns are written as a schema wants them: the result of ``column_match``.

Owns: the nodes, which travel from the driver to the tasks. Never: Arrow (``avro_encoder`` follows
them), a schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Scalar(Enum):
    """Values that need nothing but their column."""

    NULL = auto()
    BOOLEAN = auto()
    FLOAT = auto()
    DOUBLE = auto()
    STRING = auto()
    BYTES = auto()


@dataclass(frozen=True, slots=True)
class Number:
    """A varint of a column's integers divided by ``divisor`` (micros to millis, rounded down);
    ``is_int``: only those of 32 bits are accepted, and a column may have others.
    """

    divisor: int = 1
    is_int: bool = False


@dataclass(frozen=True, slots=True)
class Fixed:
    """Bytes of this size."""

    size: int


@dataclass(frozen=True, slots=True)
class Decimal:
    """``size``: of a fixed; None: bytes, as few as the number has. ``checked``: a column may have
    numbers that the schema's precision and scale do not allow.
    """

    precision: int
    scale: int
    size: int | None
    checked: bool


@dataclass(frozen=True, slots=True)
class Symbols:
    """The index of a string among these."""

    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """A field's default, encoded."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Field:
    """Of a record: column ``index`` as ``value``, or a constant."""

    name: str
    index: int
    value: Value | Constant


@dataclass(frozen=True, slots=True)
class Record:
    """Fields in the schema's order."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """Items of a list."""

    item: Value


@dataclass(frozen=True, slots=True)
class Map:
    """Values of a map with keys of text."""

    value: Value


Node = Scalar | Number | Fixed | Decimal | Symbols | Record | Array | Map


@dataclass(frozen=True, slots=True)
class Value:
    """``node``, after the ``branch`` of a union (empty without one). ``null`` is what a null is
    written as; None: it is refused.
    """

    node: Node
    branch: bytes = b""
    null: bytes | None = None
