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
    """Encodes a column's numbers. First each number is divided by ``divisor`` and rounded down, for
    example to convert microseconds to milliseconds.

    Numbers below ``least`` or above ``most`` are refused. A floating point number is encoded as its
    32 or 64 bits, as ``coding`` determines.
    """

    coding: Coding = Coding.ZIGZAG
    divisor: int = 1
    least: int = -(1 << 63)
    most: int = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Bytes:
    """Encodes bytes or text. If ``length`` is a :class:`Coding`, the length is written before the
    bytes. Otherwise ``length`` is a fixed length. With ``is_text``, bytes that are not UTF-8 are
    refused.
    """

    length: Coding | int
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Uuid:
    """Encodes a UUID, which is given as text of 8-4-4-4-12 hexadecimal digits. Other texts are
    refused.

    With ``is_fixed``, the UUID is encoded as 16 bytes. Otherwise the length of the text is written,
    then the text.
    """

    is_fixed: bool


@dataclass(frozen=True, slots=True)
class Decimal:
    """Encodes a decimal as an integer of ``size`` bytes. If ``size`` is None, as few bytes as
    possible are used.
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
    """A field of a record. It is the column with the index ``index``, encoded as ``value``, or
    constant bytes.
    """

    name: str
    index: int
    value: Value | bytes


@dataclass(frozen=True, slots=True)
class Record:
    """Encodes a struct as fields in the schema's order. With ``length``, the size of the record in
    bytes is written first.

    ``choices`` are groups of columns for a Protobuf oneof. A row may have a value in only one
    column of a group, because readers would ignore the other values.
    """

    fields: tuple[Field, ...]
    length: bool = False
    choices: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Items:
    """Encodes the items of a list, or the entries of a map, which are records.

    * ``is_block``: true for Avro's form. If there are items, their number comes first. A zero byte
      comes last.
    * ``packed``: the tag, for Protobuf's packed form. If there are items, the tag and the total
      size of the items in bytes come first.
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

    ``required`` are the values whose nulls are refused. Each is described by its path, its name and
    the rest of the error's sentence. ``kept`` are the paths of fields whose nulls are written.
    Other null fields are left out.
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
    """Encodes a value that may be null. The bytes ``branch`` come first, then the value, encoded as
    ``node``.

    ``branch`` is the branch of a union, or the tag of a field. ``null`` are the bytes for a null.
    If ``null`` is None, a null is refused. ``zeros`` are values that are left out: the default of a
    Protobuf field that has no presence.
    """

    node: Node
    branch: bytes = b""
    null: bytes | None = None
    zeros: tuple[object, ...] = ()


def entry(key: Value, value: Value) -> Record:
    """The node of a map's entry: a record of key and value."""
    return Record((Field("key", 0, key), Field("value", 1, value)))
