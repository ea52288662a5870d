"""What the records room passes to the accumulator. Values only."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

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


class EncodedSlice(NamedTuple):
    """Finished record bytes of one partition, for one batch.

    ``data`` views a chunk's encode buffer, all of which it keeps in memory (rule R5).
    ``generation`` is the open batch that it continues, 0 to open a new one: the offset deltas in
    ``data`` run from ``first_offset_delta`` and the timestamp deltas count from
    ``base_timestamp``. ``last`` is set when the batch is full after this slice.
    ``first_row`` is where its rows begin in the order of the chunk's groups, for encoding again.
    ``largest_record`` is the size of the largest record of the whole chunk, as Java estimates it (a
    batch of its own); 0 when it is not known.
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


#: Creates one from its fields in order. A named tuple's constructor is a Python function, and a
#: chunk may have a slice for each of a thousand partitions.
new_position: Callable[[tuple[int, int, int, int]], OpenPosition] = partial(
    tuple.__new__, OpenPosition
)
new_slice: Callable[
    [tuple[TopicPartition, memoryview, int, int, int, int, int, bool, int, int]], EncodedSlice
] = partial(tuple.__new__, EncodedSlice)
