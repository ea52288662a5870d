"""Composes the columns that options name for value, key and headers into one column each: before
step 3 of a record's way.

Owns: :func:`with_composed`, which makes of a batch and a plan that name columns a batch and a plan
that don't, and :func:`parts_of`, which keeps what that costs small. Never: the text of values
(``json_text``), the bytes of a format (its encoder), of headers (``record_headers``), what becomes
of rows that a format refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from spark_kafka_sink.config.named_columns import ColumnFormat
from spark_kafka_sink.records.bad_rows import BadRows, Mask, Reason
from spark_kafka_sink.records.column_plan import ColumnPlan, ComposedColumns, NamedColumn
from spark_kafka_sink.records.gather import ends_of
from spark_kafka_sink.records.json.json_text import json_objects, json_value, plain_binary, text_of
from spark_kafka_sink.records.payloads import Refusal

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
    if plan.value is not None:
        columns.append(_composed(batch, plan.value, "value", refusals))
        plan = replace(plan, value=None, value_column=len(columns) - 1)
    if plan.key is not None:
        columns.append(_composed(batch, plan.key, "key", refusals))
        plan = replace(plan, key=None, key_column=len(columns) - 1)
    if plan.headers:
        columns.append(_headers(batch, plan.headers))
        plan = replace(plan, headers=(), headers_column=len(columns) - 1)
    names = [str(index) for index in range(len(columns))]
    return Composed(pa.RecordBatch.from_arrays(columns, names=names), plan, tuple(refusals))


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
    if part.is_struct:
        return json_value(columns[0])
    return json_objects([column.name for column in part.columns], columns, batch.num_rows)


def _with_json(
    payloads: pa.Array, batch: pa.RecordBatch, part: ComposedColumns, rows: Mask
) -> pa.Array:
    """``payloads``, with JSON of the columns of ``part`` in ``rows``."""
    numbers = rows.nonzero()[0]
    refused = batch.take(pa.array(numbers))
    columns = [refused.column(column.index) for column in part.columns]
    names = [column.name for column in part.columns]
    text = json_value(columns[0]) if part.is_struct else json_objects(names, columns, len(numbers))
    index = np.arange(len(payloads))
    index[numbers] = len(payloads) + np.arange(len(numbers))
    both = [payloads.cast(pa.large_binary()), text.cast(pa.large_binary())]
    return pa.concat_arrays(both).take(pa.array(index))


def _headers(batch: pa.RecordBatch, headers: tuple[NamedColumn, ...]) -> pa.Array:
    """As a column of lists of headers; a null is none."""
    values = [plain_binary(batch.column(header.index)) for header in headers]
    there = np.stack([one.is_valid().to_numpy(zero_copy_only=False) for one in values], axis=1)
    row, which = there.nonzero()
    everything = pa.concat_arrays([one.cast(pa.large_binary()) for one in values])
    entries = pa.StructArray.from_arrays(
        [
            pa.array([header.name for header in headers], pa.string()).take(pa.array(which)),
            everything.take(pa.array(which * batch.num_rows + row)),
        ],
        ["key", "value"],
    )
    offsets = ends_of(there.sum(axis=1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), entries)
