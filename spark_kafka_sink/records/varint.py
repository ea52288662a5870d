"""Encodes and decodes integers of variable length (varints), one by one and by columns (Java's
``ByteUtils``).

A varint is signed (zigzag) or unsigned, and has up to 5 bytes (int32) or 10 bytes (int64).

:class:`Packed` is a column of varints: an array of 64-bit words with the bytes of the varints, and
an array with the sizes of the varints. In this form, the varints of two columns can be joined row
by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.base.errors import RemoteProtocolError

UInt64s = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]

#: The least and the greatest item of an array. These calls are faster than ``min()`` and ``max()``
#: of numpy, which call them through Python code.
lowest, highest = np.minimum.reduce, np.maximum.reduce

_MASK64 = (1 << 64) - 1
#: Most bytes of a varint of an int32, and of an int64.
MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10


def zigzag(value: int) -> int:
    """Converts a signed integer to an unsigned integer: 0, -1, 1, -2 become 0, 1, 2, 3. So a number
    near to 0 gets a short varint, even if the number is negative.
    """
    return ((value << 1) ^ (value >> 63)) & _MASK64


def unsigned_varint(value: int) -> bytes:
    """Encodes ``value`` 7 bits at a time, the lowest bits first. A negative value is encoded as an
    unsigned 32-bit number, as in Java.
    """
    if value < 0:
        value &= 0xFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Encodes a signed int32 or int64 as a varint of its zigzag form, as Java's writeVarint and
    writeVarlong do.
    """
    return unsigned_varint(zigzag(value))


def sized(data: bytes) -> bytes:
    """The length of ``data`` as a varint, followed by ``data``."""
    return varint(len(data)) + data


@lru_cache(1024)  # of the few lengths and deltas that chunk after chunk has
def varint_size(value: int) -> int:
    """The size of :func:`varint` of ``value``, in bytes."""
    return max(1, (zigzag(value).bit_length() + 6) // 7)


def read_unsigned_varint(
    data: bytes | memoryview, position: int, max_bytes: int = MAX_VARINT_BYTES
) -> tuple[int, int]:
    """Decodes the varint at ``position``. Returns its value, and the position after it.

    Raises RemoteProtocolError in these cases:

    * The data ends inside of the varint.
    * The varint is longer than ``max_bytes``.
    * The value has more than 32 bits, or more than 64 bits if ``max_bytes`` is 10.
    """
    value = 0
    for i in range(max_bytes):
        if position + i >= len(data):
            raise RemoteProtocolError(f"a varint at byte {position} runs past the end")
        byte = data[position + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            if value >> (32 if max_bytes == MAX_VARINT_BYTES else 64):
                break
            return value, position + i + 1
    raise RemoteProtocolError(f"a varint at byte {position} is longer than {max_bytes} bytes allow")


def read_varint(
    data: bytes | memoryview, position: int, max_bytes: int = MAX_VARINT_BYTES
) -> tuple[int, int]:
    """Decodes the signed (zigzag) varint at ``position``. Arguments, result and errors are the same
    as in :func:`read_unsigned_varint`.
    """
    value, position = read_unsigned_varint(data, position, max_bytes)
    return (value >> 1) ^ -(value & 1), position


_ZERO = np.uint64(0)
_3 = np.uint64(3)


@dataclass(slots=True)
class Packed:
    """A short string (at most 8 bytes) for each row.

    * ``word``: a 64-bit integer with the bytes, the first byte in the lowest bits. Unused bits are
      zero.
    * ``size``: the number of bytes.
    * ``most``: an upper bound of ``size``.

    ``word`` and ``size`` are arrays with an item for each row, or one value for all rows.
    """

    word: UInt64s | np.uint64
    size: UInt64s | np.uint64
    most: int

    def __add__(self, other: Packed) -> Packed:
        """Joins the two strings of each row. The joined string must have at most 8 bytes."""
        word = self.word
        if other.word is not _ZERO:
            word = word | other.word << (self.size << _3)
        return Packed(word, self.size + other.size, self.most + other.most)


def packed_bytes(data: bytes) -> Packed:
    """Creates a :class:`Packed` that has the same string ``data`` (at most 8 bytes) for all
    rows.
    """
    word = np.uint64(int.from_bytes(data, "little")) if any(data) else _ZERO
    return Packed(word, np.uint64(len(data)), len(data))


def _table() -> tuple[UInt64s, UInt64s]:
    """A lookup table with the signed varints of 0 to 32767, and their sizes. Most lengths and
    deltas are in this range.
    """
    value = np.arange(0, 65536, 2)
    size = 1 + (value >= 1 << 7) + (value >= 1 << 14)
    word = (
        (value & 0x7F)
        | np.where(size > 1, 0x80, 0)
        | (value >> 7 & 0x7F) << 8
        | np.where(size > 2, 0x8000, 0)
        | value >> 14 << 16
    )
    return word.astype(np.uint64), size.astype(np.uint64)


_WORDS, _SIZES = _table()
_CONTINUED = np.array([0x8080808080808080 & ((1 << 8 * n) - 1) for n in range(9)], np.uint64)


def unsigned_sizes(values: npt.NDArray[np.integer], largest: int, more: int = 7) -> Int64s:
    """The number of bytes that each value needs. One byte has room for 7 bits of the value. Each
    further byte adds ``more`` bits: 7 for an unsigned varint, which has a continuation bit in each
    byte, and 8 for two's complement, which has only one sign bit.

    ``largest`` is an upper bound of the values. The result for a negative value is 1.
    """
    size = np.ones(len(values), np.int64)
    bits = 7
    while bits < 64 and largest >> bits:
        size += values >= values.dtype.type(1 << bits)
        bits += more
    return size


@lru_cache(1024)
def pack_constant(value: int) -> tuple[Packed, ...]:
    """Encodes one value as a signed varint, for all rows. Returns one :class:`Packed`. If the
    varint has more than 8 bytes, a second Packed has the bytes after the eighth.
    """
    data = varint(value)
    parts = [data] if len(data) <= 8 else [data[:8], data[8:]]
    return tuple([packed_bytes(part) for part in parts])


def pack(values: npt.NDArray[np.integer]) -> Sequence[Packed]:
    """Encodes each value as a signed varint. Returns one :class:`Packed` for all values. If a
    varint has more than 8 bytes, a second Packed has the bytes after the eighth.
    """
    if len(values) == 0:
        return pack_constant(0)
    low, high = int(lowest(values)), int(highest(values))
    if low == high:
        return pack_constant(low)
    largest = max(zigzag(low), zigzag(high))
    if low >= 0 and high < len(_WORDS):
        return [Packed(_WORDS.take(values), _SIZES.take(values), varint_size(high))]
    wide = values.astype(np.int64)
    return _pack_any(((wide << 1) ^ (wide >> 63)).view(np.uint64), largest)


def pack_unsigned(values: Int64s) -> Sequence[Packed]:
    """Encodes each value as an unsigned varint. Returns one :class:`Packed` for all values. If a
    varint has more than 8 bytes, a second Packed has the bytes after the eighth.

    Each value is read as an unsigned 64-bit number, so a negative value has ten bytes.
    """
    if len(values) == 0:
        return [packed_bytes(b"\x00")]
    low, high = int(lowest(values)), int(highest(values))
    bits = np.ascontiguousarray(values).view(np.uint64)
    return _pack_any(bits, _MASK64 if low < 0 else high)


def _spread(values: UInt64s, most: int) -> UInt64s:
    """Spreads the low 56 bits of each value over 8 bytes, so that each byte has 7 bits."""
    word = values
    if most > 4:
        word = (word & np.uint64(0xFFFFFFF)) | (word & np.uint64(0xFFFFFFF0000000)) << np.uint64(4)
    if most > 2:
        word = (word & np.uint64(0x3FFF00003FFF)) | (
            word & np.uint64(0xFFFC0000FFFC000)
        ) << np.uint64(2)
    low, high = np.uint64(0x7F007F007F007F), np.uint64(0x3F803F803F803F80)
    return (word & low) | (word & high) << np.uint64(1)


def _pack_any(values: UInt64s, largest: int) -> list[Packed]:
    most = max(1, (largest.bit_length() + 6) // 7)
    size = unsigned_sizes(values, largest).view(np.uint64)
    word = _spread(values, most)
    low_size = np.minimum(size, np.uint64(8))
    # A varint that ends here has no mark on its last byte; a longer one marks all eight.
    word |= _CONTINUED.take((np.minimum(size - np.uint64(1), np.uint64(8))).view(np.int64))
    if most <= 8:
        return [Packed(word, size, most)]
    rest = np.zeros(len(values), np.uint64)
    for i in range(8, most):
        rest |= (values >> np.uint64(7 * i) & np.uint64(0x7F)) << np.uint64(8 * (i - 8))
    rest |= np.where(size > np.uint64(9), np.uint64(0x80), np.uint64(0))
    return [Packed(word, low_size, 8), Packed(rest, size - low_size, most - 8)]
