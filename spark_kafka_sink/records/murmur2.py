"""Kafka's murmur2 of whole columns (Java's ``Utils.murmur2``, seed 0x9747b28c).

Owns: the hash. Never: which rows have a key to hash (``partitioners``). This is not MurmurHash3:
``mmh3`` gives other numbers, and with them other partitions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.ragged import data_of, lengths_of, offsets_of

UInt32s = npt.NDArray[np.uint32]
UInt64s = npt.NDArray[np.uint64]

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_M_INT = 0x5BD1E995
_24 = np.uint32(24)
_TAIL_MASK = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
#: With fewer keys than this left, a Python loop beats numpy's cost per call.
_FEW = 8
#: Words of a key hashed by columns; the rest of longer keys is hashed key by key.
_MOST_STEPS = 4096
#: Keys hashed at once: every array of a step stays in the processor's cache.
_BLOCK = 16384


def murmur2(keys: pa.BinaryArray | pa.LargeBinaryArray) -> UInt32s:
    """The unsigned 32-bit hash of every key; of null, the hash of the empty key.

    Java's (signed) number is ``.view(np.int32)``; the partition is ``(h & 0x7fffffff) % count``.
    """
    out = np.empty(len(keys), np.uint32)
    for first in range(0, len(keys), _BLOCK):
        block = keys.slice(first, _BLOCK)
        out[first : first + len(block)] = _hash_block(block)
    return out


def _hash_block(keys: pa.Array) -> UInt32s:
    offsets = offsets_of(keys)
    begin, end = int(offsets[0]), int(offsets[-1])
    words = _words(data_of(keys)[begin:end])
    starts = offsets[:-1].astype(np.int64) - begin
    lengths = lengths_of(keys)
    counts = lengths >> 2
    # Longest first: the keys that still have a word at step k are then a prefix, for every k.
    clipped = np.minimum(counts, _MOST_STEPS).astype(np.int16)
    steps = int(clipped.max())
    order: npt.NDArray[np.int64] | None = None
    if int(clipped.min()) == steps:
        alive = np.full(steps, len(keys))
    else:
        order = np.argsort(-clipped, kind="stable")
        starts, lengths, counts = starts.take(order), lengths.take(order), counts.take(order)
        shorter = np.bincount(clipped, minlength=steps + 1).cumsum()
        alive = len(keys) - shorter[:steps]
    h = _SEED ^ lengths.astype(np.uint32)
    bits = ((starts & 3) << 3).astype(np.uint64)
    index = starts >> 2
    step = 0
    for count in alive.tolist():
        if count < _FEW:
            break
        _mix(h[:count], words, index[:count] + step, bits[:count])
        step += 1
    for row in np.flatnonzero(counts > step).tolist():
        h[row] = _finish_long_key(
            int(h[row]), words, int(index[row]), bits[row], step, int(counts[row])
        )
    tail = lengths & 3
    k = (words.take(index + counts) >> bits).astype(np.uint32) & _TAIL_MASK.take(tail)
    h = np.where(tail != 0, (h ^ k) * _M, h)
    h ^= h >> np.uint32(13)
    h *= _M
    h ^= h >> np.uint32(15)
    if order is None:
        return h
    out = np.empty_like(h)
    out[order] = h
    return out


def _words(data: npt.NDArray[np.uint8]) -> UInt64s:
    """Entry i holds the 8 bytes from byte 4 i on, zeros behind the end, and two entries more.

    Any 4 bytes of the data are then one aligned load and one shift.
    """
    aligned = np.zeros(len(data) // 4 + 4, np.uint32)
    aligned.view(np.uint8)[: len(data)] = data
    words = aligned[1:].astype(np.uint64)
    words <<= np.uint64(32)
    words |= aligned[:-1]
    return words


def _mix(h: UInt32s, words: UInt64s, index: npt.NDArray[np.int64], bits: UInt64s) -> None:
    k = (words.take(index) >> bits).astype(np.uint32)
    k *= _M
    k ^= k >> _24
    k *= _M
    h *= _M
    h ^= k


def _finish_long_key(
    h: int, words: UInt64s, index: int, bits: np.uint64, step: int, count: int
) -> int:
    """The words from ``step`` on: all but the chain through ``h`` is still done by columns."""
    k = (words[index + step : index + count] >> bits).astype(np.uint32)
    k *= _M
    k ^= k >> _24
    k *= _M
    for mixed in k.tolist():
        h = (h * _M_INT & 0xFFFFFFFF) ^ mixed
    return h
