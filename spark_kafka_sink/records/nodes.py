"""The nodes that describe the encoding of columns in a format with a schema. Made on the driver.

Owns: the nodes. Never: Arrow (``formats/binary/encoder`` encodes columns as the nodes describe), a
schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class Coding(Enum):
    """The encodings of an integer."""

    ZIGZAG = auto()
    #: As 64 bits: negative ones take ten bytes.
    VARINT = auto()
    FIXED32 = auto()
    FIXED64 = auto()


@dataclass(frozen=True, slots=True)
class Boolean:
    """Encodes a boolean as one byte."""


@dataclass(frozen=True, slots=True)
class Number:
    """Encodes a column's numbers, after an integer division by ``divisor`` (micros to millis,
    rounded down).

    Numbers below ``least`` or above ``most`` are refused. Floating point numbers are encoded as
    their bits, 32 or 64 as ``coding`` has.
    """

    coding: Coding = Coding.ZIGZAG
    divisor: int = 1
    least: int = -(1 << 63)
    most: int = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Bytes:
    """Encodes bytes or text: after the length if ``length`` is a :class:`Coding`, or with a fixed
    length. With ``is_text``, bytes that are not UTF-8 are refused.
    """

    length: Coding | int
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Uuid:
    """Encodes a UUID, given as text of 8-4-4-4-12 hexadecimal digits; other texts are refused.

    With ``is_fixed`` it is encoded as 16 bytes, otherwise as the text after its length.
    """

    is_fixed: bool


@dataclass(frozen=True, slots=True)
class Decimal:
    """Encodes a decimal: as a fixed of ``size`` bytes, or as the fewest bytes if ``size`` is
    None.
    """

    precision: int
    scale: int
    size: int | None


@dataclass(frozen=True, slots=True)
class Decimals:
    """Encodes a decimal as the first of several branches of a union that can hold it. Each branch
    has its prefix.
    """

    branches: tuple[tuple[bytes, Decimal], ...]


@dataclass(frozen=True, slots=True)
class Symbols:
    """Encodes a string as the number of an enum's symbol."""

    symbols: tuple[str, ...]
    numbers: tuple[int, ...]
    coding: Coding


@dataclass(frozen=True, slots=True)
class Timestamp:
    """Encodes microseconds as a message of seconds and nanoseconds (google.protobuf.Timestamp)."""


@dataclass(frozen=True, slots=True)
class Message:
    """Encodes a value as the only field of a message, after the message's size in bytes.

    Used for values that are no structs: google.protobuf.StringValue and the other wrappers.
    """

    field: Value


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record: the column ``index`` encoded as ``value``, or constant bytes."""

    name: str
    index: int
    value: Value | bytes


@dataclass(frozen=True, slots=True)
class Record:
    """Encodes a struct as fields in the schema's order. With ``length``, the size in bytes comes
    first.

    ``choices`` are groups of columns. A row may have a value in only one column of a group, because
    readers would lose the others.
    """

    fields: tuple[Field, ...]
    length: bool = False
    choices: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Items:
    """Encodes the items of a list, or the entries of a map, which are records.

    * ``is_block``: Avro's form. If there are items, their number comes first. A zero byte comes
      last.
    * ``packed``: the tag in Protobuf's packed form. If there are items, the tag and the total size
      of the items in bytes come first.
    """

    item: Value
    is_block: bool = False
    packed: bytes = b""


#: A step of a way through a column: the items of a list, or the values of a map. Others are the
#: indexes of fields.
ITEMS: Final = -1


@dataclass(frozen=True, slots=True)
class JsonText:
    """Encodes a column as the JSON text of ``valueFormat=json``.

    ``required`` are the values whose nulls are refused: for each, the path, its name and the rest
    of the error's sentence. ``kept`` are the paths of fields whose nulls are written instead of
    left out.
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
    """Encodes a value that may be null: the bytes ``branch``, then the value as ``node``.

    ``branch`` is the branch of a union, or the tag of a field. ``null`` are the bytes for a null.
    If ``null`` is None, a null is refused. Values in ``zeros`` are left out: the defaults of a
    Protobuf field without presence.
    """

    node: Node
    branch: bytes = b""
    null: bytes | None = None
    zeros: tuple[object, ...] = ()


def entry(key: Value, value: Value) -> Record:
    """The node of a map's entry: a record of key and value."""
    return Record((Field("key", 0, key), Field("value", 1, value)))
