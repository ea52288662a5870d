"""Encodes binary columns as Base64 (RFC 4648, section 4), all rows in one pass.

The result is text without JSON's quotes: ``json_text`` adds the quotes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.gather import (
    binary_of,
    data_of,
    ends_of,
    lengths_of,
    offsets_of,
    valid_of,
)

_ALPHABET = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
_PAD = ord("=")


def base64_column(column: pa.Array) -> pa.Array:
    """Converts each value of a binary array to Base64 text with padding. Returns a large_binary
    array. Nulls stay null.
    """
    lengths = lengths_of(column)
    groups = (lengths + 2) // 3
    first_group = ends_of(groups)
    # Three bytes a group, zeros where a row's last group has fewer.
    padded = np.zeros(int(first_group[-1]) * 3, np.uint8)
    where = np.repeat(first_group[:-1] * 3 - ends_of(lengths)[:-1], lengths)
    padded[where + np.arange(len(where))] = _bytes_of(column, lengths)
    one, two, three = padded.reshape(-1, 3).T
    sextets = np.stack(
        [one >> 2, (one & 3) << 4 | two >> 4, (two & 15) << 2 | three >> 6, three & 63], axis=1
    )
    text = _ALPHABET.take(sextets)
    last = first_group[1:] - 1
    text[last[lengths % 3 == 1], 2:] = _PAD
    text[last[lengths % 3 == 2], 3] = _PAD
    return binary_of(first_group * 4, pa.py_buffer(text.reshape(-1)), valid_of(column))


def _bytes_of(column: pa.Array, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Joins the bytes of all values. In Arrow, a null can have bytes: these bytes are left out."""
    offsets = offsets_of(column)
    data = data_of(column)
    if int(lengths.sum()) == int(offsets[-1]) - int(offsets[0]):
        return data[int(offsets[0]) : int(offsets[-1])]
    starts = offsets[:-1].astype(np.int64) - ends_of(lengths)[:-1]
    return data[np.repeat(starts, lengths) + np.arange(int(lengths.sum()))]
