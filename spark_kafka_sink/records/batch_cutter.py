"""Divides the rows of a chunk into slices, one for each record batch.

A *chunk* is the rows that are encoded together. The rows of a chunk are grouped by topic partition.
A *slice* has consecutive rows of one group that go into the same record batch.

:func:`cut` returns the slices, and the offset delta and timestamp delta of each row.
``record_encoder`` encodes the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.records.encoded_slice import OpenPosition, OpenPositions
from spark_kafka_sink.records.varint import Int64s, highest, lowest, varint_size

Bools = npt.NDArray[np.bool_]

#: The least size of a record without its content: length, attributes and two deltas have a byte
#: each.
_MIN_OVERHEAD = 4
#: A batch counts as full if less than a 16th of its limit is left, or less than the mean size of
#: its records. The partitioner ends the rows of a sticky partition there, so few rows would follow.
_FULL = 16


@dataclass(frozen=True, slots=True)
class Cuts:
    """The slices of a chunk, in the order of the chunk's rows. A slice has consecutive rows that go
    into one record batch.

    These fields have an item for each slice:

    * ``groups``: the index of the slice's group. A group has the rows of one topic partition.
    * ``starts``: the index of the slice's first row.
    * ``counts``: the number of the slice's rows.
    * ``generations``: the unique number of the open batch that gets the slice. 0 if the slice
      begins a new batch.
    * ``last``: true if the batch is full after the slice.
    * ``first_offsets``: the offset delta of the slice's first record.
    * ``bases``: the base timestamp of the slice's batch, in ms.
    * ``max_timestamps``: the latest timestamp of the slice's records, in ms.

    These fields have an item for each row, or one number for all rows:

    * ``offset_deltas``: the offset delta of the row's record.
    * ``timestamp_deltas``: the timestamp delta of the row's record, in ms.
    """

    groups: Int64s
    starts: Int64s
    counts: Int64s
    generations: Int64s
    last: Bools
    first_offsets: Int64s
    bases: Int64s
    max_timestamps: Int64s
    offset_deltas: Int64s | int
    timestamp_deltas: Int64s | int


def cut(
    content: Int64s,
    bounds: Int64s,
    positions: Sequence[OpenPosition] | OpenPositions,
    raw_limits: Sequence[int] | int,
    timestamps: Int64s | None,
    now_ms: int,
) -> Cuts:
    """Cuts each group of rows (the rows of one topic partition) into slices for record batches.

    * ``content``: the size of each record in bytes, without length, attributes and deltas.
    * ``bounds``: group g has the rows ``bounds[g]`` to ``bounds[g + 1] - 1``.
    * ``positions``: for each group, the state of the partition's open batch.
    * ``raw_limits``: for each group, or for all, the uncompressed bytes that fit into a new batch.
    * ``timestamps``: the timestamp of each row in ms. If it is None, all rows have ``now_ms``.

    A batch exceeds its limit only if its single record is larger than the limit.
    """
    generations, record_counts, bases, rooms = np.asarray(positions, np.int64).T
    is_open = generations != 0
    record_counts = np.where(is_open, record_counts, 0)
    limits = np.empty(len(positions), np.int64)
    limits[:] = raw_limits

    spread = _largest_delta(timestamps, now_ms, bases[is_open])
    limit = max(int(highest(limits)), int(highest(rooms)))
    rows = int(highest(bounds[1:] - bounds[:-1]))
    ends = np.zeros(len(content) + 1, np.int64)
    bound = size_bounds(content, rows, limit, spread, before=int(highest(record_counts)))
    bound.cumsum(out=ends[1:])

    starts, slice_groups, opens = _walk(ends, bounds, is_open, rooms, limits)
    order = starts.argsort(kind="stable")
    starts, slice_groups, opens = starts[order], slice_groups[order], opens[order]
    counts = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=counts[:-1])
    counts[-1] = len(content) - starts[-1]
    sizes = ends[starts + counts] - ends[starts]
    left = np.where(opens, limits[slice_groups], rooms[slice_groups]) - sizes
    last = left < np.maximum(sizes // counts, limits[slice_groups] // _FULL)
    # A group has another slice only because this batch had no space for the next row.
    last[:-1] |= slice_groups[1:] == slice_groups[:-1]

    first_offsets = np.where(opens, 0, record_counts[slice_groups])
    offset_deltas = np.arange(len(content)) - (starts - first_offsets).repeat(counts)
    firsts = now_ms if timestamps is None else timestamps[starts]
    slice_bases = np.where(opens, firsts, bases[slice_groups])
    latest, timestamp_deltas = _times(timestamps, now_ms, starts, counts, slice_bases)
    return Cuts(
        groups=slice_groups,
        starts=starts,
        counts=counts,
        generations=np.where(opens, 0, generations[slice_groups]),
        last=last,
        first_offsets=first_offsets,
        bases=slice_bases,
        max_timestamps=latest,
        offset_deltas=offset_deltas,
        timestamp_deltas=timestamp_deltas,
    )


def _times(
    timestamps: Int64s | None, now_ms: int, starts: Int64s, counts: Int64s, bases: Int64s
) -> tuple[Int64s, Int64s | int]:
    """The latest timestamp of each slice, and the timestamp delta of each row, in ms."""
    if timestamps is not None:
        return np.maximum.reduceat(timestamps, starts), timestamps - bases.repeat(counts)
    late = now_ms - bases
    return np.full(len(starts), now_ms, np.int64), late.repeat(counts) if late.any() else 0


def size_bounds(content: Int64s, rows: int, limit: int, spread: int, before: int = 0) -> Int64s:
    """An upper bound of the size of each record in bytes. The size of the deltas depends on the
    position of the record in its batch. The bound holds for every position.

    * ``content``: the size of each record in bytes, without length, attributes and deltas.
    * ``rows``, ``limit``: at most ``rows`` records and ``limit`` bytes are added to the batch.
    * ``spread``: the largest timestamp delta, in ms.
    * ``before``: the number of records that the batch already has.
    """
    smallest = int(lowest(content)) + _MIN_OVERHEAD
    deltas = varint_size(before + min(rows, limit // smallest + 1)) + varint_size(spread)
    body = content + (1 + deltas)
    return body + _length_sizes(body)


def _walk(
    ends: Int64s, bounds: Int64s, is_open: Bools, rooms: Int64s, limits: Int64s
) -> tuple[Int64s, Int64s, Bools]:
    """Cuts every group into slices. Returns three arrays with an item for each slice: the slice's
    first row, the slice's group, and true if the slice begins a new batch. Each round of the loop
    cuts one slice from each group.
    """
    live = np.arange(len(is_open))
    at, stop = bounds[:-1].copy(), bounds[1:]
    opens = ~is_open
    room = np.where(is_open, rooms, limits)
    found: list[tuple[Int64s, Int64s, Bools]] = []
    while len(live):
        reach = ends.searchsorted(ends[at] + room, side="right") - 1
        # The first record of a new batch always fits; an open batch may take none.
        until = np.minimum(np.maximum(reach, at + opens), stop)
        some = until > at
        found.append((at[some], live[some], opens[some]))
        more = until < stop
        live, at, stop = live[more], until[more], stop[more]
        opens = np.ones(len(live), np.bool_)
        room = limits[live]
    starts, groups, flags = zip(*found, strict=True)
    return np.concatenate(starts), np.concatenate(groups), np.concatenate(flags)


def _largest_delta(timestamps: Int64s | None, now_ms: int, open_bases: Int64s) -> int:
    """An upper bound of the timestamp deltas in ms, as absolute values. A timestamp delta is the
    difference between a record's timestamp and the base timestamp of its batch.

    ``open_bases`` are the base timestamps of the open batches. A new batch has the timestamp of its
    first record as its base. ``timestamps`` is None if all records have the timestamp ``now_ms``.
    """
    low, high = now_ms, now_ms
    if timestamps is not None:
        low, high = int(lowest(timestamps)), int(highest(timestamps))
    low_base = min(low, int(lowest(open_bases, initial=low)))
    high_base = max(high, int(highest(open_bases, initial=high)))
    return max(high - low_base, high_base - low)


def _length_sizes(body: Int64s) -> Int64s | int:
    low, high = varint_size(int(lowest(body))), varint_size(int(highest(body)))
    if low == high:
        return low
    sizes = np.full(len(body), low, np.int64)
    for n in range(low, high):
        sizes += body >= 1 << (7 * n - 1)
    return sizes
