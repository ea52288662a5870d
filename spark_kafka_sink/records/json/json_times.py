"""Columns of dates and timestamps as ``to_json`` writes them.

Owns: :func:`json_dates` and :func:`json_timestamps`: ``yyyy-MM-dd`` and
``yyyy-MM-dd'T'HH:mm:ss.SSS``, with the offset of the session's time zone, which Spark puts into the
type of the Arrow column. Never: other types (``json_text``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import ConfigError, safe_text

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
#: Days and milliseconds of 10000-01-01: from then on java.time writes a plus before the year.
_DAY_MS = 86_400_000
_FIVE_DIGITS = {"date": 2_932_897, "ms": 2_932_897 * _DAY_MS}
#: Days from 1970 to years that Arrow may have no text for: it writes "<value out of range".
_FAR_DAYS = 11_000_000
_ALWAYS_UTC = frozenset({"UTC", "Z", "GMT", "Etc/UTC", "+00:00", "GMT+0", "UT"})


def json_dates(column: pa.Array) -> pa.Array:
    """A date32 array as text; nulls stay."""
    days = pc.fill_null(column.cast(pa.int32()), 0).to_numpy().astype(np.int64)
    text = _with_far(column.cast(pa.string()), days.astype("M8[D]"), abs(days) >= _FAR_DAYS)
    return _with_plus(text, days >= _FIVE_DIGITS["date"])


def json_timestamps(column: pa.Array) -> pa.Array:
    """A timestamp array as text; one without a time zone (TIMESTAMP_NTZ) has no offset. Nulls stay.

    Raises ConfigError when this machine does not have the time zone.
    """
    zone = column.type.tz
    local = column if zone is None or zone in _ALWAYS_UTC else _local(column, zone)
    unit = _PER_SECOND[column.type.unit]
    ticks = _numbers(local)
    millis = ticks * 1000 if unit == 1 else ticks // (unit // 1000)
    text = pa.array(millis).view(pa.timestamp("ms")).cast(pa.string())
    far = abs(millis // _DAY_MS) >= _FAR_DAYS
    text = _with_far(text, millis.astype("M8[ms]"), far)
    text = pc.replace_substring(text, " ", "T", max_replacements=1)
    text = _with_plus(text, millis >= _FIVE_DIGITS["ms"])
    if zone is not None:
        text = pc.binary_join_element_wise(text, _offsets((ticks - _numbers(column)) // unit), "")
    return pc.if_else(column.is_valid(), text, None) if column.null_count else text


def _local(column: pa.Array, zone: str) -> pa.Array:
    try:
        return pc.local_timestamp(column)
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"time zone '{safe_text(zone)}', the session's, is not known on this machine, and"
            " timestamps in JSON are written in it",
            hint="set spark.sql.session.timeZone to UTC or to a name of the IANA data base, and"
            " install that (the package tzdata) where tasks run",
        ) from error


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    numbers = column.view(pa.int64())
    found: npt.NDArray[np.int64] = pc.fill_null(numbers, 0).to_numpy()
    return found


def _offsets(seconds: npt.NDArray[np.int64]) -> pa.Array | pa.Scalar:
    """Each as ``+01:00``, or ``Z``; an old local mean time has seconds, too."""
    used, which = np.unique(seconds, return_inverse=True)
    texts = [_offset(int(one)) for one in used]
    if len(texts) == 1:
        return pa.scalar(texts[0])
    return pa.array(texts).take(pa.array(which))


def _offset(seconds: int) -> str:
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
