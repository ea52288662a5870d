"""Columns as JSON, as Spark's ``to_json`` writes them, all rows at once.

Owns: :func:`json_objects`: a row's columns as one object. Never: numbers and times
(``json_numbers``, ``json_times``), which columns (``column_plan``), whether a type can be written
(``datasource/write/named_columns.py`` refuses at planning what can't).

As ``to_json`` with its defaults: a null field is left out, a null in an array or as a value of a
map is ``null``; no blanks; Jackson's escapes; bytes are Base64; decimals keep their scale.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.records.gather import binary_of, data_of, list_items, offsets_of, valid_of
from spark_kafka_sink.records.json.base64_text import base64_column
from spark_kafka_sink.records.json.json_numbers import json_floats
from spark_kafka_sink.records.json.json_times import json_dates, json_timestamps
from spark_kafka_sink.records.row_pieces import Mask, RowPieces
from spark_kafka_sink.records.varint import highest

_ESCAPES: Final = {
    byte: b"\\u%04X" % byte for byte in range(0x20)
} | {ord(char): b"\\" + short for char, short in zip(
    '"\\\b\t\n\f\r', (b'"', b"\\", b"b", b"t", b"n", b"f", b"r"), strict=True
)}  # fmt: skip
_IS_ESCAPED = np.zeros(256, np.bool_)
_IS_ESCAPED[list(_ESCAPES)] = True
_BACKSLASH = ord("\\")
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class JsonColumn:
    """Values as JSON, a (large) binary array with nulls; ``in_quotes``: but for quotes around."""

    texts: pa.Array
    in_quotes: bool = False


def json_objects(names: Sequence[str], columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """An object for each row, with a field for each of ``columns`` that is not null there: a
    (large) binary array without nulls.
    """
    return _objects(names, [_json(column) for column in columns], rows)


def json_value(column: pa.Array) -> pa.Array:
    """Each row by itself as JSON, with the nulls of the column."""
    made = _json(column)
    if not made.in_quotes:
        return made.texts
    return _with_nulls_of(_quoted(made), made.texts)


def plain_binary(column: pa.Array) -> pa.Array:
    """Any array of strings or bytes, also dictionaries, views and nulls, as (large) binary."""
    types = pa.types
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if types.is_null(column.type):
        return pa.nulls(len(column), pa.binary())
    if types.is_binary(column.type) or types.is_large_binary(column.type):
        return column
    if types.is_large_string(column.type):
        return column.cast(pa.large_binary())
    if types.is_string(column.type) or types.is_fixed_size_binary(column.type):
        return column.cast(pa.binary())
    return column.cast(pa.large_binary())  # views may hold more than 2 GiB together


def not_utf8(column: pa.Array) -> Mask:
    """Which rows of a binary column are not: Spark's strings are bytes."""
    none = np.zeros(len(column), np.bool_)
    offsets = offsets_of(column)
    data = data_of(column)[int(offsets[0]) : int(offsets[-1])]
    if not len(data) or highest(data) < 0x80:
        return none
    large = pa.types.is_large_binary(column.type)
    try:
        column.cast(pa.large_string() if large else pa.string())
    except pa.ArrowInvalid:
        # Rare, so row by row.
        rows = (one or b"" for one in column.to_pylist())
        return np.array([one.decode(errors="replace").encode() != one for one in rows])
    return none


def text_of(column: pa.Array) -> pa.Array:
    """A column of strings or bytes as it is, and one of numbers, booleans or dates as Spark's cast
    to string writes it: (large) binary with nulls.
    """
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    return plain_binary(json_dates(column) if pa.types.is_date(column.type) else _as_text(column))


def _as_text(column: pa.Array) -> pa.Array:
    types = pa.types
    kind = column.type
    written = types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    return column.cast(pa.string()) if written else column


def _json(column: pa.Array) -> JsonColumn:
    types = pa.types
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    if types.is_null(kind) or column.null_count == len(column):
        return JsonColumn(pa.nulls(len(column), pa.binary()))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return JsonColumn(_escaped(plain_binary(column)), in_quotes=True)
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return JsonColumn(plain_binary(column.cast(pa.string())))
    if types.is_floating(kind):
        return JsonColumn(plain_binary(json_floats(column)))
    if types.is_date(kind):
        return JsonColumn(plain_binary(json_dates(column)), in_quotes=True)
    if types.is_timestamp(kind):
        return JsonColumn(plain_binary(json_timestamps(column)), in_quotes=True)
    if types.is_struct(kind):
        return JsonColumn(_struct(column))
    if types.is_map(kind):
        return JsonColumn(_map(column))
    if types.is_list(kind) or types.is_large_list(kind):
        return JsonColumn(_list(column))
    if (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or (types.is_fixed_size_binary(kind))
    ):
        return JsonColumn(base64_column(plain_binary(column)), in_quotes=True)
    raise IllegalStateError(f"planning let a column of Arrow's type {kind} pass, for JSON")


def _struct(column: pa.Array) -> pa.Array:
    names = [field.name for field in column.type]
    fields = [_json(column.field(index)) for index in range(len(names))]
    return _with_nulls_of(_objects(names, fields, len(column)), column)


def _list(column: pa.Array) -> pa.Array:
    items, offsets = list_items(column)
    return _joined(column, offsets, _quoted(_json(items)), b"[", b"]")


def _map(column: pa.Array) -> pa.Array:
    entries, offsets = list_items(column)
    key, value = _json(entries.field(0)), _quoted(_json(entries.field(1)))
    names = _quoted(JsonColumn(key.texts, in_quotes=True))
    texts = pc.binary_join_element_wise(names, value, _scalar(b":"))
    return _joined(column, offsets, texts, b"{", b"}")


def _joined(
    column: pa.Array, offsets: npt.NDArray[np.int64], texts: pa.Array, begin: bytes, end: bytes
) -> pa.Array:
    """For each row of a list or map its entries with commas between: ``texts``, from one of
    ``offsets`` to the next.
    """
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), texts)
    if column.null_count:
        lists = pc.if_else(column.is_valid(), lists, None)
    return pc.binary_join_element_wise(
        _scalar(begin), pc.binary_join(lists, _scalar(b",")), _scalar(end), _scalar(b"")
    )


def _quoted(column: JsonColumn) -> pa.Array:
    """With quotes, and ``null`` for nulls."""
    texts = _large(column.texts)
    if column.in_quotes:
        quote = _scalar(b'"')
        texts = pc.binary_join_element_wise(quote, texts, quote, _scalar(b""))
    return pc.fill_null(texts, _scalar(b"null")) if texts.null_count else texts


def _objects(names: Sequence[str], fields: Sequence[JsonColumn], rows: int) -> pa.Array:
    """``{"name":value,...}``, concatenated from two strings for each field, and the end.

    The text before a value depends, row by row, on three bits: whether this value is present,
    whether one before it was, and whether the last one's quotes are still open.
    """
    there = [
        (name, field)
        for name, field in zip(names, fields, strict=True)
        if field.texts.null_count < len(field.texts)
    ]
    pieces = RowPieces(rows)
    started: Flags = False
    open_quote: Flags = False
    for name, field in there:
        valid = valid_of(field.texts)
        here: Flags = True if valid is None else valid
        pieces.add_choice(
            [_before(name, field, bits) for bits in range(8)],
            _bits(valid=here, started=started, open_quote=open_quote),
        )
        pieces.add_column(field.texts)
        open_quote = here if field.in_quotes else False
        started = True if started is True or here is True else np.logical_or(started, here)
    pieces.add_choice(
        [(b'"' if bits & 4 else b"") + (b"}" if bits & 2 else b"{}") for bits in range(8)],
        _bits(valid=False, started=started, open_quote=open_quote),
    )
    return binary_of(*pieces.joined())


#: For each row, or the same for all.
Flags = bool | npt.NDArray[np.bool_]


def _bits(*, valid: Flags, started: Flags, open_quote: Flags) -> int | npt.NDArray[np.uint8]:
    if isinstance(valid, bool) and isinstance(started, bool) and isinstance(open_quote, bool):
        return valid + 2 * started + 4 * open_quote
    return np.add(
        np.add(valid, np.multiply(started, 2, dtype=np.uint8), dtype=np.uint8),
        np.multiply(open_quote, 4, dtype=np.uint8),
        dtype=np.uint8,
    )


def _before(name: str, field: JsonColumn, bits: int) -> bytes:
    text = b'"' if bits & 4 else b""
    if bits & 1:
        text += (b"," if bits & 2 else b"{") + b'"' + _escaped_name(name) + b'":'
        text += b'"' if field.in_quotes else b""
    return text


def _escaped_name(name: str) -> bytes:
    data = name.encode("utf-8", "replace")
    return b"".join(_ESCAPES.get(byte, bytes([byte])) for byte in data)


def _escaped(column: pa.Array) -> pa.Array:
    """The text between the quotes of a JSON string: UTF-8 with Jackson's escapes."""
    offsets = offsets_of(column)
    data = data_of(column)[int(offsets[0]) : int(offsets[-1])]
    column = _as_utf8(column)
    escaped = data[_IS_ESCAPED.take(data)]
    for byte in sorted(set(np.unique(escaped).tolist()), key=lambda byte: byte != _BACKSLASH):
        column = pc.replace_substring(column, bytes([byte]), _ESCAPES[byte])
    return column


def _as_utf8(column: pa.Array) -> pa.Array:
    """``column``, and as Java reads them the rows that are not UTF-8: Spark's strings are bytes."""
    if not not_utf8(column).any():
        return column
    rows = [None if row is None else _as_java_reads(row) for row in column.to_pylist()]
    return pa.array(rows, pa.large_binary())


def _as_java_reads(data: bytes) -> bytes:
    return _SURROGATE.sub(b"\xef\xbf\xbd", data).decode("utf-8", "replace").encode()


#: One character to Java, three to Python.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


def _large(column: pa.Array) -> pa.Array:
    return column if pa.types.is_large_binary(column.type) else column.cast(pa.large_binary())


def _scalar(data: bytes) -> pa.Scalar:
    return pa.scalar(data, pa.large_binary())


def _with_nulls_of(texts: pa.Array, column: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), texts, None) if column.null_count else texts
