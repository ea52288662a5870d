"""How columns are written in a format: made when they are matched with a schema, on the driver.

Owns: the nodes. Never: Arrow (``formats/binary/encoder`` follows them), a schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


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
    """A column's integers divided by ``divisor`` (micros to millis, rounded down). Numbers outside
    of ``least`` and ``most`` are refused. Numbers with a fraction are their bits, as many as
    ``coding`` has.
    """

    coding: Coding = Coding.ZIGZAG
    divisor: int = 1
    least: int = -(1 << 63)
    most: int = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes after their count, or bytes of a fixed size (``length`` is an int). ``is_text``: bytes
    that are not UTF-8 are refused.
    """

    length: Coding | int
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Uuid:
    """The text of a UUID, 8-4-4-4-12 hexadecimal digits; other texts are refused. ``is_fixed``: as
    16 bytes, otherwise as the text after its length.
    """

    is_fixed: bool


@dataclass(frozen=True, slots=True)
class Decimal:
    """``size``: of a fixed; None: bytes, as few as the number has."""

    precision: int
    scale: int
    size: int | None


@dataclass(frozen=True, slots=True)
class Decimals:
    """A decimal as the first of these that holds it, each after its branch of a union."""

    branches: tuple[tuple[bytes, Decimal], ...]


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
class Message:
    """A value that is no struct as the only field of a message, which comes after the number of its
    bytes (google.protobuf.StringValue and the other wrappers).
    """

    field: Value


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record: column ``index`` as ``value``, or constant bytes."""

    name: str
    index: int
    value: Value | bytes


@dataclass(frozen=True, slots=True)
class Record:
    """Fields in the schema's order; ``length``: after the number of its bytes. ``choices`` are
    groups of columns: a row may have a value in only one column of a group, because readers would
    lose the others.
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


#: A step of a way through a column: the items of a list, or the values of a map. Others are the
#: indexes of fields.
ITEMS: Final = -1


@dataclass(frozen=True, slots=True)
class JsonText:
    """The text of ``valueFormat=json``. ``required`` are the values whose nulls are refused: the
    way to each, its name, and the rest of the sentence. ``kept`` are the ways to fields whose nulls
    are written, and not left out.
    """

    required: tuple[tuple[tuple[int, ...], str, str], ...]
    kept: frozenset[tuple[int, ...]] = frozenset()


Node = (
    Boolean
    | Number
    | Bytes
    | Uuid
    | Decimal
    | Decimals
    | Symbols
    | Timestamp
    | Message
    | Record
    | Items
    | JsonText
)


@dataclass(frozen=True, slots=True)
class Value:
    """``node`` after ``branch``: the branch of a union, or the tag of a field. ``null`` are the
    bytes of a null; None: a null is refused. ``zeros`` are left out: the defaults of a Protobuf
    field without presence.
    """

    node: Node
    branch: bytes = b""
    null: bytes | None = None
    zeros: tuple[object, ...] = ()


def entry(key: Value, value: Value) -> Record:
    """An entry of a map."""
    return Record((Field("key", 0, key), Field("value", 1, value)))
