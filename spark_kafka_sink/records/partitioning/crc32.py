"""Computes the CRC-32 (as in zlib) of each key in a column. librdkafka's default partitioner uses
this hash.

The checksum of record batches is a different function, CRC-32C. ``partitioners`` decides for which
rows the key is hashed.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.partitioning.key_blocks import Block, UInt32s, hash_blocks

_ALL = np.uint32(0xFFFFFFFF)
_FF = np.uint32(0xFF)
_8 = np.uint32(8)


def _tables() -> tuple[UInt32s, UInt32s, UInt32s, UInt32s]:
    """The four lookup tables for CRC-32. Entry i of table n is the CRC register after these bytes:
    the byte i, and then n zero bytes.
    """
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, first >> 1 ^ np.uint32(0xEDB88320), first >> 1)
    tables = [first]
    for _ in range(3):
        last = tables[-1]
        tables.append(first.take(last & _FF) ^ last >> _8)
    return tables[0], tables[1], tables[2], tables[3]


_T0, _T1, _T2, _T3 = _tables()
_halves: tuple[UInt32s, UInt32s] | None = None


def crc32(keys: pa.BinaryArray | pa.LargeBinaryArray) -> UInt32s:
    """The CRC-32 of every key, as a uint32 array. The CRC-32 of a null key is 0, as for an empty
    key.
    """
    return hash_blocks(keys, _hash_block)


def crc32_of(key: bytes) -> int:
    """The CRC-32 of one key, as :func:`crc32` computes it for a column."""
    return zlib.crc32(key)


def _half_tables() -> tuple[UInt32s, UInt32s]:
    """Two lookup tables, for the lower and the upper half of a 32-bit word. The tables have half a
    megabyte, and are computed when they are first used.
    """
    global _halves
    if _halves is None:
        lower, upper = np.arange(65536) & 0xFF, np.arange(65536) >> 8
        _halves = _T3.take(lower) ^ _T2.take(upper), _T1.take(lower) ^ _T0.take(upper)
    return _halves


def _hash_block(keys: Block) -> UInt32s:
    low, high = _half_tables()
    c = np.full(len(keys.lengths), _ALL)
    for count, word in keys.steps():
        part = c[:count]
        part ^= word
        halves: npt.NDArray[np.uint16] = part.view("<u2").reshape(-1, 2)
        np.bitwise_xor(low.take(halves[:, 0]), high.take(halves[:, 1]), out=part)
    tails, sizes = keys.tails(), keys.odd
    for size in (1, 2, 3):
        rows = np.flatnonzero(sizes == size)
        if len(rows):
            left = c.take(rows)
            tail = tails.take(rows)
            for _ in range(size):
                left = _T0.take((left ^ tail) & _FF) ^ left >> _8
                tail >>= _8
            c[rows] = left
    c ^= _ALL
    for row, key in keys.unfinished():
        c[row] = zlib.crc32(key)
    return c
