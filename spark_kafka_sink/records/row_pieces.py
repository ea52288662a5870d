"""The bytes of many rows, put together piece by piece.

Owns: :class:`RowPieces`. Never: a type, a schema, what the bytes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.gather import binary_of, ends_of, lengths_of, new_gather, valid_of
from spark_kafka_sink.records.payloads import Payloads, Refusal
from spark_kafka_sink.records.varint import Packed, packed_bytes

Mask = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
#: Bytes that a slot of ``gather`` takes at once, as one word and as two.
_WORD, _PAIR = 8, 12


class _Column(NamedTuple):
    """Entry ``rows[i]`` of a binary column for row i; None: entry i."""

    array: pa.Array
    rows: Int64s | None

    @property
    def size(self) -> Int64s:
        lengths = lengths_of(self.array)
        return lengths if self.rows is None else lengths.take(self.rows)


class RowPieces:
    """The bytes of each of ``rows`` rows, piece after piece: short ones packed into words, others
    as binary columns.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.refusals: list[Refusal] = []
        self._pieces: list[Packed | _Column] = []

    def add_bytes(self, data: bytes, where: Mask | None = None) -> None:
        """The same bytes in each row, or in those of ``where``."""
        for start in range(0, len(data), _WORD):
            self.add_packed([packed_bytes(data[start : start + _WORD])], where)

    def add_packed(self, parts: Sequence[Packed], where: Mask | None = None) -> None:
        """Short strings; none in the rows that ``where`` leaves out."""
        for part in parts:
            if where is not None:
                part = Packed(part.word * where, part.size * where, part.most)  # noqa: PLW2901
            last = self._pieces[-1] if self._pieces else None
            if isinstance(last, Packed) and last.most + part.most <= _WORD:
                self._pieces[-1] = last + part
            else:
                self._pieces.append(part)

    def add_column(self, column: pa.Array, rows: Int64s | None = None) -> None:
        """A binary column, or entry ``rows[i]`` of one for row i; its nulls are no bytes."""
        self._pieces.append(_Column(column, rows))

    def refuse(self, rows: Mask, column: str, reason: str) -> None:
        """Notes the rows, if there are any."""
        if rows.any():
            self.refusals.append(Refusal(rows, column, reason))

    def refuse_of(self, inner: Sequence[Refusal], row_of: npt.NDArray[np.integer]) -> None:
        """Notes refusals of other rows; ``row_of`` says in which of these rows each of those is."""
        for one in inner:
            rows = np.zeros(self.rows, np.bool_)
            rows[row_of[one.rows]] = True
            self.refuse(rows, one.column, one.reason)

    def sizes(self) -> Int64s:
        """The bytes that each row has so far."""
        sizes = np.zeros(self.rows, np.int64)
        for piece in self._pieces:
            sizes += piece.size.astype(np.int64)
        return sizes

    def joined(self) -> tuple[Int64s, pa.Buffer]:
        """The rows' bytes, and where each begins and ends in them."""
        slots = _slots(self._pieces)
        gather = new_gather(self.rows * len(slots))
        for at, slot in enumerate(slots):
            where = slice(at, None, len(slots))
            if isinstance(slot, _Column):
                gather.put_column(where, *slot)
            elif isinstance(slot, Packed):
                gather.put_packed(where, slot)
            else:
                gather.put_packed_pair(where, *slot)
        offsets = ends_of(self.sizes())
        return offsets, gather.join(int(offsets[-1]))

    def payloads(self, nulls_of: pa.Array | None = None) -> Payloads:
        """All rows; null where ``nulls_of`` is."""
        offsets, data = self.joined() if self.rows else (np.zeros(1, np.int64), pa.py_buffer(b""))
        valid = None if nulls_of is None else valid_of(nulls_of)
        return Payloads(binary_of(offsets, data, valid), tuple(self.refusals))


def _slots(
    pieces: Sequence[Packed | _Column],
) -> list[Packed | tuple[Packed, Packed] | _Column]:
    """``pieces`` with neighbours that one slot of a gather takes as pairs."""
    slots: list[Packed | tuple[Packed, Packed] | _Column] = []
    for piece in pieces:
        last = slots[-1] if slots else None
        if (
            isinstance(piece, Packed)
            and isinstance(last, Packed)
            and last.most + piece.most <= _PAIR
        ):
            slots[-1] = (last, piece)
        else:
            slots.append(piece)
    return slots
