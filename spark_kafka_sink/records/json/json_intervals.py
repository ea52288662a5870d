"""Encodes columns of times of day (TIME) and of day-time intervals as Spark's ``to_json`` does.

``json_text`` adds the quotes, and encodes the other types.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_NS_PER_US = 1_000
#: The units of an interval, in order. Each unit has the text before its number, and its length in
#: microseconds.
_UNITS = {
    "DAY": ("", 86_400_000_000),
    "HOUR": (" ", 3_600_000_000),
    "MINUTE": (":", 60_000_000),
    "SECOND": (":", 1_000_000),
}


def json_times_of_day(column: pa.Array) -> pa.Array:
    """The text of each time in a time64 array, such as ``12:30:00.5``. Nulls stay null."""
    numbers = column.view(pa.int64())
    if column.type.unit == "ns":
        numbers = pc.divide(numbers, _NS_PER_US)
    whole = numbers.view(pa.timestamp("us")).cast(pa.string())
    return _without_zeros(pc.utf8_slice_codeunits(whole, len("1970-01-01 ")))


def json_intervals(column: pa.Array, units: str) -> pa.Array:
    """The text of each interval in a duration array of microseconds. Nulls stay null.

    If ``units`` is DAY TO SECOND, an example of a text is ``INTERVAL '1 02:03:04.5' DAY TO
    SECOND``. Spark's function is ``IntervalUtils.toDayTimeIntervalString``.
    """
    numbers = pc.fill_null(column.view(pa.int64()), 0).to_numpy()
    # The absolute value of the least number fits into 64 bits without a sign only.
    rest = np.abs(numbers).view(np.uint64)
    first, _, last = units.partition(" TO ")
    names = list(_UNITS)
    used = names[names.index(first) : names.index(last or first) + 1]
    parts: list[pa.Array | str] = ["INTERVAL '", pc.if_else(pa.array(numbers < 0), "-", "")]
    for name in used:
        before, micros = _UNITS[name]
        count, rest = rest // np.uint64(micros), rest % np.uint64(micros)
        if name != first:
            parts.append(before)
        parts.append(_digits(count, 1 if name == "DAY" else 2))
    if used[-1] == "SECOND":
        fraction = pc.binary_join_element_wise(".", _digits(rest, 6), "")
        parts.append(_without_zeros(fraction))
    text = pc.binary_join_element_wise(*parts, f"' {units}", "")
    return pc.if_else(column.is_valid(), text, None) if column.null_count else text


def _digits(numbers: npt.NDArray[np.uint64], width: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")


def _without_zeros(text: pa.Array) -> pa.Array:
    """Removes the zeros at the end of a fraction, and a fraction that consists of zeros."""
    return pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")
