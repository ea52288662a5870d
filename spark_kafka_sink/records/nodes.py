"""How columns are written in a format: made when they are matched with a schema, on the driver.

Owns: the nodes. Never: Arrow (``formats/binary/encoder`` follows them), a schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Coding(Enum):
    """The bytes of an integer."""

    ZIGZAG = auto()
    #: As 64 bits: negative ones take ten bytes.
    VARINT = auto()
    FIXED32 = auto()
    FIXED64 = auto()


@dataclass(frozen=True, slots=True)
class Boolean:
    """A byte."""


@dataclass(frozen=True, slots=True)
class Number:
    """A column's integers divided by ``divisor`` (micros to millis, rounded down). Those outside of
    ``least`` and ``most`` are refused. Numbers with a fraction are their bits, of as many bits as
    ``coding`` has.
    """

    coding: Coding = Coding.ZIGZAG
    divisor: int = 1
    least: int = -(1 << 63)
    most: int = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes after their number, or those of one size only (``length`` is an int, a fixed).
    ``is_text``: those that are not UTF-8 are refused.
    """

    length: Coding | int
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Decimal:
    """``size``: of a fixed; None: bytes, as few as the number has."""

    precision: int
    scale: int
    size: int | None


@dataclass(frozen=True, slots=True)
class Symbols:
    """The number of a string among these."""

    symbols: tuple[str, ...]
    numbers: tuple[int, ...]
    coding: Coding


@dataclass(frozen=True, slots=True)
class Timestamp:
    """Microseconds as a message of seconds and nanoseconds (google.protobuf.Timestamp)."""


@dataclass(frozen=True, slots=True)
class Field:
    """Of a record: column ``index`` as ``value``, or always the same bytes."""

    name: str
    index: int
    value: Value | bytes


@dataclass(frozen=True, slots=True)
class Record:
    """Fields in the schema's order; ``length``: after the number of its bytes. ``choices`` are
    columns of which a row may have one only: readers would lose the others.
    """

    fields: tuple[Field, ...]
    length: bool = False
    choices: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Items:
    """Items of a list, or entries of a map, which are records. ``is_block``: after their number, if
    there are any, and before a zero. ``packed``: after these bytes and the number of all of theirs,
    if there are any.
    """

    item: Value
    is_block: bool = False
    packed: bytes = b""


@dataclass(frozen=True, slots=True)
class JsonText:
    """What ``valueFormat=json`` writes. ``required`` are fields whose nulls are refused: the way to
    each, and its name.
    """

    required: tuple[tuple[tuple[int, ...], str], ...]


Node = Boolean | Number | Bytes | Decimal | Symbols | Timestamp | Record | Items | JsonText


@dataclass(frozen=True, slots=True)
class Value:
    """``node`` after ``branch``: the branch of a union, or the tag of a field. ``null`` is what a
    null is written as; None: it is refused. ``zeros`` are left out: the defaults of a field of
    Protobuf that has no presence.
    """

    node: Node
    branch: bytes = b""
    null: bytes | None = None
    zeros: tuple[object, ...] = ()


def entry(key: Value, value: Value) -> Record:
    """An entry of a map."""
    return Record((Field("key", 0, key), Field("value", 1, value)))
