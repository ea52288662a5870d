"""Composes the columns that options name for value, key and headers into one column each: before
step 3 of a record's way.

Owns: :func:`with_composed`, which makes of a batch and a plan that name columns a batch and a plan
that don't, and :func:`parts_of`, which keeps what that costs small. Never: the text of values
(``json_text``), the bytes of a format (its encoder), of headers (``record_headers``), what becomes
of rows that a format refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.config.named_columns import ColumnFormat
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows, Mask, Reason
from spark_kafka_sink.records.column_plan import ColumnPlan, ComposedColumns
from spark_kafka_sink.records.formats.arrow_values import list_items, validity
from spark_kafka_sink.records.gather import ends_of
from spark_kafka_sink.records.json.json_text import json_objects, json_value, plain_binary, text_of
from spark_kafka_sink.records.payloads import Refusal
from spark_kafka_sink.records.record_columns import without_views

#: Bytes of input that are composed at a time: their text adds to the memory of a task (rule R5).
_MOST_BYTES = 4 * 1024 * 1024
_REASONS = {"value": Reason.VALUE_REFUSED, "key": Reason.KEY_REFUSED}


def parts_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """``batch`` in slices of about 4 MiB, and of a row at least; zero copy."""
    rows = max(1, batch.num_rows * _MOST_BYTES // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


@dataclass(frozen=True, slots=True)
class Composed:
    """A batch with a column for each composed field, and its plan. The rows of ``refusals`` can't
    be written: what ``batch`` has for their key or value means nothing.
    """

    batch: pa.RecordBatch
    plan: ColumnPlan
    refusals: tuple[Refusal, ...] = ()

    def noted(self, batch: pa.RecordBatch, plan: ColumnPlan, bad: BadRows | None) -> Composed:
        """The same of ``batch`` and ``plan``, from which it was made, with the refused rows noted
        in ``bad``: what they have for key or value is JSON of their columns then, for letters.
        Raises the error of the first refusal when ``bad`` is None.
        """
        columns = list(self.batch.columns)
        for refusal in self.refusals:
            if bad is None:
                raise refusal.error()
            bad.add(refusal.rows, _REASONS[refusal.part], refusal.sentence)
        for part, of, index in (
            ("value", plan.value, self.plan.value_column),
            ("key", plan.key, self.plan.key_column),
        ):
            masks = [one.rows for one in self.refusals if one.part == part]
            if masks and of is not None and index is not None:
                columns[index] = _with_json(columns[index], batch, of, np.logical_or.reduce(masks))
        return replace(
            self, batch=pa.RecordBatch.from_arrays(columns, names=self.batch.schema.names)
        )


def with_composed(batch: pa.RecordBatch, plan: ColumnPlan) -> Composed:
    """``batch`` with a column for each field that ``plan`` composes."""
    columns = list(batch.columns)
    refusals: list[Refusal] = []
    headers = [(one.name, plain_binary(columns[one.index])) for one in plan.headers]
    if plan.value is not None:
        columns.append(_composed(batch, plan.value, "value", refusals))
        headers += _schema_id(plan.value, columns[-1], refusals, "value")
        plan = replace(plan, value=None, value_column=len(columns) - 1)
    if plan.key is not None:
        columns.append(_composed(batch, plan.key, "key", refusals))
        headers += _schema_id(plan.key, columns[-1], refusals, "key")
        plan = replace(plan, key=None, key_column=len(columns) - 1)
    if headers:
        there = None if plan.headers_column is None else columns[plan.headers_column]
        columns.append(_headers(headers, there, batch.num_rows))
        plan = replace(plan, headers=(), headers_column=len(columns) - 1)
    names = [str(index) for index in range(len(columns))]
    return Composed(pa.RecordBatch.from_arrays(columns, names=names), plan, tuple(refusals))


def _schema_id(
    part: ComposedColumns, payloads: pa.Array, refusals: Sequence[Refusal], what: str
) -> list[tuple[str, pa.Array]]:
    """The header beside each payload that is not null, if there is one; none for a refused row,
    whose payload is JSON in its letter.
    """
    if part.header is None:
        return []
    name, value = part.header
    there = payloads.is_valid()
    for one in refusals:
        if one.part == what:
            there = pc.and_(there, pa.array(~one.rows))
    return [(name, pc.if_else(there, pa.scalar(value, pa.binary()), None))]


def _composed(
    batch: pa.RecordBatch, part: ComposedColumns, what: str, refusals: list[Refusal]
) -> pa.Array:
    columns = [batch.column(column.index) for column in part.columns]
    if part.encoder is not None:
        path = "" if part.is_struct else part.columns[0].name
        payloads = part.encoder.encode(columns, batch.num_rows, path)
        refusals += [replace(one, part=what) for one in payloads.refusals]
        return payloads.array
    if part.format is ColumnFormat.STRING:
        return text_of(columns[0])
    return _json(part, columns, batch.num_rows)


def _json(part: ComposedColumns, columns: Sequence[pa.Array], rows: int) -> pa.Array:
    if part.is_struct:
        return json_value(columns[0])
    return json_objects([column.name for column in part.columns], columns, rows)


def _with_json(
    payloads: pa.Array, batch: pa.RecordBatch, part: ComposedColumns, rows: Mask
) -> pa.Array:
    """``payloads``, with JSON of the columns of ``part`` in ``rows``, or nothing where a type has
    none.
    """
    numbers = rows.nonzero()[0]
    index = pa.array(numbers)
    columns = [without_views(batch.column(one.index)).take(index) for one in part.columns]
    try:
        text = _json(part, columns, len(index))
    except IllegalStateError:
        text = pa.array([b""] * len(index))
    found = np.arange(len(payloads))
    found[numbers] = len(payloads) + np.arange(len(numbers))
    both = [payloads.cast(pa.large_binary()), text.cast(pa.large_binary())]
    return pa.concat_arrays(both).take(pa.array(found))


_ENTRY = pa.struct([("key", pa.string()), ("value", pa.large_binary())])


def _headers(named: Sequence[tuple[str, pa.Array]], before: pa.Array | None, rows: int) -> pa.Array:
    """As a column of lists of headers; a null is none. ``before``: lists that they are added to."""
    there = np.stack([one.is_valid().to_numpy(zero_copy_only=False) for _, one in named], axis=1)
    row, which = there.nonzero()
    everything = pa.concat_arrays([one.cast(pa.large_binary()) for _, one in named])
    entries = pa.StructArray.from_arrays(
        [
            pa.array([name for name, _ in named], pa.string()).take(pa.array(which)),
            everything.take(pa.array(which * rows + row)),
        ],
        fields=list(_ENTRY),
    )
    counts = there.sum(axis=1)
    if before is not None:
        items, offsets = list_items(before, validity(before))
        row = np.concatenate([np.repeat(np.arange(rows), np.diff(offsets)), row])
        order = pa.array(row.argsort(kind="stable"))
        entries = pa.concat_arrays([items.cast(_ENTRY), entries]).take(order)
        counts = counts + np.diff(offsets)
    return pa.ListArray.from_arrays(pa.array(ends_of(counts).astype(np.int32)), entries)
