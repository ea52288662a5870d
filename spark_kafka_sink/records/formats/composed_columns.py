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
from spark_kafka_sink.records.column_plan import ColumnPlan, ComposedColumns, NamedColumn
from spark_kafka_sink.records.gather import ends_of
from spark_kafka_sink.records.json.json_text import json_objects, json_value, plain_binary, text_of
from spark_kafka_sink.records.payloads import Refusal

#: Bytes of input that are composed at a time: their text adds to the memory of a task (rule R5).
_MOST_BYTES = 4 * 1024 * 1024


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
