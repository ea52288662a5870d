"""The values that the encoder of columns and the accumulator exchange: positions in open batches,
and slices.

A *chunk* is the rows that are encoded together. A *slice* has the encoded records of a chunk that
go into one record batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.protocol.cluster import TopicPartition


class OpenPosition(NamedTuple):
    """The position in a partition's open batch at which the next record will be encoded.

    * ``generation``: the unique number of the open batch. 0 if no batch is open.
    * ``record_count``: the number of records in the batch. The same number is the offset delta of
      the next record.
    * ``base_timestamp``: the timestamp of the batch's first record in ms. Not used if no batch is
      open.
    * ``room``: the number of bytes, before compression, that still fit into the batch.
    """

    generation: int
    record_count: int
    base_timestamp: int
    room: int


#: The positions of several partitions: a row for each partition, with the four numbers of its
#: OpenPosition.
OpenPositions = npt.NDArray[np.int64]


def open_positions(numbers: Sequence[int]) -> OpenPositions:
    """Converts numbers to an array with a row for each position. ``numbers`` has the four fields of
    the first :class:`OpenPosition`, then the four fields of the second, and so on.
    """
    return np.array(numbers, np.int64).reshape(-1, 4)


class EncodedSlice(NamedTuple):
    """Encoded records of one partition, for one record batch.

    A *chunk* is the rows that were encoded together, into one buffer. The slice is a part of a
    chunk.

    * ``data``: the bytes, as a view of a part of the chunk's buffer. The view keeps the whole
      buffer in memory.
    * ``generation``: the unique number of the open batch that gets the records. 0 for a new batch.
    * ``first_offset_delta``: the offset delta of the first record.
    * ``base_timestamp``: the timestamp in ms from which the timestamp deltas are counted.
    * ``max_timestamp``: the latest timestamp of the records in ms.
    * ``last``: true if the batch is full after these records.
    * ``first_row``: the index of the slice's first row in the chunk, after the chunk's rows were
      ordered by partition. The index is needed to encode the slice again.
    * ``largest_record``: the size in bytes of a batch with only the chunk's largest record,
      estimated as in Java. 0 if the size is unknown. Only metrics use the size.
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
    """All slices of a chunk, in order. A chunk is the rows that were encoded together.

    Each field is a sequence with an item for each slice. :class:`EncodedSlice` describes the items.
    The bytes of slice i are ``buffers[i][starts[i] : ends[i]]``.
    """

    # There is no object for each slice. A chunk can have slices for a thousand partitions, and
    # Python's garbage collector would have to visit all these objects.
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
        """For each slice, yields the fields that the accumulator needs to append the slice: all
        fields except the bytes and the first row.
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
