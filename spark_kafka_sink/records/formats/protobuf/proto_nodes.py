"""How columns are written as a message: the result of ``proto_match``.

Owns: the nodes, which travel from the driver to the tasks. Never: Arrow, a schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Wire(Enum):
    """The encoding of a value without what leads it."""

    #: As int64: negative ones take ten bytes.
    VARINT = auto()
    ZIGZAG = auto()
    FIXED32 = auto()
    FIXED64 = auto()
    BOOL = auto()
    FLOAT = auto()
    DOUBLE = auto()
    STRING = auto()
    BYTES = auto()
    #: google.protobuf.Timestamp of microseconds.
    TIMESTAMP = auto()


@dataclass(frozen=True, slots=True)
class Scalar:
    """Integers outside of ``least`` and ``most`` are refused; None: a column has no others."""

    wire: Wire
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Symbols:
    """The number of a string among these."""

    symbols: tuple[str, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """Fields in the order of their numbers."""

    fields: tuple[Field, ...]


Value = Scalar | Symbols | Message


@dataclass(frozen=True, slots=True)
class Repeated:
    """Items of a list; ``packed``: all together in one field."""

    item: Value
    packed: bool


@dataclass(frozen=True, slots=True)
class Map:
    """Entries of a map, as messages of two fields."""

    key: Scalar
    value: Value


@dataclass(frozen=True, slots=True)
class Field:
    """Column ``index``, after ``number`` and wire type. ``required``: a null is refused."""

    name: str
    number: int
    index: int
    value: Value | Repeated | Map
    required: bool = False


def tag(number: int, value: Value | Repeated | Map) -> bytes:
    """The bytes before a value."""
    kind = 2
    if isinstance(value, Symbols):
        kind = 0
    elif isinstance(value, Scalar):
        kind = _KINDS.get(value.wire, 2)
    rest, out = number << 3 | kind, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


_KINDS = {
    **dict.fromkeys((Wire.VARINT, Wire.ZIGZAG, Wire.BOOL), 0),
    **dict.fromkeys((Wire.FIXED64, Wire.DOUBLE), 1),
    **dict.fromkeys((Wire.FIXED32, Wire.FLOAT), 5),
}
