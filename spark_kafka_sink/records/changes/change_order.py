"""Finds the changes in an Arrow batch that are in the wrong order.

A change is in the wrong order if it comes after a newer change of the same key. The values of the
feed's order columns show which change is newer. Changes in other Arrow batches or tasks are not
compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.records.bad_rows.bad_rows import Mask
from spark_kafka_sink.records.changes.marks import Int8s
from spark_kafka_sink.records.column_plan import TOMBSTONE, OrderColumn
from spark_kafka_sink.records.record_columns import without_views
from spark_kafka_sink.records.varint import Int64s

#: Bits of a key's hash. 10 000 other keys have 380 pairs with one hash.
_BITS: Final = 17
#: 2**64 divided by the golden ratio (Knuth, The Art of Computer Programming, 6.4).
_MULTIPLIER: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
#: Of two changes with one position the later kind counts: a row that is replaced in one commit is
#: a delete and an insert.
_RANK_OF_KIND: Final = np.array([2, 2, 1, 0, 0, 0, 0], np.int8)


def older_changes(
    batch: pa.RecordBatch,
    order: tuple[OrderColumn, ...],
    kinds: Int8s,
    marks: Int8s,
    keys_of: Callable[[], tuple[Int64s, Mask]],
    dropped: Mask,
    *,
    by_kind: bool = True,
) -> Mask:
    """Returns the mask of the changes in ``batch`` that come after a newer change of the same key.

    * ``order``: the columns whose values show which change is newer.
    * ``kinds``: the kind of each row, such as insert or delete (``marks.py``).
    * ``marks``: the mark of each row (``marks.py``). Rows that can't be sent are ignored.
    * ``keys_of()`` returns two arrays. The first has a number for each row: rows with equal keys
      have equal numbers. The second is the mask of the rows that have a key.
    * ``dropped``: the mask of the rows that become no record. They are ignored.
    * ``by_kind``: the rule for two changes of a key that are equal in the order columns. If it is
      true, a delete counts as earlier than an insert or update. If it is false, as for Debezium's
      events, the changes are in the right order.
    """
    none = np.zeros(len(kinds), np.bool_)
    if not order or len(kinds) <= 1:
        return none
    position, rank = _positions(batch, order), _RANK_OF_KIND.take(kinds)
    if not by_kind:
        rank = np.zeros_like(rank)
    sent = (~dropped).nonzero()[0] if dropped.any() else None
    # In most batches the positions never decrease from row to row. Then no keys are needed.
    if not _falls(position, rank, sent).any():
        return none
    keys, has_key = keys_of()
    # A hash of each key excludes most of the keys that occur only once.
    rows = (_may_be_twice(keys) & has_key & (marks <= TOMBSTONE) & ~dropped).nonzero()[0]
    keys = keys.take(rows)
    ordered = np.argsort(keys, kind="stable")
    rows, keys = rows.take(ordered), keys.take(ordered)
    is_again = keys[1:] == keys[:-1]
    if not is_again.any():
        return none
    keys = np.concatenate(([0], (~is_again).cumsum()))
    # Both numbers of a change as one; of all changes of a key so far, the latest one.
    place = dense(position.take(rows)) * 4 + rank.take(rows)
    span = place.max() + 1
    latest = np.maximum.accumulate(keys * span + place) - keys * span
    none[rows[place < latest]] = True
    return none


def _positions(batch: pa.RecordBatch, order: tuple[OrderColumn, ...]) -> Int64s:
    """Converts the order columns to one number for each row. The numbers compare like the values of
    the order columns. Null is the smallest value.
    """
    made: Int64s | None = None
    for one in order:
        column = batch.column(one.index)
        for name in one.path:
            column = pc.struct_field(column, name)
        numbers = _numbers(column)
        made = numbers if made is None else dense(made) * (len(numbers) + 1) + dense(numbers)
    assert made is not None
    return made


def _numbers(column: pa.Array) -> Int64s:
    kind, plain = column.type, not column.null_count
    if plain and pa.types.is_integer(kind):
        made = column.cast(pa.int64(), safe=False)
    elif plain and pa.types.is_timestamp(kind):
        made = column.view(pa.int64())
    else:
        # Ranks begin at 1, and null has the greatest rank. (pyarrow 25 deprecates the option that
        # gives null another rank, and no other way to do this works with pyarrow 15 too.)
        ranks = pc.rank(without_views(column), sort_keys="ascending", tiebreaker="dense")
        made = pc.if_else(column.is_null(), 0, ranks.cast(pa.int64()))
    numbers: Int64s = made.to_numpy()
    return numbers


def dense(numbers: Int64s) -> Int64s:
    """Replaces each number by the rank of its value, so that equal numbers have the same rank:
    ``[7, 40, 7]`` becomes ``[0, 1, 0]``.
    """
    places: Int64s = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    return places


def _may_be_twice(keys: Int64s) -> Mask:
    """The mask of the keys that share their hash with another key in ``keys``. These are repeated
    keys, and different keys with the same hash.
    """
    hashes, rows = _hashes(keys), np.arange(len(keys), dtype=np.int32)
    last_row = np.empty(1 << _BITS, np.int32)
    last_row[hashes] = rows
    last = last_row.take(hashes)
    twice: Mask = last != rows
    twice[last[twice]] = True
    return twice


def _hashes(keys: Int64s) -> Int64s:
    return (keys.view(np.uint64) * _MULTIPLIER >> np.uint64(64 - _BITS)).astype(np.int64)


def _falls(position: Int64s, rank: Int8s, sent: Int64s | None) -> Mask:
    if sent is not None:
        position, rank = position.take(sent), rank.take(sent)
    first, second = position[:-1], position[1:]
    falls: Mask = (second < first) | ((second == first) & (rank[1:] < rank[:-1]))
    return falls
