"""Encodes a column of headers. The headers of each row become the headers section of a record.

The section has the number of headers. Each header then has the key's length, the key, the value's
length (-1 for null) and the value. The input is an Arrow array of type list<struct> or map.
``record_encoder`` encodes the rest of the record.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.bad_rows.bad_rows import BadRows, Mask, Reason
from spark_kafka_sink.records.gather import (
    binary_of,
    ends_of,
    lengths_of,
    new_gather,
    offsets_of,
    sizes_of,
    valid_of,
)
from spark_kafka_sink.records.varint import Int64s, Packed, pack, unsigned_sizes


def encode_headers(
    column: pa.Array, key: pa.Array, value: pa.Array, unsendable: Mask | None = None
) -> pa.Array:
    """Encodes the headers of every row of ``column``. Returns a large_binary array with the headers
    section of each row.

    * ``column``: an array of the type list, large_list or map.
    * ``key``, ``value``: the keys and values in ``column.values``, as binary arrays. A value can be
      null.
    * ``unsendable``: the mask of the headers that are left out.

    A row with a null list has no headers. Duplicate headers and the order of the headers are kept.
    """
    starts, counts = _ranges(column)
    if unsendable is not None:
        kept = pa.array(~unsendable)
        key, value = key.filter(kept), value.filter(kept)
        left = ends_of(~unsendable)
        counts = left.take(starts + counts) - left.take(starts)
        starts = left.take(starts)
    total = int(counts.sum())
    before = ends_of(counts)
    # Entry i of all headers is child number starts[row] + (i - before[row]).
    child = np.arange(total) + np.repeat(starts - before[:-1], counts)
    key_lengths = lengths_of(key).take(child)
    written_lengths = sizes_of(value).take(child)
    value_lengths = np.maximum(written_lengths, 0)

    # Slots: for each row its count, then four for each of its headers.
    gather = new_gather(len(column) + 4 * total)
    row_slots = np.arange(len(column)) + 4 * before[:-1]
    slots = np.repeat(np.arange(1, len(column) + 1), counts) + 4 * np.arange(total)
    gather.put_packed(row_slots, _one(pack(counts)))
    gather.put_packed(slots, _one(pack(key_lengths)))
    gather.put_column(slots + 1, key, child)
    gather.put_packed(slots + 2, _one(pack(written_lengths)))
    gather.put_column(slots + 3, value, child)

    sizes = _sizes(key_lengths) + key_lengths + _sizes(written_lengths) + value_lengths
    offsets = ends_of(_sizes(counts))
    offsets += ends_of(sizes).take(before)
    return binary_of(offsets, gather.join(int(offsets[-1])))


def check_headers(
    column: pa.Array, key: pa.Array, element: pa.Array | None, bad: BadRows
) -> Mask | None:
    """Adds to ``bad`` the rows that have a null header, or a header with a null key.

    Returns the mask of these headers, with an item for each entry of ``column.values``. None if
    there is no such header. ``element`` is ``column.values`` as a struct array. If ``column`` is a
    map, ``element`` is None, because the entries of a map can't be null.
    """
    unsendable: Mask | None = None
    for child, what, hint in (
        (element, "a null header", "filter null elements out of the headers array"),
        (key, "a header with a null key", "Kafka allows a null header value, but not a null key"),
    ):
        if child is None or child.null_count == 0:
            continue
        starts, counts = _ranges(column)
        null = ~_flags(child)
        seen = ends_of(null)
        rows = seen.take(starts + counts) > seen.take(starts)
        if rows.any():
            bad.refuse(rows, Reason.HEADERS, f"{what} can't be sent", "headers", hint)
            unsendable = null if unsendable is None else unsendable | null
    return unsendable


def _flags(array: pa.Array) -> npt.NDArray[np.bool_]:
    valid = valid_of(array)
    return np.ones(len(array), np.bool_) if valid is None else valid


def _ranges(column: pa.Array) -> tuple[Int64s, Int64s]:
    """For each row, the index of its first entry in ``column.values``, and the number of its
    entries. A null row has 0 entries.
    """
    offsets = offsets_of(column)
    starts = offsets[:-1].astype(np.int64)
    counts = offsets[1:].astype(np.int64) - starts
    valid = valid_of(column)
    if valid is not None:
        counts *= valid
    return starts, counts


def _one(parts: Sequence[Packed]) -> Packed:
    return parts[0]  # lengths are int32, so a varint has at most 5 bytes: one word


def _sizes(values: Int64s) -> Int64s:
    """The number of bytes that each value needs as a signed varint. Each value is -1 or more."""
    return unsigned_sizes(values << 1, int(values.max(initial=0)) << 1)
