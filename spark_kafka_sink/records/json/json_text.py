"""Encodes columns as JSON, with the same text as Spark's ``to_json``.

These are the rules of ``to_json``. ``JsonOptions`` can change some of them:

* A null field is left out.
* A null in an array, or as a value in a map, is written as ``null``.
* There are no blanks between values.
* Characters are escaped as in Jackson, bytes are written as Base64, and decimals keep their scale.

Planning rejects types that can't be encoded (``datasource/write/named_columns.py``).
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
from spark_kafka_sink.config.named_columns import AS_TO_JSON, JsonOptions
from spark_kafka_sink.records.column_plan import IntervalUnits
from spark_kafka_sink.records.gather import binary_of, data_of, list_items, offsets_of, valid_of
from spark_kafka_sink.records.json.base64_text import base64_column
from spark_kafka_sink.records.json.escapes import ESCAPES
from spark_kafka_sink.records.json.json_intervals import json_intervals, json_times_of_day
from spark_kafka_sink.records.json.json_numbers import json_floats, plain_decimals
from spark_kafka_sink.records.json.json_times import json_dates, json_timestamps
from spark_kafka_sink.records.json.plain_text import (
    is_bytes,
    is_string,
    joined,
    large,
    map_key_text,
    plain_binary,
    scalar,
    with_nulls_of,
)
from spark_kafka_sink.records.json.variant_text import is_variant, variant_column
from spark_kafka_sink.records.row_pieces import Mask, RowPieces
from spark_kafka_sink.records.varint import highest

_IS_ESCAPED = np.zeros(256, np.bool_)
_IS_ESCAPED[list(ESCAPES)] = True
_BACKSLASH = ord("\\")


#: The Arrow metadata of a struct's field that is written as ``null`` if the field is null.
NULL_IS_WRITTEN: Final = {b"kprod.null": b"written"}


@dataclass(frozen=True, slots=True)
class JsonColumn:
    """The JSON of each value of a column.

    * ``texts``: a binary or large_binary array with the JSON of each value. Nulls stay null.
    * ``needs_quotes``: true if the JSON values are strings, and ``texts`` has them without their
      quotes: ``abc`` for the JSON string ``"abc"``.
    """

    texts: pa.Array
    needs_quotes: bool = False


def json_objects(
    names: Sequence[str],
    columns: Sequence[pa.Array],
    rows: int,
    how: JsonOptions = AS_TO_JSON,
    units: Sequence[IntervalUnits] = (),
) -> pa.Array:
    """Builds a JSON object for each row, with a field for each of ``columns``. If the option
    ``ignore_null_fields`` in ``how`` is true, fields that are null in the row are left out.

    Returns a binary or large_binary array without nulls. ``units`` has the units of the intervals
    in each column.
    """
    units = units or [None] * len(columns)
    fields = [_json(column, how, of) for column, of in zip(columns, units, strict=True)]
    return _objects(names, fields, rows, how)


def json_value(
    column: pa.Array, how: JsonOptions = AS_TO_JSON, units: IntervalUnits = None
) -> pa.Array:
    """Encodes each value of ``column`` as JSON. Returns a binary or large_binary array. Nulls stay
    null. ``units`` are the units of the intervals in the column.
    """
    made = _json(column, how, units)
    if not made.needs_quotes:
        return made.texts
    return with_nulls_of(_quoted(made), made.texts)


def not_utf8(column: pa.Array) -> Mask:
    """The mask of the rows of a binary column that are not valid UTF-8. (A string in Spark can have
    invalid bytes.)
    """
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
    """Converts each value of a column to plain text. Returns a binary or large_binary array. Nulls
    stay null.

    Strings and bytes are unchanged. Numbers, booleans and dates become the text of Spark's cast to
    string.
    """
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    return plain_binary(json_dates(column) if pa.types.is_date(column.type) else _as_text(column))


def _as_text(column: pa.Array) -> pa.Array:
    types = pa.types
    kind = column.type
    written = types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    return column.cast(pa.string()) if written else column


def _json(column: pa.Array, how: JsonOptions, units: IntervalUnits) -> JsonColumn:
    types = pa.types
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    if types.is_null(kind) or column.null_count == len(column):
        return JsonColumn(pa.nulls(len(column), pa.binary()))
    if is_string(kind):
        return JsonColumn(_escaped(plain_binary(column)), needs_quotes=True)
    if types.is_integer(kind) or types.is_boolean(kind):
        return JsonColumn(plain_binary(column.cast(pa.string())))
    if types.is_decimal(kind):
        text = plain_decimals(column) if how.plain_decimals else column.cast(pa.string())
        return JsonColumn(plain_binary(text))
    if types.is_floating(kind):
        return JsonColumn(plain_binary(json_floats(column)))
    if is_variant(kind):
        return JsonColumn(variant_column(column, how.time_zone))
    if types.is_struct(kind):
        return JsonColumn(_struct(column, how, units))
    if types.is_map(kind):
        return JsonColumn(_map(column, how, units))
    if types.is_list(kind) or types.is_large_list(kind):
        return JsonColumn(_list(column, how, units))
    return JsonColumn(_text_in_quotes(column, how, units), needs_quotes=True)


def _text_in_quotes(column: pa.Array, how: JsonOptions, units: IntervalUnits) -> pa.Array:
    """The text that stands between the quotes in the JSON of each value. The column has a type
    whose JSON is a string without escapes, such as a date.
    """
    types, kind = pa.types, column.type
    if types.is_date(kind):
        return plain_binary(json_dates(column))
    if types.is_timestamp(kind):
        pattern = how.timestamp_ntz_format if kind.tz is None else how.timestamp_format
        return plain_binary(json_timestamps(column, pattern))
    if types.is_time64(kind):
        return plain_binary(json_times_of_day(column))
    if types.is_duration(kind) and isinstance(units, str):
        return plain_binary(json_intervals(column, units))
    if is_bytes(kind):
        return base64_column(plain_binary(column))
    raise IllegalStateError(f"planning let a column of Arrow's type {kind} pass, for JSON")


def _inner(units: IntervalUnits, index: int) -> IntervalUnits:
    return units[index] if isinstance(units, tuple) else None


def _struct(column: pa.Array, how: JsonOptions, units: IntervalUnits) -> pa.Array:
    names = [field.name for field in column.type]
    fields = [
        _with_null(_json(column.field(i), how, _inner(units, i)), column.type.field(i))
        for i in range(len(names))
    ]
    return with_nulls_of(_objects(names, fields, len(column), how), column)


def _with_null(made: JsonColumn, field: pa.Field) -> JsonColumn:
    """If the metadata of ``field`` requires that nulls of this field are written, replaces the
    nulls by the text ``null``.
    """
    written = NULL_IS_WRITTEN.items() <= (field.metadata or {}).items()
    return JsonColumn(_quoted(made)) if written and made.texts.null_count else made


def _list(column: pa.Array, how: JsonOptions, units: IntervalUnits) -> pa.Array:
    items, offsets = list_items(column)
    return joined(column, offsets, _quoted(_json(items, how, _inner(units, 0))), b"[", b"]")


def _map(column: pa.Array, how: JsonOptions, units: IntervalUnits) -> pa.Array:
    entries, offsets = list_items(column)
    key, value = entries.field(0), _quoted(_json(entries.field(1), how, _inner(units, 1)))
    names = map_key_text(key)
    if is_string(key.type) or pa.types.is_nested(key.type) or pa.types.is_dictionary(key.type):
        names = _escaped(names)
    names = _quoted(JsonColumn(names, needs_quotes=True))
    texts = pc.binary_join_element_wise(names, value, scalar(b":"))
    return joined(column, offsets, texts, b"{", b"}")


def _quoted(column: JsonColumn) -> pa.Array:
    """The complete JSON of each value: adds quotes if ``column.needs_quotes`` is true, and replaces
    nulls by ``null``.
    """
    texts = large(column.texts)
    if column.needs_quotes:
        quote = scalar(b'"')
        texts = pc.binary_join_element_wise(quote, texts, quote, scalar(b""))
    return pc.fill_null(texts, scalar(b"null")) if texts.null_count else texts


def _objects(
    names: Sequence[str], fields: Sequence[JsonColumn], rows: int, how: JsonOptions
) -> pa.Array:
    """Builds the JSON object ``{"name":value,...}`` of each row from pieces. Each field adds two
    pieces: the text before the value, and the value. The last piece closes the object.
    """
    if not how.ignore_null_fields:
        fields = [
            JsonColumn(_quoted(field)) if field.texts.null_count else field for field in fields
        ]
    there = [
        (name, field)
        for name, field in zip(names, fields, strict=True)
        if field.texts.null_count < len(field.texts)
    ]
    pieces = RowPieces(rows)
    started: Flags = False
    open_quote: Flags = False
    # The text before a value depends on three facts about the row: whether this value is present,
    # whether an earlier value is present, and whether the closing quote of the previous value is
    # still missing.
    for name, field in there:
        valid = valid_of(field.texts)
        here: Flags = True if valid is None else valid
        pieces.add_choice(
            [_before(name, field, bits) for bits in range(8)],
            _bits(valid=here, started=started, open_quote=open_quote),
        )
        pieces.add_column(field.texts)
        open_quote = here if field.needs_quotes else False
        started = True if started is True or here is True else np.logical_or(started, here)
    pieces.add_choice(
        [(b'"' if bits & 4 else b"") + (b"}" if bits & 2 else b"{}") for bits in range(8)],
        _bits(valid=False, started=started, open_quote=open_quote),
    )
    return binary_of(*pieces.joined())


#: A bool for each row, or one bool for all rows.
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
        text += b'"' if field.needs_quotes else b""
    return text


def _escaped_name(name: str) -> bytes:
    data = name.encode("utf-8", "replace")
    return b"".join(ESCAPES.get(byte, bytes([byte])) for byte in data)


def _escaped(column: pa.Array) -> pa.Array:
    """Converts each string to the text of a JSON string without quotes: in UTF-8, with Jackson's
    escapes.
    """
    offsets = offsets_of(column)
    data = data_of(column)[int(offsets[0]) : int(offsets[-1])]
    column = _as_utf8(column)
    escaped = data[_IS_ESCAPED.take(data)]
    for byte in sorted(set(np.unique(escaped).tolist()), key=lambda byte: byte != _BACKSLASH):
        column = pc.replace_substring(column, bytes([byte]), ESCAPES[byte])
    return column


def _as_utf8(column: pa.Array) -> pa.Array:
    """Converts strings to valid UTF-8. A string in Spark can have invalid bytes. These bytes are
    replaced as Java replaces them.
    """
    if not not_utf8(column).any():
        return column
    rows = [None if row is None else _as_java_reads(row) for row in column.to_pylist()]
    return pa.array(rows, pa.large_binary())


def _as_java_reads(data: bytes) -> bytes:
    return _SURROGATE.sub(b"\xef\xbf\xbd", data).decode("utf-8", "replace").encode()


#: A surrogate that is encoded as UTF-8. This is invalid. Java replaces the three bytes by one
#: replacement character, and Python by three.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
