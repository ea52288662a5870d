"""Splits keys into 32-bit words. A hash function can then process one word of many keys in each
step.

A long column of keys is divided into blocks. :class:`KeyTable` is a block of keys with equal
lengths, and :class:`KeyBlock` is a block of keys with different lengths. ``murmur2``, ``murmur3``,
``crc32`` and ``fnv1a`` compute the hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.gather import data_of, lengths_of, offsets_of
from spark_kafka_sink.records.varint import Int64s, highest, lowest

UInt32s = npt.NDArray[np.uint32]
UInt64s = npt.NDArray[np.uint64]

_TAIL_MASK = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
#: If fewer keys than this are left, a Python loop is faster than calls of numpy.
_FEW = 8
#: The most words of a key that are hashed together with other keys. Longer keys are hashed one by
#: one.
_MOST_STEPS = 4096
#: The number of keys that are hashed together. So every array of a step fits into the processor's
#: cache.
_BLOCK = 16384


def hash_blocks(
    keys: pa.BinaryArray | pa.LargeBinaryArray, hash_block: Callable[[Block], UInt32s]
) -> UInt32s:
    """Computes the hash of every key. Returns a uint32 array. A null key counts as an empty key.

    ``hash_block`` is the hash function. It gets a block of keys, and returns the hashes of these
    keys, in the order of the block.
    """
    out = np.empty(len(keys), np.uint32)
    for first in range(0, len(keys), _BLOCK):
        block = _block(keys.slice(first, _BLOCK))
        hashes = hash_block(block)
        part = out[first : first + _BLOCK]
        if block.order is None:
            part[:] = hashes
        else:
            part[block.order] = hashes
    return out


def _block(keys: pa.Array) -> Block:
    lengths = lengths_of(keys)
    width = int(lengths[0])
    is_likely = width == lengths[-1] and 0 < width <= 4 * _MOST_STEPS and len(keys) >= _FEW
    if is_likely and (lengths == width).all():
        return KeyTable(keys, lengths)
    return KeyBlock(keys, lengths)


class KeyTable:
    """A block of keys that all have the same length. In memory the keys are like a table with a row
    for each key. Such a table is fast to read column by column.

    A KeyTable has the same attributes and methods as :class:`KeyBlock`.
    """

    __slots__ = ("_table", "has_tails", "lengths", "odd", "order")

    def __init__(self, keys: pa.Array, lengths: Int64s) -> None:
        offsets = offsets_of(keys)
        data = data_of(keys)[int(offsets[0]) : int(offsets[-1])]
        self._table = data.reshape(len(keys), -1)
        self.lengths = lengths
        self.odd: Int64s = lengths & 3
        self.has_tails = self._table.shape[1] % 4 > 0
        self.order: Int64s | None = None

    def steps(self) -> Iterator[tuple[int, UInt32s]]:
        """Yields a pair ``(n, words)`` for the first word of the keys, then a pair for the second
        word, and so on. A word is four bytes of a key. ``n`` is the number of keys in the block,
        and ``words[i]`` is the word of key i. All keys have equally many words.
        """
        count, width = self._table.shape
        for at in range(0, width - 3, 4):
            yield count, self._table[:, at : at + 4].view("<u4")[:, 0].copy()

    def unfinished(self) -> Iterator[tuple[int, bytes]]:
        """Yields nothing, because :meth:`steps` leaves out no word (4 bytes) of a key."""
        return iter(())

    def tails(self) -> UInt32s:
        """The bytes of every key that remain after its words of 4 bytes: 0 to 3 bytes, as a uint32.
        The first of them is in the lowest bits.
        """
        count, width = self._table.shape
        tails = np.zeros((count, 4), np.uint8)
        for index, at in enumerate(range(width - width % 4, width)):
            tails[:, index] = self._table[:, at]
        return tails.view("<u4")[:, 0]


class KeyBlock:
    """A block of keys of different lengths. A *word* is four bytes of a key. The keys are sorted by
    their numbers of words, the longest keys first. Exception: all keys of 4096 words or more count
    as equally long.

    * ``order``: key i of the block is the key ``keys[order[i]]``. ``keys`` is the array from which
      the block was created. If ``order`` is None, the block has the order of ``keys``.
    * ``lengths``: the length of each key in bytes.
    * ``odd``: the number of bytes after the last whole word of each key, 0 to 3.
    * ``has_tails``: if it is false, ``odd`` is 0 for all keys.
    """

    __slots__ = ("_alive", "_bits", "_counts", "_data", "_index", "_starts", "_words", "has_tails",
                 "lengths", "odd", "order")  # fmt: skip

    def __init__(self, keys: pa.Array, lengths: Int64s) -> None:
        offsets = offsets_of(keys)
        begin, end = int(offsets[0]), int(offsets[-1])
        self._data = data_of(keys)[begin:end]
        self._words = _words(self._data)
        starts = offsets[:-1].astype(np.int64) - begin
        counts = lengths >> 2
        # Longest first: the keys that still have a word at step k are then a prefix, for every k.
        clipped = np.minimum(counts, _MOST_STEPS).astype(np.int16)
        steps = int(highest(clipped))
        self.order: Int64s | None = None
        if int(lowest(clipped)) == steps:
            alive = np.full(steps, len(keys))
        else:
            order = self.order = np.argsort(-clipped, kind="stable")
            starts, lengths, counts = starts.take(order), lengths.take(order), counts.take(order)
            shorter = np.bincount(clipped, minlength=steps + 1).cumsum()
            alive = len(keys) - shorter[:steps]
        self.lengths: Int64s = lengths
        self.odd: Int64s = lengths & 3
        self.has_tails = True
        self._counts: Int64s = counts
        self._alive: list[int] = alive.tolist()
        self._starts: Int64s = starts
        self._bits = ((starts & 3) << 3).astype(np.uint64)
        self._index = starts >> 2

    def steps(self) -> Iterator[tuple[int, UInt32s]]:
        """Yields a pair ``(n, words)`` for the first word of the keys, then a pair for the second
        word, and so on. A word is four bytes of a key. The block has the keys with the most words
        first, so the keys that have this word are its first ``n`` keys. ``words`` has ``n`` items,
        and ``words[i]`` is the word of key i.

        The iteration ends when fewer than 8 keys have a next word, and after at most 4096 pairs.
        :meth:`unfinished` yields the keys that have more words.
        """
        for step, count in enumerate(self._alive):
            if count < _FEW:
                break
            words = self._words.take(self._index[:count] + step) >> self._bits[:count]
            yield count, words.astype(np.uint32)

    def unfinished(self) -> Iterator[tuple[int, bytes]]:
        """Yields the keys of which :meth:`steps` leaves out words (groups of 4 bytes). Each item is
        a pair: the index of the key in the block, and all bytes of the key.
        """
        done = next((i for i, count in enumerate(self._alive) if count < _FEW), len(self._alive))
        for key in (self._counts > done).nonzero()[0].tolist():
            start = int(self._starts[key])
            yield key, self._data[start : start + int(self.lengths[key])].tobytes()

    def tails(self) -> UInt32s:
        """The bytes of every key that remain after its words of 4 bytes: 0 to 3 bytes, as a uint32.
        The first of them is in the lowest bits.
        """
        words = self._words.take(self._index + self._counts) >> self._bits
        return words.astype(np.uint32) & _TAIL_MASK.take(self.odd)


#: A block of keys. A hash function processes the words of all keys of a block together.
Block = KeyBlock | KeyTable


def _words(data: npt.NDArray[np.uint8]) -> UInt64s:
    """Converts bytes to an array of 64-bit words that overlap: item i has the bytes ``data[4*i]``
    to ``data[4*i + 7]``. Missing bytes at the end are zeros.

    With these words, any 4 bytes can be read with one aligned load and one shift.
    """
    aligned = np.zeros(len(data) // 4 + 4, np.uint32)
    aligned.view(np.uint8)[: len(data)] = data
    words = aligned[1:].astype(np.uint64)
    words <<= np.uint64(32)
    words |= aligned[:-1]
    return words
