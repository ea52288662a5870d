"""Groups rows by topic partition, and encodes them as record bytes. This code runs for every row.

The records have format v2 (Java's ``DefaultRecord``). The rows of each topic partition keep their
order. ``batch_cutter`` divides the rows into batches, and ``record_batch`` writes the header of a
batch. No function here takes a lock.

    groups = group_rows(columns, partitions)
    slices = encode_groups(columns, groups, accumulator.positions(groups.tps), limits, now_ms, ...)

A *chunk* is the rows that are encoded together. A *slice* has the encoded records of a chunk that
go into one record batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.base.errors import RecordTooLargeError
from spark_kafka_sink.protocol.cluster import TopicPartition, partitions_of
from spark_kafka_sink.records.batch_cutter import Cuts, cut
from spark_kafka_sink.records.encoded_slice import (
    EncodedSlice,
    EncodedSlices,
    OpenPosition,
    OpenPositions,
)
from spark_kafka_sink.records.gather import ends_of, lengths_of, valid_of
from spark_kafka_sink.records.record_columns import RecordColumns
from spark_kafka_sink.records.row_pieces import Column, Piece, gather_of
from spark_kafka_sink.records.single_record import JAVA_OVERHEAD
from spark_kafka_sink.records.varint import (
    Int64s,
    Packed,
    highest,
    lowest,
    pack,
    pack_constant,
    packed_bytes,
    varint_size,
)

_ATTRIBUTES = _NO_HEADERS = packed_bytes(b"\0")


@dataclass(frozen=True, slots=True)
class Groups:
    """The rows of a chunk, grouped by topic partition. A chunk is the rows that are encoded
    together. The rows of a group keep their order.

    Group g belongs to ``tps[g]``. The indexes of its rows are ``order[bounds[g]:bounds[g + 1]]``.
    If ``order`` is None, the rows are already in the order of the groups, for example in a single
    group.
    """

    tps: tuple[TopicPartition, ...]
    bounds: Int64s
    order: Int64s | None


def group_rows(columns: RecordColumns, partitions: npt.NDArray[np.int32]) -> Groups:
    """Groups the rows by topic and partition. ``partitions`` has the partition of each row.

    The groups are ordered by topic and partition. Topics are in the order of the topic column's
    dictionary.
    """
    topic = columns.topic
    if columns.rows == 0:
        return Groups((), np.zeros(1, np.int64), None)
    if isinstance(topic, str):
        names, width, codes = [topic], int(highest(partitions)) + 1, partitions
    else:
        names = topic.dictionary.to_pylist()
        width = int(highest(partitions)) + 1
        codes = topic.indices.to_numpy().astype(np.int64) * width + partitions
    low, high = int(lowest(codes)), int(highest(codes))
    if low == high:
        tp = TopicPartition(names[low // width], low % width)
        return Groups((tp,), np.array([0, columns.rows]), None)
    order = _stable_order(codes, low, high)
    ordered = codes.take(order)
    firsts = (ordered[1:] != ordered[:-1]).nonzero()[0] + 1
    bounds = np.concatenate((np.zeros(1, np.int64), firsts, np.array([columns.rows])))
    found = ordered.take(bounds[:-1]).tolist()
    if len(names) == 1:
        of_topic = partitions_of(names[0])
        return Groups(tuple([of_topic[number] for number in found]), bounds, order)
    of_code = [partitions_of(name) for name in names]
    tps = tuple([of_code[code // width][code % width] for code in found])
    return Groups(tps, bounds, order)


def _stable_order(codes: npt.NDArray[np.integer], low: int, high: int) -> Int64s:
    """Returns the indexes that sort ``codes``. All codes are between ``low`` and ``high``. Equal
    codes keep their order.

    """
    # numpy has a fast radix sort for 16-bit numbers only. So larger numbers are sorted in several
    # passes, 16 bits in each.
    if high - low < 65536:
        return (codes - low).astype(np.uint16).argsort(kind="stable")
    spread = codes.astype(np.int64) - low
    order = spread.astype(np.uint16).argsort(kind="stable")  # by the low 16 bits first
    while (spread := spread >> 16).any():
        order = order.take(spread.take(order).astype(np.uint16).argsort(kind="stable"))
    return order


def content_sizes(columns: RecordColumns) -> Int64s:
    """The size of each record in bytes, without the four parts that depend on the place of the
    record in a batch. These parts are the length, the attributes, the offset delta and the
    timestamp delta.
    """
    return _content_sizes(columns, _key_and_value_lengths(columns))


def _key_and_value_lengths(columns: RecordColumns) -> list[Int64s | None]:
    """Returns a list with two items: the lengths of the keys, and the lengths of the values, in
    bytes. An item is None if ``columns`` has no keys or no values.
    """
    return [None if c is None else lengths_of(c) for c in (columns.key, columns.value)]


def _content_sizes(columns: RecordColumns, key_and_value: Sequence[Int64s | None]) -> Int64s:
    total = np.full(columns.rows, 1, np.int64)
    if columns.headers is not None:
        total = lengths_of(columns.headers)
    for lengths in key_and_value:
        if lengths is None:
            total += 1
        else:
            total += lengths
            total += _varint_sizes(lengths)
    return total


def _varint_sizes(lengths: npt.NDArray[np.integer]) -> Int64s | int:
    """The number of bytes that each length needs as a signed varint. A length is -1 or more. If all
    results are equal, the result is a single number.
    """
    largest = int(highest(lengths, initial=0))
    if largest < 64:
        return 1
    needed = varint_size(largest)
    if varint_size(int(lowest(lengths))) == needed:
        return needed
    sizes = np.ones(len(lengths), np.int64)
    for n in range(1, needed):
        sizes += lengths >= 1 << (7 * n - 1)
    return sizes


def encode_groups(
    columns: RecordColumns,
    groups: Groups,
    positions: Sequence[OpenPosition] | OpenPositions,
    raw_limits: Sequence[int] | int,
    now_ms: int,
    *,
    max_request_size: int,
) -> EncodedSlices:
    """Encodes a chunk of rows into one buffer, and cuts the buffer into slices for record batches.

    * ``positions[g]``: the open batch of ``groups.tps[g]``, with its record count and its free
      bytes (:class:`OpenPosition`).
    * ``raw_limits``: the number of uncompressed record bytes that fit into a new batch, for each
      group or for all groups. This number is batch.size without the header, divided by the
      estimated compression ratio.
    * ``now_ms``: the timestamp of rows without a timestamp.

    The slices are ordered by group. If the first record of a group fits into the open batch, the
    first slice of the group continues this batch, and its ``generation`` is the unique number of
    the batch. Every other slice begins a new batch, and its ``generation`` is 0.

    If a record is larger than ``max_request_size``, raises RecordTooLargeError before anything is
    encoded.
    """
    if columns.rows == 0:
        return EncodedSlices.of(())
    lengths = _key_and_value_lengths(columns)
    content = _content_sizes(columns, lengths)
    largest = _check_sizes(columns, content, max_request_size)
    order = groups.order
    ordered = content if order is None else content.take(order)
    timestamps = columns.timestamp
    if timestamps is not None and order is not None:
        timestamps = timestamps.take(order)
    cuts = cut(ordered, groups.bounds, positions, raw_limits, timestamps, now_ms)
    data, ends = _encode(columns, lengths, order, ordered, cuts)
    view = memoryview(data).cast("B")  # Arrow's are signed bytes
    # Records begin one byte later without headers (see _encode).
    late = 1 if columns.headers is None else 0
    bounds = [late, *(ends.take(cuts.starts[1:] - 1) + late).tolist(), int(ends[-1]) + late]
    tps, count = groups.tps, len(cuts.starts)
    return EncodedSlices(
        tps if count == len(tps) else [tps[group] for group in cuts.groups.tolist()],
        (view,) * count,
        bounds[:-1],
        bounds[1:],
        cuts.counts.tolist(),
        cuts.generations.tolist(),
        cuts.first_offsets.tolist(),
        cuts.bases.tolist(),
        cuts.max_timestamps.tolist(),
        cuts.last.tolist(),
        cuts.starts.tolist(),
        (largest,) * count,
    )


def encode_slices_again(
    columns: RecordColumns,
    groups: Groups,
    refused: Sequence[EncodedSlice],
    positions: Sequence[OpenPosition] | OpenPositions,
    raw_limits: Sequence[int],
    now_ms: int,
) -> list[EncodedSlice]:
    """Encodes the rows of refused slices again. The accumulator refuses a slice if the open batch
    for the slice was closed before the slice was appended.

    * ``columns``, ``groups``: the rows of the chunk that the slices come from.
    * ``refused``: the slices, at most one for each partition.
    * ``positions``, ``raw_limits``: the current values, with an item for each refused slice.

    If the rows of a slice do not fit into one batch now, the result has several slices for the
    partition of the slice.
    """
    if groups.order is None:
        (only,) = refused
        rows = columns.slice(only.first_row, only.record_count)
    else:
        order = groups.order
        places = [order[s.first_row : s.first_row + s.record_count] for s in refused]
        # Their topic is not needed any more.
        rows = replace(columns, topic="").take(np.concatenate(places))
    # All slices in one pass: there can be thousands of them.
    bounds = ends_of(np.array([s.record_count for s in refused]))
    again = Groups(tuple(s.tp for s in refused), bounds, None)
    slices = encode_groups(rows, again, positions, raw_limits, now_ms, max_request_size=2**31 - 1)
    moved = {s.tp: s.first_row - first for s, first in zip(refused, bounds.tolist(), strict=False)}
    return [s._replace(first_row=s.first_row + moved[s.tp]) for s in slices]


def _check_sizes(columns: RecordColumns, content: Int64s, max_request_size: int) -> int:
    """Checks that no record is larger than max.request.size, before any record is encoded.

    Returns the size of the largest record in bytes. As in Java, the size of a record is the
    estimated size of a batch with only this record.
    """
    largest = int(highest(content)) + JAVA_OVERHEAD
    if largest <= max_request_size:
        return largest
    row = int(np.argmax(content + JAVA_OVERHEAD > max_request_size))
    size = int(content[row]) + JAVA_OVERHEAD
    topic = columns.topic if isinstance(columns.topic, str) else columns.topic[row].as_py()
    raise RecordTooLargeError(
        f"Row {columns.first_row + row} of the Arrow batch (topic {topic}): The message is {size}"
        f" bytes when serialized which is larger than {max_request_size}, which is the value of"
        " the max.request.size configuration.",
        hint="raise kafka.max.request.size, and max.message.bytes of the topic with it",
    )


def _encode(
    columns: RecordColumns,
    key_and_value: Sequence[Int64s | None],
    order: Int64s | None,
    content: Int64s,
    cuts: Cuts,
) -> tuple[pa.Buffer, Int64s]:
    """Encodes all records into one buffer. Returns the buffer, and the end of each record: its
    distance in bytes from the beginning of the first record.

    If ``columns`` has headers, the first record begins at byte 0 of the buffer. Without headers,
    the first record begins at byte 1, and byte 0 is not used.
    """
    # The pieces of a record: a head (length, attributes, deltas and key length: mostly 8 to 12
    # bytes, packed by shifts), the key, the value's length, the value, and the headers. One Gather
    # joins the pieces of all records, so that each key and value is copied only once.
    time_parts, time_sizes = _deltas(cuts.timestamp_deltas)
    offset_parts, offset_sizes = _deltas(cuts.offset_deltas)
    body = content + (1 + time_sizes + offset_sizes)
    size_parts = pack(body)
    ends = (body + _sizes_of(size_parts)).cumsum(dtype=np.int64)

    # Without headers, each record ends with a zero byte, the number of its headers. To save a piece
    # for each record, this byte and the head of the next record are one piece.
    closing = 1 if columns.headers is None else 0
    pieces: list[Piece] = [_NO_HEADERS] if closing else []
    pieces += [*size_parts, _ATTRIBUTES, *time_parts, *offset_parts]
    for column, lengths in zip((columns.key, columns.value), key_and_value, strict=True):
        pieces += _length_parts(column, lengths, order)
        if column is not None:
            pieces.append(Column(column, order))
    if columns.headers is not None:
        pieces.append(Column(columns.headers, order))
    gather = gather_of(pieces, columns.rows, closing)
    if closing:
        gather.put_packed(slice(-1, None), _NO_HEADERS)
    return gather.join(int(ends[-1]) + closing), ends


def _deltas(deltas: Int64s | int) -> tuple[Sequence[Packed], Int64s | np.int64]:
    parts = pack_constant(deltas) if isinstance(deltas, int) else pack(deltas)
    return parts, _sizes_of(parts)


def _sizes_of(parts: Sequence[Packed]) -> Int64s | np.int64:
    total: Int64s | np.int64 = parts[0].size.view(np.int64)
    for part in parts[1:]:
        total = total + part.size.view(np.int64)
    return total


def _length_parts(
    column: pa.Array | None, lengths: Int64s | None, order: Int64s | None
) -> Sequence[Packed]:
    """The length of each row's key or value as a varint. The length of null is -1."""
    if column is None or lengths is None:
        return pack_constant(-1)
    valid = valid_of(column)
    if valid is not None:
        lengths = np.where(valid, lengths, -1)
    shortest = int(lowest(lengths))
    if shortest == highest(lengths):
        return pack_constant(shortest)  # in any order
    return pack(lengths if order is None else lengths.take(order))
