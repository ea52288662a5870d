"""Computes MurmurHash3 (x86, 32 bits, seed 0) of each key in a column. Iceberg's bucket transform
uses this hash.

The key is a byte string, or an integer that is hashed as Iceberg hashes integers. Kafka's own hash
is ``murmur2``. ``partitioners`` decides for which rows the key is hashed.
"""

from __future__ import annotations

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.gather import data_of, lengths_of, offsets_of
from spark_kafka_sink.records.partitioning.key_blocks import Block, UInt32s, hash_blocks

_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_5 = np.uint32(5)
_N = np.uint32(0xE6546B64)
_F1 = np.uint32(0x85EBCA6B)
_F2 = np.uint32(0xC2B2AE35)

#: Bytes of an integer key: two's complement, the highest byte first (Kafka's IntegerSerializer and
#: LongSerializer).
INTEGER_WIDTHS = (4, 8)


def murmur3(keys: pa.BinaryArray | pa.LargeBinaryArray) -> UInt32s:
    """The MurmurHash3 of every key, as a uint32 array. A null key has the hash of the empty
    key, 0.
    """
    return hash_blocks(keys, _hash_block)


def murmur3_of(key: bytes) -> int:
    """The MurmurHash3 of one key, as an unsigned 32-bit number. :func:`murmur3` computes the same
    hash for a column.
    """
    return mmh3.hash(key, 0, signed=False)


def murmur3_of_integers(keys: pa.BinaryArray | pa.LargeBinaryArray) -> UInt32s:
    """Iceberg's hash of every key, if the keys are integers. Each key is an integer of 4 or 8
    bytes, big-endian. A key of any other length gets the hash of the number 0.

    As in Iceberg, the hash is computed from the integer as a long: from its 8 bytes in
    little-endian order. So an int has the same hash as the equal long.
    """
    lengths, offsets, data = lengths_of(keys), offsets_of(keys), data_of(keys)
    longs = np.zeros(len(keys), np.int64)
    for width in INTEGER_WIDTHS:
        rows = np.flatnonzero(lengths == width)
        places = offsets.take(rows).astype(np.int64)[:, None] + np.arange(width)
        longs[rows] = data.take(places).view(f">i{width}")[:, 0]
    return murmur3_of_longs(longs)


def murmur3_of_integer(key: bytes) -> int:
    """The hash of one key that is an integer, as :func:`murmur3_of_integers` computes it for a
    column.
    """
    number = int.from_bytes(key, "big", signed=True) if len(key) in INTEGER_WIDTHS else 0
    return murmur3_of(number.to_bytes(8, "little", signed=True))


def murmur3_of_longs(numbers: npt.NDArray[np.int64]) -> UInt32s:
    """The hash of each number, as a uint32 array. The hash is computed from the 8 bytes of the
    number in little-endian order, as Iceberg does for a long.
    """
    words = numbers.astype("<i8").view("<u4").reshape(-1, 2)
    h = np.zeros(len(numbers), np.uint32)
    _mix(h, words[:, 0].copy())
    _mix(h, words[:, 1].copy())
    h ^= np.uint32(8)
    return _finish(h)


def _hash_block(keys: Block) -> UInt32s:
    h = np.zeros(len(keys.lengths), np.uint32)
    for count, k in keys.steps():
        _mix(h[:count], k)
    h ^= _scrambled(keys.tails())  # of no tail: 0
    h ^= keys.lengths.astype(np.uint32)
    _finish(h)
    for row, key in keys.unfinished():
        h[row] = murmur3_of(key)
    return h


def _mix(h: UInt32s, k: UInt32s) -> None:
    h ^= _scrambled(k)
    high = h >> np.uint32(19)
    h <<= np.uint32(13)
    h |= high
    h *= _5
    h += _N


def _scrambled(k: UInt32s) -> UInt32s:
    k *= _C1
    high = k >> np.uint32(17)
    k <<= np.uint32(15)
    k |= high
    k *= _C2
    return k


def _finish(h: UInt32s) -> UInt32s:
    h ^= h >> np.uint32(16)
    h *= _F1
    h ^= h >> np.uint32(13)
    h *= _F2
    h ^= h >> np.uint32(16)
    return h
