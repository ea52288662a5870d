"""The values that the records room passes to the accumulator. Values only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.protocol.cluster import TopicPartition


class OpenPosition(NamedTuple):
    """The state of a partition's open batch, so that encoding can continue from there.

    ``generation`` names that open batch (a new number for every batch ever opened); 0 means that
    none is open. ``record_count`` is the next record's offset delta. ``base_timestamp`` is the
    first record's, in milliseconds (meaningless when none is open). ``room`` is how many *raw*
    (uncompressed, encoded) bytes still fit before the batch counts as full.
    """

    generation: int
    record_count: int
    base_timestamp: int
    room: int


#: The position of each of some partitions: a row of its four numbers.
OpenPositions = npt.NDArray[np.int64]


def open_positions(numbers: Sequence[int]) -> OpenPositions:
    """``numbers`` are the numbers of every :class:`OpenPosition`, one after another."""
    return np.array(numbers, np.int64).reshape(-1, 4)


class EncodedSlice(NamedTuple):
    """Finished record bytes of one partition, for one batch.

    ``data`` views a chunk's encode buffer, and keeps the whole buffer in memory (rule R5).
    ``generation`` is the open batch that it continues, 0 to open a new batch: the offset deltas in
    ``data`` run from ``first_offset_delta`` and the timestamp deltas count from ``base_timestamp``.
    ``last`` is set when the batch is full after this slice. ``first_row`` is the index of its first
    row in the order of the chunk's groups, for encoding again. ``largest_record`` is the size of
    the largest record of the whole chunk, estimated like in Java (as a batch with only that
    record); 0 when it is unknown.
    """

    tp: TopicPartition
    data: memoryview
    record_count: int
    generation: int
    first_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    last: bool
    first_row: int = 0
    largest_record: int = 0


@dataclass(frozen=True, slots=True)
class EncodedSlices:
    """The slices of a chunk, in order, as columns of the fields of an :class:`EncodedSlice`. A
    chunk may have a slice for each of a thousand partitions, and that many objects would keep the
    garbage collector busy.

    The bytes of slice i are ``buffers[i][starts[i] : ends[i]]``.
    """

    tps: Sequence[TopicPartition]
    buffers: Sequence[memoryview]
    starts: Sequence[int]
    ends: Sequence[int]
    record_counts: Sequence[int]
    generations: Sequence[int]
    first_offset_deltas: Sequence[int]
    base_timestamps: Sequence[int]
    max_timestamps: Sequence[int]
    last: Sequence[bool]
    first_rows: Sequence[int]
    largest_records: Sequence[int]

    @classmethod
    def of(cls, slices: Sequence[EncodedSlice]) -> Self:
        tps, data, *others = zip(*slices, strict=True) if slices else ((),) * 10
        return cls(tps, data, (0,) * len(data), [piece.nbytes for piece in data], *others)

    def __len__(self) -> int:
        return len(self.tps)

    def __getitem__(self, index: int) -> EncodedSlice:
        return EncodedSlice(
            self.tps[index],
            self.buffers[index][self.starts[index] : self.ends[index]],
            self.record_counts[index],
            self.generations[index],
            self.first_offset_deltas[index],
            self.base_timestamps[index],
            self.max_timestamps[index],
            self.last[index],
            self.first_rows[index],
            self.largest_records[index],
        )

    def for_append(self) -> Iterator[tuple[TopicPartition, int, int, int, int, int, bool, int]]:
        """The fields of each slice that the accumulator needs, in order: all except bytes and first
        row.
        """
        return zip(
            self.tps,
            self.record_counts,
            self.generations,
            self.first_offset_deltas,
            self.base_timestamps,
            self.max_timestamps,
            self.last,
            self.largest_records,
            strict=True,
        )

    def __iter__(self) -> Iterator[EncodedSlice]:
        return map(self.__getitem__, range(len(self)))
