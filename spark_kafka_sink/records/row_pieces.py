"""Builds the bytes of many rows piece by piece.

Owns: :func:`gather_of`, :class:`RowPieces`, and their result: :class:`Payloads`, with a
:class:`Refusal` for rows without a payload. Never: a type, a schema, the meaning of the bytes; the
reason for a refusal (``records/formats/``), the treatment of a refused row.
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
#: Bytes that a slot of ``gather`` takes as one word, and as two words.
_WORD, _PAIR = 8, 12


class Refusal(NamedTuple):
    """Rows that can't be encoded, and the reason.

    ``rows`` is the mask of these rows, and ``column`` the path of the value. ``reason`` is the rest
    of the error's sentence, without the value.
    """

    rows: Mask
    column: str
    reason: str


class Payloads(NamedTuple):
    """The payload of each row, as a (large) binary array. The entries of refused rows have no
    meaning.
    """

    array: pa.Array
    refusals: tuple[Refusal, ...] = ()


class Column(NamedTuple):
    """A piece for each row, taken from a binary column. The piece of row i is entry ``rows[i]``, or
    entry i if ``rows`` is None.
    """

    array: pa.Array
    rows: Indices | None

    @property
    def size(self) -> Int64s:
        lengths = lengths_of(self.array)
        return lengths if self.rows is None else lengths.take(self.rows)


Piece = Packed | Column


def gather_of(pieces: Sequence[Piece], rows: int, more: int = 0) -> Gather:
    """Creates a gather, and puts all ``pieces`` of ``rows`` rows into as few slots as possible.
    ``more`` slots per row stay empty.
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
    """Joins adjacent short pieces: into one piece of at most 8 bytes, or into a pair of at most 12
    bytes, which need only one slot.
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
    """Collects the bytes of each of ``rows`` rows, piece by piece. Short pieces are packed into
    words, and others are binary columns.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.refusals: list[Refusal] = []
        self._pieces: list[Piece] = []

    def add_bytes(self, data: bytes, where: Mask | None = None) -> None:
        """Appends the same bytes to each row, or to the rows of the mask ``where``."""
        for start in range(0, len(data), _WORD):
            self.add_packed([packed_bytes(data[start : start + _WORD])], where)

    def add_packed(self, parts: Sequence[Packed], where: Mask | None = None) -> None:
        """Appends short strings to each row, or to the rows of the mask ``where``."""
        for part in parts:
            if where is not None:
                part = Packed(part.word * where, part.size * where, part.most)  # noqa: PLW2901
            self._pieces.append(part)

    def add_column(self, column: pa.Array, rows: Indices | None = None) -> None:
        """Appends an entry of a binary column to each row i: entry ``rows[i]``, or entry i if
        ``rows`` is None. A null adds no bytes.
        """
        self._pieces.append(Column(column, rows))

    def add_choice(self, texts: Sequence[bytes], chosen: int | Indices) -> None:
        """Appends an item of ``texts``: the item with the index ``chosen`` to all rows, or the item
        ``chosen[i]`` to row i.
        """
        if isinstance(chosen, int):
            texts, chosen = [texts[chosen]], np.zeros(self.rows, np.uint8)
        self.add_column(binary_array(texts), chosen)

    def refuse(self, rows: Mask, column: str, reason: str) -> None:
        """Records a refusal of the rows in the mask ``rows``, if there are any."""
        if rows.any():
            self.refusals.append(Refusal(rows, column, reason))

    def refuse_of(self, inner: Sequence[Refusal], row_of: npt.NDArray[np.integer]) -> None:
        """Records the refusals of nested values as refusals of rows. ``row_of`` has the row of each
        nested value.
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
        """The offsets of the rows, and the buffer with all rows' bytes."""
        if not self.rows:
            return np.zeros(1, np.int64), pa.py_buffer(b"")
        offsets = ends_of(self.sizes())
        return offsets, gather_of(self._pieces, self.rows).join(int(offsets[-1]))

    def payloads(self, nulls_of: pa.Array) -> Payloads:
        """The payload of each row. It is null where ``nulls_of`` is null."""
        offsets, data = self.joined()
        return Payloads(binary_of(offsets, data, valid_of(nulls_of)), tuple(self.refusals))
