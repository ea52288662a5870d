"""Describes how columns are encoded in a format with a schema, such as Avro.

A *node* is an encoding for one type, such as :class:`Number`. A node for a struct or a list
contains other nodes. The driver makes the nodes from a schema. Tasks encode columns with the nodes
(``formats/binary/encoder``), and do not need the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class Coding(Enum):
    """The form of an encoded integer."""

    ZIGZAG = auto()
    #: An unsigned varint of 64 bits: a negative number has ten bytes.
    VARINT = auto()
    FIXED32 = auto()
    FIXED64 = auto()


@dataclass(frozen=True, slots=True)
class Boolean:
    """Encodes a boolean as one byte."""


@dataclass(frozen=True, slots=True)
class Number:
    """Encodes a number.

    * ``coding``: the form of the encoded integer. For a floating point number, it is FIXED32 or
      FIXED64, and the bits of the number are written.
    * ``divisor``: the number is first divided by ``divisor`` and rounded down. With 1000,
      microseconds become milliseconds.
    * ``least``, ``most``: a row is refused if its number is below ``least`` or above ``most`` after
      the division.
    """

    coding: Coding = Coding.ZIGZAG
    divisor: int = 1
    least: int = -(1 << 63)
    most: int = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Bytes:
    """Encodes bytes or text.

    * ``length``: a :class:`Coding` means that the number of bytes is written first, as an integer
      with this coding. A number N means that only the bytes are written, and that a row with more
      or fewer than N bytes is refused.
    * ``is_text``: if true, a row with bytes that are not UTF-8 is refused.
    """

    length: Coding | int
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Uuid:
    """Encodes a UUID that the column has as text, such as ``123e4567-e89b-12d3-a456-426614174000``.
    A row with any other text is refused.

    If ``is_fixed`` is true, the 16 bytes of the UUID are written. If it is false, the length of the
    text is written, and then the text.
    """

    is_fixed: bool


@dataclass(frozen=True, slots=True)
class Decimal:
    """Encodes a decimal as its unscaled integer: big-endian, in two's complement, with ``size``
    bytes. If ``size`` is None, the integer gets as few bytes as possible, and the number of these
    bytes is written before the integer.
    """

    precision: int
    scale: int
    size: int | None


@dataclass(frozen=True, slots=True)
class Decimals:
    """Encodes a decimal for a union with several decimal types. Uses the first of these types that
    can hold the decimal.

    ``branches`` has a pair for each decimal type: the bytes that select its branch, and its
    encoding.
    """

    branches: tuple[tuple[bytes, Decimal], ...]


@dataclass(frozen=True, slots=True)
class Symbols:
    """Encodes a string as the number of an enum's symbol: ``symbols[i]`` becomes ``numbers[i]``. A
    row with any other string is refused.
    """

    symbols: tuple[str, ...]
    numbers: tuple[int, ...]
    coding: Coding


@dataclass(frozen=True, slots=True)
class Timestamp:
    """Encodes a timestamp in microseconds as a message google.protobuf.Timestamp (seconds and
    nanoseconds).
    """


@dataclass(frozen=True, slots=True)
class Message:
    """Encodes a value as a Protobuf message with one field. The message's size in bytes is written
    first.

    Used for google.protobuf.StringValue and similar messages, if the column is not a struct.
    """

    field: Value


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a :class:`Record`.

    * ``index``: the index of the field's column in the struct. -1 if the field has no column.
    * ``value``: the encoding of the column. If the field has no column, the encoded default of the
      field, as bytes.
    """

    name: str
    index: int
    value: Value | bytes


@dataclass(frozen=True, slots=True)
class Record:
    """Encodes a struct: its fields one after another, in the schema's order.

    * ``length``: if true, the total size of the fields in bytes is written first.
    * ``choices``: groups of columns, by index. The columns of a group belong to the same Protobuf
      oneof. A row with values in several columns of a group is refused, because readers would keep
      only one of these values.
    """

    fields: tuple[Field, ...]
    length: bool = False
    choices: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Items:
    """Encodes a list or a map. ``item`` encodes an item of the list, or an entry of the map.

    * ``is_block``: if true, the list is written in Avro's form: the number of items, the items, and
      a zero byte. An empty list is only the zero byte.
    * ``packed``: if not empty, the list is written in Protobuf's packed form: the bytes ``packed``
      (the tag), the size of all items in bytes, and the items. An empty list is not written.

    If neither is set, only the items are written, one after another.
    """

    item: Value
    is_block: bool = False
    packed: bytes = b""


#: An item of a path through a column. It means the items of a list, or the values of a map. All
#: other items of a path are indexes of fields.
ITEMS: Final = -1


@dataclass(frozen=True, slots=True)
class JsonText:
    """Encodes a column as JSON, in the same form as ``valueFormat=json``.

    The path of a value is a tuple of indexes of fields. In a path, :data:`ITEMS` means the items of
    a list or the values of a map.

    * ``kept``: the paths of fields that are written as ``null`` if they are null. All other null
      fields are left out.
    * ``required``: the values that must not be null, as triples: the path of the value, the name of
      the value, and the end of the error message. A row with a null there is refused.
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
    """Encodes a value that can be null.

    * ``node``: the encoding of the value.
    * ``branch``: the bytes before the value. They select the branch of an Avro union, or are the
      tag of a Protobuf field.
    * ``null``: the bytes that are written for a null. If it is None, a row with a null is refused.
    * ``zeros``: values that equal the default of a Protobuf field without presence, such as 0. They
      are written like a null.
    """

    node: Node
    branch: bytes = b""
    null: bytes | None = None
    zeros: tuple[object, ...] = ()


def entry(key: Value, value: Value) -> Record:
    """The node for an entry of a map: a record with the fields ``key`` and ``value``."""
    return Record((Field("key", 0, key), Field("value", 1, value)))
