"""The values of Arrow columns as encoders of formats read them.

Owns: what the columnar encoders share. Never: bytes of a format.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.gather import data_of, offsets_of
from spark_kafka_sink.records.row_pieces import Mask
from spark_kafka_sink.records.varint import highest


def fixed_width(
    column: pa.Array, dtype: np.dtype[np.generic], valid: Mask | None
) -> npt.NDArray[np.integer]:
    """The numbers of a column, 0 for nulls."""
    found = np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)
    return found if valid is None else np.where(valid, found, dtype.type(0))


def list_items(column: pa.Array, valid: Mask | None) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The items of a list's or a map's rows, and the offsets of the rows in them."""
    if valid is not None and (np.diff(offsets_of(column))[~valid] != 0).any():
        column = column.take(pa.array(np.arange(len(column))))  # without what nulls cover
    offsets = offsets_of(column).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    # Not .keys and .items of a map, which begin at the first row whatever the slice is.
    return column.values.slice(first, last - first), offsets - first


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
