"""Builds the columns of Debezium's envelope for changes: before, after, source, op and ts_ms.

``changed_rows`` determines the rows. The encoders of formats write the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.version import __version__
from spark_kafka_sink.records.bad_rows.bad_rows import Mask
from spark_kafka_sink.records.changes.marks import UPDATE, Int8s
from spark_kafka_sink.records.column_plan import ENVELOPE, TOMBSTONE, ChangePlan, OrderColumn
from spark_kafka_sink.records.gather import bools, integers
from spark_kafka_sink.records.record_columns import without_views
from spark_kafka_sink.records.varint import Int64s


@dataclass(slots=True)
class TableRows:
    """Rows of the table that were made from the changes of a change feed. One change can become
    several rows, for example a tombstone of the old key and the new row.

    * ``batch``: the rows of the table.
    * ``whole``: the Arrow batch of the change feed. This batch also has the preimages, which are
      rows with the values from before an update.

    The other fields have an item for each row of ``batch``:

    * ``kinds``: the kind of the change: insert, update or delete (``marks.py``).
    * ``marks``: 0 for a row that becomes a record with a value, 1 for a tombstone. Each higher
      number stands for a reason why the row can't be sent (``marks.py``).
    * ``is_moved``: true if the row comes from an update that changes the key.
    * ``old``: true if the row is for the old key of an update that changes the key.
    * ``copies``: 0 for the first row that a change became, 1 for the second, and so on.
    * ``was``: for an update with a preimage of the same key, the index of the preimage in
      ``whole``. -1 for all other rows. None if no update has such a preimage, or if the sink writes
      no envelopes.
    """

    batch: pa.RecordBatch
    whole: pa.RecordBatch
    kinds: Int8s
    marks: Int8s
    old: Mask = field(init=False)
    is_moved: Mask = field(init=False)
    copies: Int64s = field(init=False)
    was: Int64s | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.old = self.is_moved = np.zeros(len(self.kinds), np.bool_)
        self.copies = np.zeros(len(self.kinds), np.int64)


def fields_of(images: pa.StructArray) -> list[pa.Array]:
    """The fields of a struct column. If the struct is null in a row, all fields are null in this
    row.
    """
    return [without_views(one) for one in images.flatten()]


def valid(column: pa.Array) -> Mask:
    """The mask of the rows with a value that is not null."""
    found: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def envelope_of(changes: ChangePlan, rows: TableRows, columns: list[pa.Array]) -> list[pa.Array]:
    """Builds the five columns of Debezium's envelope, in the order of ``ENVELOPE``.

    ``columns`` are the columns of ``rows.batch``. Some feeds have two struct columns, for the row
    before and after a change. For such a feed, ``columns`` also has a column for each field of the
    row.

    The column ``before`` depends on the change:

    * delete: the deleted row
    * update: the values from before the update, or null if the feed does not have them
    * insert: null

    An update that changes the key counts as a delete and an insert, as in Debezium.
    """
    made, batch, kinds = changes.envelope, rows.batch, rows.kinds
    assert made is not None
    gone = rows.marks == TOMBSTONE
    names = [column.name for column in made.columns]
    fields = [columns[column.index] for column in made.columns]
    after = pa.StructArray.from_arrays(fields, names, mask=bools(gone))
    # An update of another key is a delete and a create, as from Debezium's connectors.
    is_update = (kinds == UPDATE) & ~rows.is_moved
    codes = np.where(gone, 2, is_update).astype(np.int8)
    codes[(codes == 0) & _are_of_snapshot(changes, batch)] = 3
    op = pa.array(["c", "u", "d", "r"]).take(pa.array(codes))
    none = ~gone
    if changes.images is not None:
        image = batch.column(changes.images[0])
        was = [fields_of(image)[column.index - changes.width] for column in made.columns]
        none &= ~(is_update & valid(image))
    elif rows.was is not None:
        none &= rows.was < 0
        index = integers(np.where(rows.was < 0, 0, rows.was))
        of_update = bools(rows.was >= 0)
        was = [
            pc.if_else(of_update, without_views(rows.whole.column(c.index)).take(index), now)
            for c, now in zip(made.columns, fields, strict=True)
        ]
    else:
        was = fields
    before = pa.StructArray.from_arrays(was, names, mask=bools(none))
    times = pa.nulls(len(kinds), pa.int64()) if made.time is None else _millis(batch, made.time)
    if made.source is None:
        source = _source(made.name, times, batch, changes.order)
    else:
        source = batch.column(made.source)
    columns_of = {"before": before, "after": after, "source": source, "op": op, "ts_ms": times}
    return [columns_of[name] for name in ENVELOPE]


def _are_of_snapshot(changes: ChangePlan, batch: pa.RecordBatch) -> Mask:
    types = without_views(batch.column(changes.column))
    named = pa.array(changes.changelog.snapshots, types.type)
    found: Mask = pc.is_in(types, value_set=named).to_numpy(zero_copy_only=False)
    return found


def _millis(batch: pa.RecordBatch, index: int) -> pa.Array:
    column = batch.column(index)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).view(pa.int64())
    return column.cast(pa.int64())


def _source(
    name: str, times: pa.Array, batch: pa.RecordBatch, order: tuple[OrderColumn, ...]
) -> pa.Array:
    rows = batch.num_rows
    position = pa.nulls(rows, pa.string())
    if order and not order[0].path:
        position = without_views(batch.column(order[0].index)).cast(pa.string())
    same = {"version": __version__, "connector": "spark_kafka_sink", "name": name}
    fields = {key: pa.repeat(value, rows) for key, value in same.items()}
    fields |= {"ts_ms": times, "sequence": position}
    return pa.StructArray.from_arrays(list(fields.values()), list(fields))
