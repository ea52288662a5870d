"""The values that the records room passes to the accumulator: positions and encoded slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.protocol.cluster import TopicPartition


class OpenPosition(NamedTuple):
    """The position at which encoding continues in a partition's open batch.

    ``generation`` is a number that identifies the open batch, and is never used for another batch.
    It is 0 if no batch is open. ``record_count`` is the offset delta of the next record.
    ``base_timestamp`` is the timestamp of the batch's first record in milliseconds. It has no
    meaning if no batch is open. ``room`` is the number of *raw* (uncompressed, encoded) bytes that
    still fit into the batch.
    """

    generation: int
    record_count: int
    base_timestamp: int
    room: int


#: The position of each of some partitions: a row of its four numbers.
OpenPositions = npt.NDArray[np.int64]


def open_positions(numbers: Sequence[int]) -> OpenPositions:
    """Builds positions from ``numbers``, which has the fields of one :class:`OpenPosition` after
    another.
    """
    return np.array(numbers, np.int64).reshape(-1, 4)


class EncodedSlice(NamedTuple):
    """Finished record bytes of one partition, for one batch.

    ``data`` views a chunk's encode buffer, and keeps the whole buffer in memory (rule R5).
    ``generation`` identifies the open batch that the slice continues. If it is 0, the slice opens a
    new batch. The offset deltas in ``data`` begin at ``first_offset_delta``, and the timestamp
    deltas count from ``base_timestamp``. ``last`` is true if the batch is full after the slice.
    ``first_row`` is the index of the slice's first row in the order of the chunk's groups. It is
    needed if the slice must be encoded again. ``largest_record`` is the size in bytes of the
    largest record of the whole chunk. As in Java, it is estimated as the size of a batch with only
    that record. It is 0 if the size is unknown.
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
    """The slices of a chunk in order, with a sequence for each field of :class:`EncodedSlice`.

    The bytes of slice i are ``buffers[i][starts[i] : ends[i]]``. A chunk may have slices for a
    thousand partitions. So there is no object for each slice, which would keep the garbage
    collector busy.
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
        """Yields the fields of each slice that the accumulator needs: all fields except the bytes
        and the first row.
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
