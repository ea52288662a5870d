"""Converts columns to text without JSON's quotes and escapes.

:func:`plain_binary` converts Arrow's various types of strings and bytes to binary.
:func:`map_key_text` makes the text of the keys of maps. :func:`joined` joins the items of each
list. ``json_text`` adds quotes and escapes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.records.gather import list_items
from spark_kafka_sink.records.json.base64_text import base64_column
from spark_kafka_sink.records.json.json_numbers import json_floats

_types = pa.types


def plain_binary(column: pa.Array) -> pa.Array:
    """Converts an array of strings or bytes to binary or large_binary. The array is allowed to have
    a dictionary, to have views, or to consist only of nulls.
    """
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if _types.is_null(column.type):
        return pa.nulls(len(column), pa.binary())
    if _types.is_binary(column.type) or _types.is_large_binary(column.type):
        return column
    if _types.is_large_string(column.type):
        return column.cast(pa.large_binary())
    if _types.is_string(column.type) or _types.is_fixed_size_binary(column.type):
        return column.cast(pa.binary())
    return column.cast(pa.large_binary())  # views may hold more than 2 GiB together


def map_key_text(column: pa.Array) -> pa.Array:
    """Converts each value to the text that Spark's ``to_json`` writes for this value as a key of a
    map. Returns a binary or large_binary array. Nulls stay null.

    As keys of a map, values of these types have another text than as JSON values:

    * date: the number of days since 1970
    * timestamp, interval: the number of microseconds
    * time: the number of nanoseconds
    * struct, array: a text such as ``[1,x,null]``

    Exception: bytes become Base64. ``to_json`` writes a different text for the same bytes in each
    run.
    """
    # ``to_json`` writes the text of Spark's internal form of the value.
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    if _types.is_null(kind) or is_string(kind):
        return plain_binary(column)
    if is_bytes(kind):
        return base64_column(plain_binary(column))
    if _types.is_integer(kind) or _types.is_boolean(kind) or _types.is_decimal(kind):
        return plain_binary(column.cast(pa.string()))
    if _types.is_date(kind):
        return plain_binary(column.cast(pa.int32()).cast(pa.string()))
    if _types.is_timestamp(kind) or _types.is_duration(kind) or _types.is_time64(kind):
        return plain_binary(column.view(pa.int64()).cast(pa.string()))
    if _types.is_floating(kind):
        return plain_binary(pc.utf8_trim(json_floats(column), '"'))
    if _types.is_struct(kind):
        fields = [_or_null(column.field(index)) for index in range(kind.num_fields)]
        inner = pc.binary_join_element_wise(*fields, scalar(b","))
        text = pc.binary_join_element_wise(scalar(b"["), inner, scalar(b"]"), scalar(b""))
        return with_nulls_of(text, column)
    if _types.is_list(kind) or _types.is_large_list(kind):
        items, offsets = list_items(column)
        return joined(column, offsets, _or_null(items), b"[", b"]")
    raise IllegalStateError(f"planning let a key of Arrow's type {kind} pass, for JSON")


def _or_null(column: pa.Array) -> pa.Array:
    return pc.fill_null(large(map_key_text(column)), scalar(b"null"))


def is_string(kind: pa.DataType) -> bool:
    """True for Arrow's types of text."""
    return bool(
        _types.is_string(kind) or _types.is_large_string(kind) or _types.is_string_view(kind)
    )


def is_bytes(kind: pa.DataType) -> bool:
    """True for Arrow's types of bytes."""
    return bool(
        _types.is_binary(kind)
        or _types.is_large_binary(kind)
        or _types.is_binary_view(kind)
        or _types.is_fixed_size_binary(kind)
    )


def joined(
    column: pa.Array, offsets: npt.NDArray[np.int64], texts: pa.Array, begin: bytes, end: bytes
) -> pa.Array:
    """Joins the items of each row of a list or map column with commas, between ``begin`` and
    ``end``. Nulls in ``column`` stay null.

    ``texts`` has the texts of all items. The items of row i are
    ``texts[offsets[i]:offsets[i + 1]]``.
    """
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), texts)
    if column.null_count:
        lists = pc.if_else(column.is_valid(), lists, None)
    return pc.binary_join_element_wise(
        scalar(begin), pc.binary_join(lists, scalar(b",")), scalar(end), scalar(b"")
    )


def large(column: pa.Array) -> pa.Array:
    """Converts the column to large_binary."""
    return column if _types.is_large_binary(column.type) else column.cast(pa.large_binary())


def scalar(data: bytes) -> pa.Scalar:
    """Converts the bytes to a large_binary scalar."""
    return pa.scalar(data, pa.large_binary())


def with_nulls_of(texts: pa.Array, column: pa.Array) -> pa.Array:
    """Sets ``texts`` to null in each row in which ``column`` is null."""
    return pc.if_else(column.is_valid(), texts, None) if column.null_count else texts
