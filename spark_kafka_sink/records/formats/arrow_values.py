"""The values of Arrow columns as encoders of formats read them.

Owns: what the columnar encoders share. Never: bytes of a format.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.gather import offsets_of
from spark_kafka_sink.records.row_pieces import Mask


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
