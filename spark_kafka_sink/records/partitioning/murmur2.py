"""Computes Kafka's murmur2 hash of each key in a column (Java's ``Utils.murmur2``, seed
0x9747b28c).

This is not MurmurHash3. The package ``mmh3`` computes MurmurHash3, so it would lead to other
partitions. ``partitioners`` decides for which rows the key is hashed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from spark_kafka_sink.records.partitioning.key_blocks import Block, UInt32s, hash_blocks

_SEED_INT = 0x9747B28C
_SEED = np.uint32(_SEED_INT)
_M = np.uint32(0x5BD1E995)
_M_INT = 0x5BD1E995
_24 = np.uint32(24)


def _unpack_words(words: int) -> Callable[[bytes], tuple[int, ...]]:
    return struct.Struct(f"<{words}I").unpack_from


_WORDS = [_unpack_words(words) for words in range(64)]


def murmur2(keys: pa.BinaryArray | pa.LargeBinaryArray) -> UInt32s:
    """The murmur2 hash of every key, as a uint32 array. A null key counts as an empty key.

    ``.view(np.int32)`` gives Java's signed number. Java's partition is ``(h & 0x7fffffff) %
    count``.
    """
    return hash_blocks(keys, _hash_block)


def murmur2_of(key: bytes) -> int:
    """The unsigned 32-bit hash of one key, as :func:`murmur2` computes it for a column."""
    length = len(key)
    h = _SEED_INT ^ length
    words = length >> 2
    # Bits above 32 are masked only before a right shift or a further multiplication.
    if words < len(_WORDS):
        for k in _WORDS[words](key):
            k = k * _M_INT & 0xFFFFFFFF  # noqa: PLW2901 - the algorithm's own names
            h = (h * _M_INT & 0xFFFFFFFF) ^ (k ^ k >> 24) * _M_INT
    else:
        # Only the chain through h is computed word by word.
        for mixed in _mixed(np.frombuffer(key, "<u4", words).copy()).tolist():
            h = (h * _M_INT & 0xFFFFFFFF) ^ mixed
    if length & 3:
        h = (h ^ int.from_bytes(key[words << 2 :], "little")) * _M_INT
    h &= 0xFFFFFFFF
    h = (h ^ h >> 13) * _M_INT & 0xFFFFFFFF
    return h ^ h >> 15


def _hash_block(keys: Block) -> UInt32s:
    h = _SEED ^ keys.lengths.astype(np.uint32)
    for count, words in keys.steps():
        part = h[:count]
        part *= _M
        part ^= _mixed(words)
    if keys.has_tails:
        h = np.where(keys.odd != 0, (h ^ keys.tails()) * _M, h)
    h ^= h >> np.uint32(13)
    h *= _M
    h ^= h >> np.uint32(15)
    for row, key in keys.unfinished():
        h[row] = murmur2_of(key)
    return h


def _mixed(k: UInt32s) -> UInt32s:
    """Mixes the words ``k``, as murmur2 does before it combines them with the hash. Changes ``k``
    in place.
    """
    k *= _M
    k ^= k >> _24
    k *= _M
    return k
