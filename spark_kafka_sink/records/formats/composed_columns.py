"""Composes the columns that options name for value, key and headers into one column each: before
step 3 of a record's way.

Owns: :func:`with_composed`, which makes of a batch and a plan that name columns a batch and a plan
that don't, and :func:`parts_of`, which keeps what that costs small. Never: the text of values
(``json_text``), the bytes of a format (its encoder), of headers (``record_headers``), what becomes
of rows that a format refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import IllegalStateError, safe_text
from spark_kafka_sink.config.named_columns import ColumnFormat
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows, Reason
from spark_kafka_sink.records.column_plan import ColumnPlan, ComposedColumns
from spark_kafka_sink.records.gather import bools, ends_of, list_items
from spark_kafka_sink.records.json.json_text import json_objects, json_value, plain_binary, text_of
from spark_kafka_sink.records.record_columns import without_views
from spark_kafka_sink.records.row_pieces import Payloads

#: Bytes of input that are composed at a time: their text adds to the memory of a task (rule R5).
_MOST_BYTES = 4 * 1024 * 1024
#: What is composed, and why a row that a format refuses lacks it.
_PARTS = {"value": Reason.VALUE_REFUSED, "key": Reason.KEY_REFUSED}
_HINT = (
    "correct the value or filter such rows out before they are written, or write with a schema that"
    " accepts it"
)


def parts_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """``batch`` in slices of about 4 MiB, and of a row at least; zero copy."""
    rows = max(1, batch.num_rows * _MOST_BYTES // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def with_composed(
    batch: pa.RecordBatch, plan: ColumnPlan, bad: BadRows | None = None
) -> tuple[pa.RecordBatch, ColumnPlan]:
    """``batch`` with a column for each field that ``plan`` composes, and the plan of that. Rows
    that a format refuses are noted in ``bad``, and have JSON of their columns in place of the key
    or value, for letters; DataError for the first one when that is None.
    """
    columns, bad = list(batch.columns), bad or BadRows(None)
    headers = [(one.name, plain_binary(columns[one.index])) for one in plan.headers]
    for name, reason in _PARTS.items():
        part: ComposedColumns | None = getattr(plan, name)
        if part is None:
            continue
        made = _payloads(part, batch)
        refused = np.zeros(batch.num_rows, np.bool_)
        for one in made.refusals:
            said = f"column {safe_text(one.column, 200)}: it {one.reason}, so the row has no {name}"
            bad.refuse(one.rows, reason, said, hint=_HINT)
            refused |= one.rows
        payloads, rows = made.array, bools(refused)
        if part.header is not None:
            header, value = part.header
            there = pc.and_not(payloads.is_valid(), rows)
            headers.append((header, pc.if_else(there, pa.scalar(value, pa.binary()), None)))
        columns.append(_with_json(payloads, batch, part, rows) if made.refusals else payloads)
        done: dict[str, Any] = {name: None, f"{name}_column": len(columns) - 1}
        plan = replace(plan, **done)
    if headers:
        there = None if plan.headers_column is None else columns[plan.headers_column]
        columns.append(_headers(headers, there, batch.num_rows))
        plan = replace(plan, headers=(), headers_column=len(columns) - 1)
    names = [str(index) for index in range(len(columns))]
    return pa.RecordBatch.from_arrays(columns, names=names), plan


def _payloads(part: ComposedColumns, batch: pa.RecordBatch) -> Payloads:
    columns = [batch.column(column.index) for column in part.columns]
    if part.encoding is not None:
        from spark_kafka_sink.records.formats.binary.encoder import payloads_of

        names = [column.name for column in part.columns]
        if part.is_bare:
            return payloads_of(part.encoding, columns[0], "" if part.is_struct else names[0])
        return payloads_of(part.encoding, pa.StructArray.from_arrays(columns, names), "")
    if part.format is ColumnFormat.STRING:
        return Payloads(text_of(columns[0]))
    return Payloads(_json(part, columns, batch.num_rows))


def _json(part: ComposedColumns, columns: Sequence[pa.Array], rows: int) -> pa.Array:
    if part.is_struct:
        return json_value(columns[0])
    return json_objects([column.name for column in part.columns], columns, rows)


def _with_json(
    payloads: pa.Array, batch: pa.RecordBatch, part: ComposedColumns, rows: pa.BooleanArray
) -> pa.Array:
    """``payloads``, with JSON of the columns of ``part`` in ``rows``, or nothing where a type has
    none.
    """
    columns = [without_views(batch.column(one.index)).filter(rows) for one in part.columns]
    try:
        text = _json(part, columns, rows.true_count)
    except IllegalStateError:
        text = pa.array([b""] * rows.true_count)
    large = pa.large_binary()
    return pc.replace_with_mask(payloads.cast(large), rows, text.cast(large))


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
        items, offsets = list_items(before)
        row = np.concatenate([np.repeat(np.arange(rows), np.diff(offsets)), row])
        order = pa.array(row.argsort(kind="stable"))
        entries = pa.concat_arrays([items.cast(_ENTRY), entries]).take(order)
        counts = counts + np.diff(offsets)
    return pa.ListArray.from_arrays(pa.array(ends_of(counts).astype(np.int32)), entries)
