"""Builds the bytes of many rows from pieces.

A *piece* is some of the bytes of a row, such as the length of a string, or the string itself. The
caller adds the first piece of every row, then the second piece of every row, and so on. The caller
also finds the rows that can't be encoded, and adds the reasons (:class:`Refusal`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.gather import (
    Gather,
    Indices,
    binary_array,
    binary_of,
    ends_of,
    lengths_of,
    new_gather,
    valid_of,
)
from spark_kafka_sink.records.varint import Int64s, Packed, packed_bytes

Mask = npt.NDArray[np.bool_]
#: The most bytes of a string in a slot of a Gather, for put_packed and for put_packed_pair.
_WORD, _PAIR = 8, 12


class Refusal(NamedTuple):
    """Rows that can't be encoded, with the reason.

    * ``rows``: the mask of these rows, with a boolean for each row.
    * ``column``: the path of the value that can't be encoded, such as ``address.city``.
    * ``reason``: the rest of the error's sentence, such as "is null". It does not contain the
      value.
    """

    rows: Mask
    column: str
    reason: str


class Payloads(NamedTuple):
    """The key or value of each row, as a binary or large_binary array. ``refusals`` has the rows
    that can't be encoded. The keys or values of these rows have no meaning.
    """

    array: pa.Array
    refusals: tuple[Refusal, ...] = ()


class Column(NamedTuple):
    """One piece (some bytes) for each row, taken from a binary column: the piece of row i is the
    column's entry ``rows[i]``. If ``rows`` is None, the piece of row i is the column's entry i.
    """

    array: pa.Array
    rows: Indices | None

    @property
    def size(self) -> Int64s:
        lengths = lengths_of(self.array)
        return lengths if self.rows is None else lengths.take(self.rows)


Piece = Packed | Column


def gather_of(pieces: Sequence[Piece], rows: int, more: int = 0) -> Gather:
    """Creates a Gather with all pieces of all rows. :meth:`Gather.join` joins the pieces to one
    buffer, row by row.

    Each of ``pieces`` has some bytes for every row. A *slot* is a place for one byte string. The
    caller fills ``more`` additional slots at the end of the Gather.
    """
    slots = _slots(pieces)
    width = len(slots)
    gather = new_gather(rows * width + more)
    for at, slot in enumerate(slots):
        where = slice(at, rows * width, width)
        if isinstance(slot, Column):
            gather.put_column(where, *slot)
        elif isinstance(slot, Packed):
            gather.put_packed(where, slot)
        else:
            gather.put_packed_pair(where, *slot)
    return gather


def _slots(pieces: Sequence[Piece]) -> list[Piece | tuple[Packed, Packed]]:
    """Assigns ``pieces`` to the slots of a :class:`Gather`. Short pieces that follow each other
    share a slot, so that the Gather has fewer byte strings to join:

    * Pieces that have at most 8 bytes together in every row are joined to one piece.
    * Then two pieces that have at most 12 bytes together in every row share a slot as a pair.
    * Each other piece gets its own slot.
    """
    slots: list[Piece | tuple[Packed, Packed]] = []
    words: list[Packed] = []
    for piece in pieces:
        if isinstance(piece, Column):
            slots += [*_pairs(words), piece]
            words = []
        elif words and words[-1].most + piece.most <= _WORD:
            words[-1] = words[-1] + piece
        else:
            words.append(piece)
    return [*slots, *_pairs(words)]


def _pairs(words: list[Packed]) -> Iterator[Packed | tuple[Packed, Packed]]:
    while words:
        word = words.pop(0)
        if words and word.most + words[0].most <= _PAIR:
            yield word, words.pop(0)
        else:
            yield word


class RowPieces:
    """Collects the bytes of ``rows`` rows. Each call of an ``add_...`` method appends bytes, called
    a piece, to every row.

    ``refusals`` has the rows that can't be encoded. Such rows still have bytes, which have no
    meaning.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.refusals: list[Refusal] = []
        self._pieces: list[Piece] = []

    def add_bytes(self, data: bytes, where: Mask | None = None) -> None:
        """Appends the same bytes to every row. If ``where`` is given, appends them only to the rows
        in this mask.
        """
        for start in range(0, len(data), _WORD):
            self.add_packed([packed_bytes(data[start : start + _WORD])], where)

    def add_packed(self, parts: Sequence[Packed], where: Mask | None = None) -> None:
        """Appends a string to every row. Each row has its own string. If ``where`` is given,
        appends strings only to the rows in this mask.

        The first of ``parts`` has the first bytes (at most 8) of every row's string, the second has
        the next bytes, and so on.
        """
        for part in parts:
            if where is not None:
                part = Packed(part.word * where, part.size * where, part.most)  # noqa: PLW2901
            self._pieces.append(part)

    def add_column(self, column: pa.Array, rows: Indices | None = None) -> None:
        """Appends an entry of the binary column ``column`` to every row. Row i gets the entry with
        the index ``rows[i]``. If ``rows`` is None, row i gets the entry with the index i. A null
        adds no bytes.
        """
        self._pieces.append(Column(column, rows))

    def add_choice(self, texts: Sequence[bytes], chosen: int | Indices) -> None:
        """Appends one of ``texts`` to every row: row i gets ``texts[chosen[i]]``. If ``chosen`` is
        a number, every row gets ``texts[chosen]``.
        """
        if isinstance(chosen, int):
            texts, chosen = [texts[chosen]], np.zeros(self.rows, np.uint8)
        self.add_column(binary_array(texts), chosen)

    def refuse(self, rows: Mask, column: str, reason: str) -> None:
        """Notes that the rows in the mask ``rows`` can't be encoded. Does nothing if the mask is
        true for no row. :class:`Refusal` describes the arguments.
        """
        if rows.any():
            self.refusals.append(Refusal(rows, column, reason))

    def refuse_of(self, inner: Sequence[Refusal], row_of: npt.NDArray[np.integer]) -> None:
        """Notes that rows can't be encoded because of their nested values, such as items of a list.

        ``inner`` are the refusals of the nested values. Nested value i belongs to row
        ``row_of[i]``.
        """
        for one in inner:
            rows = np.zeros(self.rows, np.bool_)
            rows[row_of[one.rows]] = True
            self.refuse(rows, one.column, one.reason)

    def sizes(self) -> Int64s:
        """The number of bytes that each row has so far."""
        sizes, of_all = np.zeros(self.rows, np.int64), 0
        for piece in self._pieces:
            size = piece.size
            if isinstance(size, np.ndarray):
                sizes += size.view(np.int64)
            else:
                of_all += int(size)
        sizes += of_all
        return sizes

    def joined(self) -> tuple[Int64s, pa.Buffer]:
        """Joins the pieces. Returns the int64 offsets of the rows, and one buffer with the bytes of
        all rows. Row i has the bytes ``offsets[i]`` to ``offsets[i + 1] - 1``.
        """
        if not self.rows:
            return np.zeros(1, np.int64), pa.py_buffer(b"")
        offsets = ends_of(self.sizes())
        return offsets, gather_of(self._pieces, self.rows).join(int(offsets[-1]))

    def payloads(self, nulls_of: pa.Array) -> Payloads:
        """Joins the pieces of each row. The result is the key or value of each row. If ``nulls_of``
        is null in a row, the key or value of this row is null.
        """
        offsets, data = self.joined()
        return Payloads(binary_of(offsets, data, valid_of(nulls_of)), tuple(self.refusals))
