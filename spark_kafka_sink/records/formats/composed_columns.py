"""Builds the key, the value and the headers of each row from the columns that the options select.

:func:`with_composed` adds up to three columns to a batch: one for the keys, one for the values, and
one for the headers. ``record_columns`` converts this batch to the types that Kafka needs.
:func:`parts_of` limits the memory for the new columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import DataError, IllegalStateError, safe_text
from spark_kafka_sink.config.named_columns import ColumnFormat
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows, Reason
from spark_kafka_sink.records.column_plan import (
    TOMBSTONE,
    ColumnPlan,
    ComposedColumns,
    NamedColumn,
)
from spark_kafka_sink.records.gather import bools, ends_of, integers, list_items, valid_of
from spark_kafka_sink.records.json.json_text import json_objects, json_value, text_of
from spark_kafka_sink.records.json.plain_text import plain_binary
from spark_kafka_sink.records.record_columns import rows_of, without_views
from spark_kafka_sink.records.row_pieces import Mask, Payloads, Refusal

#: Bytes of input that are composed at a time: their text adds to the memory of a task (rule R5).
_MOST_BYTES = 4 * 1024 * 1024
#: The composed fields, and the reason of a row whose field a format refuses.
_PARTS = {"value": Reason.VALUE_REFUSED, "key": Reason.KEY_REFUSED}
_HINT = (
    "correct the value or filter such rows out before they are written, or write with a schema that"
    " accepts it"
)


def parts_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Splits ``batch`` into parts of about 4 MiB. Each part has at least one row. The rows are not
    copied.
    """
    rows = max(1, batch.num_rows * _MOST_BYTES // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def with_composed(
    batch: pa.RecordBatch, plan: ColumnPlan, bad: BadRows | None = None
) -> tuple[pa.RecordBatch, ColumnPlan]:
    """Builds keys, values and headers from the columns that options such as ``keyColumns`` name.
    Returns the batch with new columns of keys, values and headers, and a plan that uses the new
    columns. If the options name no columns for the keys, no column of keys is built. The same holds
    for values and headers.

    Rows that can't be encoded are added to ``bad``. If ``bad`` is None, raises DataError for one of
    these rows. If each topic has its own schema, a row with a null topic can't be encoded, but is
    not added to ``bad``: a later check finds such a row.

    In place of a key or value that can't be encoded, the new column has JSON of the columns that
    the key or value is built from. The dead letter of the row contains this JSON.
    """
    columns, bad = list(batch.columns), bad or BadRows(None)
    gone = _tombstones(batch, plan)
    headers = [(one.name, plain_binary(columns[one.index])) for one in plan.headers]
    for name, reason in _PARTS.items():
        part: ComposedColumns | None = getattr(plan, name)
        if part is None:
            continue
        made, header = _with_header(part, batch, plan.topic_column)
        refused = np.zeros(batch.num_rows, np.bool_)
        if gone is not None and name == "value":
            made = _without_tombstones(made, gone)
        for one in made.refusals:
            said = f"column {safe_text(one.column, 200)}: it {one.reason}, so the row has no {name}"
            bad.refuse(one.rows, reason, said, hint=_HINT)
            refused |= one.rows
        if part.by_topic:
            refused |= _without_topic(batch.column(plan.topic_column))
        payloads, rows = made.array, bools(refused)
        if header is not None:
            there = pc.and_not(payloads.is_valid(), rows)
            headers.append((header[0], pc.if_else(there, header[1], None)))
        if refused.any():
            payloads = _with_json(payloads, batch, part, rows)
        columns.append(payloads)
        done: dict[str, Any] = {name: None, f"{name}_column": len(columns) - 1}
        plan = replace(plan, **done)
    if headers:
        there = None if plan.headers_column is None else columns[plan.headers_column]
        columns.append(_headers(headers, there, batch.num_rows))
        plan = replace(plan, headers=(), headers_column=len(columns) - 1)
    names = [str(index) for index in range(len(columns))]
    return pa.RecordBatch.from_arrays(columns, names=names), plan


def _tombstones(batch: pa.RecordBatch, plan: ColumnPlan) -> Mask | None:
    """The mask of the rows of a change feed that become tombstones. None if no row becomes a
    tombstone, or if the rows are not changes.
    """
    if plan.changes is None:
        return None
    gone: Mask = batch.column(plan.changes.marks).to_numpy() == TOMBSTONE
    return gone if gone.any() else None


def _without_tombstones(made: Payloads, gone: Mask) -> Payloads:
    """Returns a copy of ``made`` in which the rows of the mask ``gone`` are tombstones: their
    values are null, and ``refusals`` (the rows that can't be encoded) has none of these rows.
    """
    # A deleted row often has values only for its key, so its other columns need not fit the schema.
    refusals = [one._replace(rows=one.rows & ~gone) for one in made.refusals]
    array = pc.if_else(bools(gone), None, made.array)
    return Payloads(array, tuple(one for one in refusals if one.rows.any()))


def _with_header(
    part: ComposedColumns, batch: pa.RecordBatch, topic_column: int | None
) -> tuple[Payloads, tuple[str, pa.Array | pa.Scalar] | None]:
    """Builds the keys or values. Also builds the header that identifies the schema, as a pair: the
    name of the header, and its values. The pair is None if the format has no such header.
    """
    if part.by_topic:
        assert topic_column is not None, "planning makes encoders by topic for a column topic"
        return _payloads_by_topic(part, batch, batch.column(topic_column))
    if part.header is None:
        return payloads_of_part(part, batch), None
    name, value = part.header
    return payloads_of_part(part, batch), (name, pa.scalar(value, pa.binary()))


def _payloads_by_topic(
    part: ComposedColumns, batch: pa.RecordBatch, topics: pa.Array
) -> tuple[Payloads, tuple[str, pa.Array] | None]:
    """Builds the keys or values of a batch if each topic has its own schema.

    Also returns the header that identifies a row's schema, as a pair: the name of the header, and
    its value in each row. The pair is None if the format has no such header.

    A row without a schema gets a null key or value. There are two such cases:

    * The option schemaTopics does not have the row's topic. The row counts as a row that can't be
      encoded.
    * The row's topic is null. A later check finds such a row.
    """
    names = plain_binary(topics)
    known = pa.array([topic.encode() for topic, _ in part.by_topic], names.type)
    which = pc.index_in(names, known)
    numbers = which.fill_null(-1).to_numpy()
    unknown = pc.and_(names.is_valid(), which.is_null()).to_numpy(zero_copy_only=False)
    refusals = [Refusal(unknown, "topic", "is not in schemaTopics")] if unknown.any() else []
    rest = (numbers < 0).nonzero()[0]
    order, arrays = [rest], [pa.nulls(len(rest), pa.large_binary())]
    for number, (_, one) in enumerate(part.by_topic):
        rows = (numbers == number).nonzero()[0]
        if not len(rows):
            continue
        made = payloads_of_part(one, batch if len(rows) == len(numbers) else rows_of(batch, rows))
        order.append(rows)
        arrays.append(made.array.cast(pa.large_binary()))
        for refusal in made.refusals:
            flags = np.zeros(len(numbers), np.bool_)
            flags[rows] = refusal.rows
            refusals.append(refusal._replace(rows=flags))
    place = integers(np.concatenate(order).argsort())
    payloads = Payloads(pa.concat_arrays(arrays).take(place), tuple(refusals))
    headers = [one.header for _, one in part.by_topic]
    name = next((header[0] for header in headers if header is not None), None)
    if name is None:
        return payloads, None
    values = pa.array([None if one is None else one[1] for one in headers], pa.binary())
    return payloads, (name, values.take(which))


def _without_topic(topics: pa.Array) -> npt.NDArray[np.bool_]:
    """The mask of the rows with a null topic."""
    nulls: npt.NDArray[np.bool_] = plain_binary(topics).is_null().to_numpy(zero_copy_only=False)
    return nulls


def payloads_of_part(part: ComposedColumns, batch: pa.RecordBatch) -> Payloads:
    """Builds the key or value of each row. ``part`` has one schema for all topics, or no schema.
    The result also has the rows that can't be encoded, with the reasons.
    """
    columns = [batch.column(column.index) for column in part.columns]
    if part.encoding is not None:
        from spark_kafka_sink.records.formats.binary.encoder import payloads_of

        names = [column.name for column in part.columns]
        if part.is_bare:
            return payloads_of(part.encoding, columns[0], "" if part.is_struct else names[0])
        struct = pa.StructArray.from_arrays(columns, names, mask=_no_payload(part, columns))
        return payloads_of(part.encoding, struct, "")
    if part.format is ColumnFormat.STRING:
        return Payloads(text_of(columns[0]))
    return _json_payloads(part, columns, batch.num_rows)


def _json_payloads(part: ComposedColumns, columns: Sequence[pa.Array], rows: int) -> Payloads:
    """Encodes the columns of each row as JSON. A row with an invalid VARIANT is refused."""
    try:
        return Payloads(_json(part, columns, rows))
    except DataError:
        refusals = [
            Refusal(bad, one.name, "holds bytes that are no variant")
            for one, column in zip(part.columns, columns, strict=True)
            if (bad := _without_json(part, one, column)).any()
        ]
    good = bools(~np.logical_or.reduce([refusal.rows for refusal in refusals]))
    text = _json(part, [column.filter(good) for column in columns], good.true_count)
    kind = pa.large_binary()
    return Payloads(
        pc.replace_with_mask(pa.nulls(rows, kind), good, text.cast(kind)), tuple(refusals)
    )


def _without_json(part: ComposedColumns, one: NamedColumn, column: pa.Array) -> Mask:
    """The mask of the rows with a value that can't be encoded as JSON. Such rows are rare, so they
    are searched by bisection: a half that can be encoded is not searched further.
    """
    found = np.zeros(len(column), np.bool_)
    todo = [(0, len(column))]
    while todo:
        start, stop = todo.pop()
        try:
            json_value(column.slice(start, stop - start), part.json, one.units)
        except DataError:
            middle = (start + stop) // 2
            if middle == start:
                found[start] = True
            else:
                todo += [(start, middle), (middle, stop)]
    return found


def _no_payload(part: ComposedColumns, columns: Sequence[pa.Array]) -> pa.BooleanArray | None:
    """The mask of the rows in which all ``columns`` are null, so that the key or value is null.
    None if there is no such row, or if ``part.nulls_are_null`` is false.
    """
    if not part.nulls_are_null:
        return None
    found: pa.BooleanArray | None = None
    for column in columns:
        # A null of a dictionary may be a value of it.
        valid = valid_of(
            column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
        )
        if valid is None:
            return None
        found = bools(~valid) if found is None else pc.and_(found, bools(~valid))
    return found if found is not None and found.true_count else None


def _json(part: ComposedColumns, columns: Sequence[pa.Array], rows: int) -> pa.Array:
    units = [column.units for column in part.columns]
    if part.is_struct:
        return json_value(columns[0], part.json, units[0])
    names = [column.name for column in part.columns]
    text = json_objects(names, columns, rows, part.json, units)
    nulls = _no_payload(part, columns)
    return text if nulls is None else pc.if_else(nulls, None, text)


def _with_json(
    payloads: pa.Array, batch: pa.RecordBatch, part: ComposedColumns, rows: pa.BooleanArray
) -> pa.Array:
    """Replaces the keys or values of some rows by JSON of the rows' columns. ``rows`` is the mask
    of these rows. If a column's type can't be encoded as JSON, these keys or values become empty.
    """
    columns = [without_views(batch.column(one.index)).filter(rows) for one in part.columns]
    try:
        text = _json(part, columns, rows.true_count)
    except (IllegalStateError, DataError):
        text = pa.array([b""] * rows.true_count)
    large = pa.large_binary()
    return pc.replace_with_mask(payloads.cast(large), rows, text.cast(large))


_ENTRY = pa.struct([("key", pa.string()), ("value", pa.large_binary())])


def _headers(named: Sequence[tuple[str, pa.Array]], before: pa.Array | None, rows: int) -> pa.Array:
    """Creates a column with each row's list of headers.

    ``named`` are pairs of a header's name and its values, one for each row. A null value adds no
    header. ``before`` is the DataFrame's column ``headers``. The headers of this column come first.
    """
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
