"""Encodes columns of dates and timestamps as Spark's ``to_json`` does.

The default formats are ``yyyy-MM-dd`` and ``yyyy-MM-dd'T'HH:mm:ss.SSS`` with the zone offset.
Timestamps are written in the time zone of Spark's session. Spark puts this time zone into the type
of the Arrow column. ``json_text`` adds the quotes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.time_zones import time_zone
from spark_kafka_sink.config.timestamp_pattern import Part, pattern_parts
from spark_kafka_sink.records.json.zone_offsets import Offsets, offsets_at

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
#: The date 10000-01-01 in days and in milliseconds since 1970. From this date on, java.time writes
#: a plus before the year.
_DAY_MS = 86_400_000
_FIVE_DIGITS = {"date": 2_932_897, "ms": 2_932_897 * _DAY_MS}
#: A date that is as many days before or after 1970 has possibly no text in Arrow, which then writes
#: "<value out of range".
_FAR_DAYS = 11_000_000


def json_dates(column: pa.Array) -> pa.Array:
    """The text of each date in a date32 array, such as ``2026-01-31``. Nulls stay null."""
    days = pc.fill_null(column.cast(pa.int32()), 0).to_numpy().astype(np.int64)
    text = _with_far(column.cast(pa.string()), days.astype("M8[D]"), abs(days) >= _FAR_DAYS)
    return _with_plus(text, days >= _FIVE_DIGITS["date"])


def json_timestamps(column: pa.Array, pattern: str | None = None) -> pa.Array:
    """The text of each timestamp of a column. Nulls stay null. The text of a TIMESTAMP_NTZ has no
    zone offset.

    ``pattern`` is a pattern of ``config/timestamp_pattern.py``, or None for the format of
    ``to_json``. Raises ConfigError if this machine does not have the time zone.
    """
    unit = _PER_SECOND[column.type.unit]
    numbers = column.view(pa.int64())
    # A null gets an instant of the same years, so that no table of another year is made.
    ticks = pc.fill_null(numbers, pc.coalesce(pc.min(numbers), 0)).to_numpy()
    millis = ticks * 1000 if unit == 1 else ticks // (unit // 1000)
    found: Offsets | None = None
    if column.type.tz is not None:
        found = offsets_at(time_zone(column.type.tz), millis)
        millis = millis + found.of_rows() * 1000
    text = pa.array(millis).view(pa.timestamp("ms")).cast(pa.string())
    far = abs(millis // _DAY_MS) >= _FAR_DAYS
    text = _with_far(text, millis.astype("M8[ms]"), far)
    text = pc.replace_substring(text, " ", "T", max_replacements=1)
    text = _with_plus(text, millis >= _FIVE_DIGITS["ms"])
    if pattern is not None:
        micros = ticks % unit * 1_000_000 // unit
        parts = pattern_parts(pattern, has_zone=found is not None)
        made = [_of_pattern(part, text, micros, found) for part in parts]
        # The first argument is an array, because the parts can all be scalars.
        text = pc.binary_join_element_wise(pc.utf8_slice_codeunits(text, 0, 0), *made, "")
    elif found is not None:
        text = pc.binary_join_element_wise(text, _offsets(found, _offset), "")
    return pc.if_else(column.is_valid(), text, None) if column.null_count else text


#: The position of a letter's part in ``2026-01-31T12:00:00.123``, from the end: a year may be
#: longer.
_PLACES = {
    "M": (-18, -16), "d": (-15, -13), "H": (-12, -10), "m": (-9, -7), "s": (-6, -4),
}  # fmt: skip
_YEAR_ENDS = -19


def _of_pattern(
    part: Part, text: pa.Array, micros: npt.NDArray[np.int64], offsets: Offsets | None
) -> pa.Array | pa.Scalar:
    """The text of each timestamp for one part of a pattern, such as ``yyyy``. If all rows have the
    same text, the result is a scalar.
    """
    if part.count == 0:
        return pa.scalar(part.text)
    if part.text in "yu":
        return pc.utf8_slice_codeunits(text, 0, _YEAR_ENDS)
    if part.text == "S":
        digits = pc.utf8_lpad(pa.array(micros).cast(pa.string()), 6, "0")
        return pc.utf8_rpad(pc.utf8_slice_codeunits(digits, 0, part.count), part.count, "0")
    if part.text in "Xx":
        assert offsets is not None, "the pattern was checked"
        return _offsets(offsets, partial(_short_offset, part))
    found = pc.utf8_slice_codeunits(text, *_PLACES[part.text])
    return found if part.count > 1 else found.cast(pa.int8()).cast(pa.string())


def _short_offset(part: Part, seconds: int) -> str:
    """Converts a zone offset of ``seconds`` seconds to text, for the letters X or x of a pattern.
    The text has only hours and minutes.
    """
    hours, minutes = divmod(abs(seconds) // 60, 60)
    if hours == minutes == 0 and part.text == "X":
        return "Z"
    sign = "-" if seconds < 0 and (hours or minutes) else "+"
    shown = minutes > 0 or part.count > 1
    return f"{sign}{hours:02}{':' * (part.count > 2)}{f'{minutes:02}' * shown}"


def _offsets(offsets: Offsets, write: Callable[[int], str]) -> pa.Array | pa.Scalar:
    """The text of each row's zone offset. ``write`` converts an offset in seconds to text. If all
    rows have the same offset, the result is a scalar.
    """
    texts = [write(int(one)) for one in offsets.seconds]
    if offsets.which is None:
        return pa.scalar(texts[0])
    return pa.array(texts).take(pa.array(offsets.which))


def _offset(seconds: int) -> str:
    """Converts a zone offset of ``seconds`` seconds to text: ``+01:00``, or ``Z`` for zero. The
    text of an offset from before the introduction of time zones also has seconds.
    """
    if seconds == 0:
        return "Z"
    minutes, rest = divmod(abs(seconds), 60)
    text = f"{'-' if seconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{rest:02}" if rest else text


def _with_far(
    text: pa.Array, values: npt.NDArray[np.datetime64], far: npt.NDArray[np.bool_]
) -> pa.Array:
    if not far.any():
        return text
    written = pa.array(np.datetime_as_string(values[far]).tolist(), text.type)
    return pc.replace_with_mask(text, pa.array(far), written)


def _with_plus(text: pa.Array, late: npt.NDArray[np.bool_]) -> pa.Array:
    if not late.any():
        return text
    return pc.if_else(pa.array(late), pc.binary_join_element_wise("+", text, ""), text)
