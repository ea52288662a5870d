"""Converts the changes of a change feed to rows of the table.

An insert or update becomes a row. A delete becomes a tombstone. An update that changes the key
becomes two rows: a tombstone for the old key, and the new row. If the sink writes Debezium's
envelopes, a row with the envelope of the delete comes before each tombstone.

The rows get an additional column of marks (``marks.py``). The *mark* of a row shows whether the row
becomes a record with a value or a tombstone, or why the row can't be sent.

Delta Lake and Flink describe an update by two rows. The first row is the *preimage*: it has the
values from before the update. The second row has the new values. These are the cases of a preimage:

* Both rows have the same key: the preimage becomes no record.
* The rows have different keys: the preimage becomes the tombstone of the old key.
* The preimage is the last row of an Arrow batch: it is kept for the next batch.
* There is no second row: the preimage can't be sent.

The order of changes is checked only within an Arrow batch. ``datasource/jobs/upserts.py`` finds the
last change of each key in the whole feed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.config.named_columns import ColumnFormat
from spark_kafka_sink.records.bad_rows.bad_rows import Mask
from spark_kafka_sink.records.changes.change_order import dense, older_changes
from spark_kafka_sink.records.changes.envelope import TableRows, envelope_of, fields_of, valid
from spark_kafka_sink.records.changes.marks import (
    BEFORE,
    DELETE,
    INSERT,
    MARK_OF_KIND,
    NO_AFTER,
    NO_IMAGE,
    NO_VALUE,
    OLDER,
    UPDATE,
    Int8s,
    kinds_of,
)
from spark_kafka_sink.records.column_plan import (
    ROW,
    TOMBSTONE,
    ChangePlan,
    ColumnPlan,
    ComposedColumns,
)
from spark_kafka_sink.records.formats.composed_columns import payloads_of_part
from spark_kafka_sink.records.gather import bools, integers
from spark_kafka_sink.records.record_columns import rows_of, without_views
from spark_kafka_sink.records.varint import Int64s


@dataclass(slots=True)
class ChangedRows:
    """Converts the changes of a source table to the rows that the sink writes as records. An object
    converts the Arrow batches of one task attempt.

    ``dropped`` is the number of input rows that became no record. ``added`` is the number of
    additional records: a change that became two records adds 1.
    """

    plan: ColumnPlan
    dropped: int = field(default=0, init=False)
    added: int = field(default=0, init=False)
    #: The preimage at the end of the last batch. The second row of its update is still missing.
    _open: pa.RecordBatch | None = field(default=None, init=False)

    def changed(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s | None]:
        """Converts the changes in ``batch`` to rows of the table. Returns a batch with these rows,
        and an int64 array.

        The array has an item for each row: the index in ``batch`` of the change that became the
        row. The index is -1 if the change was the last row of the previous batch. In place of the
        array, None means that each change became exactly one row.

        If the last row of ``batch`` is the first of the two rows of an update, this object keeps
        the row for the next call. :meth:`last` returns it at the end of the task.
        """
        waited = self._open is not None
        if self._open is not None:
            batch = _joined(self._open, batch)
            self._open = None
        kinds = self._kinds(batch)
        if len(kinds) and kinds[-1] == BEFORE:
            self._open = _copied(batch.slice(batch.num_rows - 1))
            batch, kinds = batch.slice(0, batch.num_rows - 1), kinds[:-1]
        made, numbers = self._changed(batch, kinds)
        if not waited:
            return made, numbers
        return made, (np.arange(made.num_rows) if numbers is None else numbers) - 1

    def last(self) -> tuple[pa.RecordBatch, Int64s | None] | None:
        """Returns the row that :meth:`changed` still keeps at the end of the task. None if it keeps
        no row.

        This row is the first of the two rows of an update. The second row is missing, so the row
        can't be sent. The result has the form of the result of :meth:`changed`.
        """
        batch, self._open = self._open, None
        if batch is None:
            return None
        made, _ = self._changed(batch, self._kinds(batch))
        return made, np.full(made.num_rows, -1)

    def _kinds(self, batch: pa.RecordBatch) -> Int8s:
        return kinds_of(batch.column(self._changes.column), self._changes.changelog)

    @property
    def _changes(self) -> ChangePlan:
        assert self.plan.changes is not None, "planning gives one"
        return self.plan.changes

    def _changed(self, batch: pa.RecordBatch, kinds: Int8s) -> tuple[pa.RecordBatch, Int64s | None]:
        marks = MARK_OF_KIND.take(kinds)
        before, moved = self._pairs(batch, kinds, marks)
        marks[self._older(batch, kinds, marks, moved, before)] = OLDER
        counts = np.ones(len(kinds), np.int64)
        counts[before] = 0
        # An additional row in front of the new row: the tombstone of the old key.
        moved &= marks == ROW
        counts[moved] += 1
        if self._changes.envelope is not None:
            counts[moved | (marks == TOMBSTONE)] += 1
        counts[before] = 0
        dropped = int(np.count_nonzero(before))
        self.dropped += dropped
        self.added += int(counts.sum()) - len(kinds) + dropped
        if (counts == 1).all():
            rows = TableRows(batch, batch, kinds, marks)
            return self._with_columns(rows), None
        numbers = np.repeat(np.arange(len(kinds)), counts)
        copies = np.arange(len(numbers)) - (counts.cumsum() - counts).take(numbers)
        is_moved = moved.take(numbers)
        # All copies of a moved row except for the last one are of its old key.
        old = is_moved & (copies < counts.take(numbers) - 1)
        marks = marks.take(numbers)
        marks[old] = TOMBSTONE
        was = None
        if self._changes.envelope is not None and dropped:
            was = np.where(before.take(np.maximum(numbers - 1, 0)) & (numbers > 0), numbers - 1, -1)
        rows = TableRows(rows_of(batch, numbers), batch, kinds.take(numbers), marks)
        rows.old, rows.is_moved, rows.copies, rows.was = old, is_moved, copies, was
        return self._with_columns(rows), numbers

    def _older(
        self, batch: pa.RecordBatch, kinds: Int8s, marks: Int8s, moved: Mask, dropped: Mask
    ) -> Mask:
        """The mask of the changes that come after a newer change of the same key.

        ``moved`` is the mask of the updates that change the key. Such an update counts as a change
        of the old key and of the new key. ``dropped`` is the mask of the rows that become no
        record.
        """
        by_kind = self._changes.images is None
        if moved.any():
            numbers = np.repeat(np.arange(len(kinds)), 1 + moved)
            starts = np.searchsorted(numbers, np.arange(len(kinds)))
            kinds = kinds.take(numbers)
            kinds[starts[moved]] = DELETE
            batch, marks = rows_of(batch, numbers), marks.take(numbers)
            dropped = dropped.take(numbers)
        older = older_changes(
            batch,
            self._changes.order,
            kinds,
            marks,
            lambda: self._key_numbers(batch, kinds),
            dropped,
            by_kind=by_kind,
        )
        return np.logical_or.reduceat(older, starts) if moved.any() else older

    def _with_columns(self, rows: TableRows) -> pa.RecordBatch:
        changes, columns, marks = self._changes, list(rows.batch.columns), rows.marks
        gone = marks == TOMBSTONE
        if changes.images is not None:
            before, after = (fields_of(rows.batch.column(index)) for index in changes.images)
            is_before = bools(rows.old | (rows.kinds == DELETE))
            none = not is_before.true_count
            for was, now in zip(before, after, strict=True):
                columns.append(now if none else pc.if_else(is_before, was, now))
        value = self._null_deletes
        if value is not None and columns[value].null_count:
            marks[(marks == ROW) & ~valid(columns[value])] = NO_VALUE
        if changes.envelope is not None:
            columns += envelope_of(changes, rows, columns)
            # The first record of a delete is its envelope.
            marks = np.where(gone & (rows.copies == 0), ROW, marks).astype(np.int8)
            gone = marks == TOMBSTONE
        if self.plan.value_column is not None and gone.any():
            value = without_views(columns[self.plan.value_column])
            columns[self.plan.value_column] = pc.if_else(bools(gone), None, value)
        columns.append(pa.array(marks))
        names = [str(index) for index in range(len(columns))]
        return pa.RecordBatch.from_arrays(columns, names=names)

    @property
    def _null_deletes(self) -> int | None:
        """The index of the column that becomes the record's value. None if the value is built from
        columns as JSON or with a schema. Such a value is never null.

        An insert or update with a null in this column can't be sent: its record would be a
        tombstone, and would delete the key.
        """
        value = self.plan.value
        if value is None:
            return self.plan.value_column
        return value.columns[0].index if value.format is ColumnFormat.STRING else None

    def _pairs(self, batch: pa.RecordBatch, kinds: Int8s, marks: Int8s) -> tuple[Mask, Mask]:
        """Finds the two rows of each update. The first row is the *preimage*. (Debezium's updates
        have only one row.) Returns two masks: the preimages of updates that keep the key (they
        become no record), and Debezium's updates that change the key.

        This function also changes ``kinds`` and ``marks``:

        * If the two rows of an update have different keys, the kind of the second row becomes
          INSERT. The mark of the preimage stays TOMBSTONE.
        * If a preimage has no second row, the mark of the preimage becomes NO_AFTER.
        * If Debezium's insert or update has a null as its new row, the mark becomes NO_IMAGE.
        * If Debezium's delete has a null as its old row, the mark becomes NO_IMAGE.
        """
        nothing = np.zeros(len(kinds), np.bool_)
        if self._changes.images is not None:
            return nothing, self._moved(batch, kinds, marks)
        before = (kinds == BEFORE).nonzero()[0]
        if not len(before):
            return nothing, nothing
        after = np.minimum(before + 1, len(kinds) - 1)
        paired = (kinds.take(after) == UPDATE) & (after > before)
        marks[before[~paired]] = NO_AFTER
        before, after = before[paired], after[paired]
        same = self._same_keys(batch, before, batch, after)
        # The row before is the tombstone of its key, and the row after is new to its own.
        kinds[after[~same]] = INSERT
        dropped = nothing.copy()
        dropped[before[same]] = True
        return dropped, nothing

    def _moved(self, batch: pa.RecordBatch, kinds: Int8s, marks: Int8s) -> Mask:
        changes = self._changes
        assert changes.images is not None
        old, new = (batch.column(index) for index in changes.images)
        has_old, has_new = valid(old), valid(new)
        is_row = (kinds == INSERT) | (kinds == UPDATE)
        lacking = (is_row & ~has_new) | ((kinds == DELETE) & ~has_old)
        marks[lacking] = NO_IMAGE
        moved = np.zeros(len(kinds), np.bool_)
        both = (is_row & has_old & has_new).nonzero()[0]
        if not len(both) or self.plan.key is None:
            return moved
        index = integers(both)
        rows = [
            pa.RecordBatch.from_arrays(
                [
                    *[pa.nulls(len(both))] * changes.width,
                    *fields_of(without_views(one).take(index)),
                ],
                names=[str(number) for number in range(changes.width + changes.row_fields)],
            )
            for one in (old, new)
        ]
        every = np.arange(len(both))
        moved[both[~self._same_keys(rows[0], every, rows[1], every)]] = True
        return moved

    def _same_keys(
        self, one: pa.RecordBatch, rows: Int64s, other: pa.RecordBatch, others: Int64s
    ) -> Mask:
        """Compares keys pair by pair: row ``rows[i]`` of ``one`` with row ``others[i]`` of
        ``other``. Returns the mask of the pairs with equal keys.
        """
        key = self.plan.key
        columns = [self.plan.key_column] if key is None else [of.index for of in key.columns]
        same = np.ones(len(rows), np.bool_)
        for index in columns:
            assert index is not None, "planning refuses changes without a key"
            first, second = one.column(index), other.column(index)
            if pa.types.is_nested(first.type):
                return self._same_bytes(one, rows, other, others)
            first = without_views(first).take(integers(rows))
            second = without_views(second).take(integers(others))
            equal = pc.fill_null(pc.equal(first, second), False)  # noqa: FBT003 - Arrow's
            equal = pc.or_(equal, pc.and_(first.is_null(), second.is_null()))
            same &= equal.to_numpy(zero_copy_only=False)
        return same

    def _same_bytes(
        self, one: pa.RecordBatch, rows: Int64s, other: pa.RecordBatch, others: Int64s
    ) -> Mask:
        key = self.plan.key
        assert key is not None
        first, second = (
            _keys(key, _taken(batch, key, of)) for batch, of in ((one, rows), (other, others))
        )
        equal = pc.fill_null(pc.equal(first, second), False)  # noqa: FBT003 - Arrow's
        equal = pc.or_(equal, pc.and_(first.is_null(), second.is_null()))
        same: Mask = equal.to_numpy(zero_copy_only=False)
        return same

    def _key_numbers(self, batch: pa.RecordBatch, kinds: Int8s) -> tuple[Int64s, Mask]:
        """Returns two arrays. The first has a number for each row: rows with equal keys have equal
        numbers. The second is the mask of the rows that have a key.
        """
        columns = self._key_columns(batch, kinds)
        if any(pa.types.is_nested(one.type) for one in columns):
            assert self.plan.key is not None, "a column key is text or bytes"
            columns = [_keys(self.plan.key, self._with_key_columns(batch, columns))]
        if len(columns) == 1 and pa.types.is_integer(columns[0].type):
            (key,) = columns
            plain = key.fill_null(0) if key.null_count else key
            return plain.cast(pa.int64(), safe=False).to_numpy(), valid(key)
        numbers = np.zeros(batch.num_rows, np.int64)
        has_key = np.zeros(batch.num_rows, np.bool_)
        for column in columns:
            encoded = column.dictionary_encode()
            codes = encoded.indices.fill_null(-1).cast(pa.int64()).to_numpy()
            has_key |= codes >= 0
            numbers = numbers * (len(encoded.dictionary) + 1) + codes + 1
            if len(columns) > 1:
                numbers = dense(numbers)
        return numbers, has_key

    def _key_columns(self, batch: pa.RecordBatch, kinds: Int8s) -> list[pa.Array]:
        """The columns of the key. In Debezium's events, the key of a delete comes from the struct
        column ``before``. Every other key comes from the struct column ``after``.
        """
        changes, key = self._changes, self.plan.key
        indices = [self.plan.key_column] if key is None else [one.index for one in key.columns]
        columns = []
        for index in indices:
            assert index is not None, "planning refuses changes without a key"
            if changes.images is None or index < changes.width:
                columns.append(without_views(batch.column(index)))
                continue
            before, after = (
                fields_of(batch.column(image))[index - changes.width] for image in changes.images
            )
            columns.append(pc.if_else(bools(kinds == DELETE), before, after))
        return columns

    def _with_key_columns(self, batch: pa.RecordBatch, columns: list[pa.Array]) -> pa.RecordBatch:
        """Creates a batch in which the key's columns are ``columns``, and all other columns are
        null.
        """
        changes, key = self._changes, self.plan.key
        assert key is not None
        made = [pa.nulls(batch.num_rows)] * (changes.width + changes.row_fields)
        for of, column in zip(key.columns, columns, strict=True):
            made[of.index] = column
        return pa.RecordBatch.from_arrays(made, names=[str(n) for n in range(len(made))])


def _keys(key: ComposedColumns, batch: pa.RecordBatch) -> pa.Array:
    return payloads_of_part(key, batch).array


def _taken(batch: pa.RecordBatch, key: ComposedColumns, rows: Int64s) -> pa.RecordBatch:
    """Copies the rows with the indexes ``rows``. In the copy, columns that are not part of the key
    are null.
    """
    needed, index = {column.index for column in key.columns}, integers(rows)
    columns = [
        without_views(one).take(index) if number in needed else pa.nulls(len(rows))
        for number, one in enumerate(batch.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _joined(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    if first.schema != second.schema:
        first = first.cast(second.schema)
    return pa.concat_batches([first, second])


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copies ``batch``, which is a slice of a larger batch. Without the copy, the slice would keep
    the memory of the whole larger batch.
    """
    return rows_of(batch, np.arange(batch.num_rows))
