"""Computes the FNV-1a hash (32 bits) of each key in a column, in the form that librdkafka and
Sarama use to choose partitions.

``partitioners`` decides for which rows the key is hashed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_kafka_sink.records.partitioning.key_blocks import Block, UInt32s, hash_blocks

_OFFSET_INT = 0x811C9DC5
_PRIME_INT = 0x01000193
_OFFSET = np.uint32(_OFFSET_INT)
_PRIME = np.uint32(_PRIME_INT)
_SIGN = 1 << 31


def fnv1a(keys: pa.BinaryArray | pa.LargeBinaryArray) -> UInt32s:
    """The FNV-1a hash of every key, as a uint32 array. A null key counts as an empty key.

    The hash of 32 bits is read as a signed number, and its sign is removed. The smallest signed
    number, -2^31, becomes 2^31, as in librdkafka.
    """
    return hash_blocks(keys, _hash_block)


def fnv1a_of(key: bytes) -> int:
    """The hash of one key, as :func:`fnv1a` computes it for a column."""
    h = _OFFSET_INT
    for byte in key:
        h = (h ^ byte) * _PRIME_INT & 0xFFFFFFFF
    return h if h < _SIGN else (1 << 32) - h


def _hash_block(keys: Block) -> UInt32s:
    h = np.full(len(keys.lengths), _OFFSET)
    for count, word in keys.steps():
        part, octets = h[:count], word.view(np.uint8).reshape(-1, 4)
        for i in range(4):
            part ^= octets[:, i]
            part *= _PRIME
    octets, sizes = keys.tails().view(np.uint8).reshape(-1, 4), keys.odd
    for i in range(3):
        rows = np.flatnonzero(sizes > i)
        h[rows] = (h.take(rows) ^ octets[rows, i]) * _PRIME
    h = np.abs(h.view(np.int32)).view(np.uint32)
    for row, key in keys.unfinished():
        h[row] = fnv1a_of(key)
    return h
