"""Columns of floating point numbers as Java writes them: ``1.0``, ``1.0E10``, ``"NaN"``.

Owns: :func:`json_floats`. Never: other types (``json_text``).

The digits are the fewest that give the same number back (``Double.toString`` since JDK 19; older
ones write more for a few numbers, such as 4.9E-324 for 5E-324).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: Arrow's text of a finite number: sign, integer digits, fraction digits, exponent.
_PARTS = r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]+))?(?:e(?P<exponent>[+-]?[0-9]+))?$"
#: ``Double.toString``: between these without an exponent.
_LEAST_PLAIN, _LEAST_SCIENTIFIC = 1e-3, 1e7


def json_floats(column: pa.Array) -> pa.Array:
    """Float or double numbers as JSON, a string array; what is not finite is a JSON string, as
    Jackson writes it. Nulls stay.
    """
    numbers = column.to_numpy(zero_copy_only=False)
    text = column.cast(pa.string())
    size = np.abs(numbers)
    with np.errstate(invalid="ignore"):
        plain = (size >= _LEAST_PLAIN) & (size < _LEAST_SCIENTIFIC) | (size == 0)
        whole = plain & (np.trunc(numbers) == numbers)
    if whole.any():
        text = pc.if_else(pa.array(whole), pc.binary_join_element_wise(text, ".0", ""), text)
    if plain.all():
        return text
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    finite = np.isfinite(numbers)
    text = _put(text, finite & ~plain, _scientific)
    for odd, name in (
        (np.isnan(numbers) & valid, '"NaN"'),
        (numbers == np.inf, '"Infinity"'),
        (numbers == -np.inf, '"-Infinity"'),
    ):
        if odd.any():
            text = pc.if_else(pa.array(odd), name, text)
    return text


def _put(
    text: pa.Array, where: npt.NDArray[np.bool_], change: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    """``text`` with ``change`` of those rows in place of them."""
    if not where.any():
        return text
    mask = pa.array(where)
    return pc.replace_with_mask(text, mask, change(text.filter(mask)))


def _scientific(text: pa.Array) -> pa.Array:
    """``1.5e-7``, ``0.0001`` and ``123456789`` as ``1.5E-7``, ``1.0E-4`` and ``1.23456789E8``."""
    parts = pc.extract_regex(text, _PARTS)
    whole, exponent = parts.field("whole"), parts.field("exponent")
    digits = pc.binary_join_element_wise(whole, pc.fill_null(parts.field("part"), ""), "")
    significant = pc.utf8_ltrim(digits, "0")
    zeros = pc.subtract(pc.binary_length(digits), pc.binary_length(significant))
    shift = pc.subtract(pc.subtract(pc.binary_length(whole), 1), zeros)
    written = pc.if_else(pc.equal(exponent, ""), "0", pc.utf8_ltrim(exponent, "+"))
    power = pc.add(written.cast(pa.int32()), shift).cast(pa.string())
    significant = pc.utf8_rtrim(significant, "0")
    rest = pc.utf8_slice_codeunits(significant, 1)
    return pc.binary_join_element_wise(
        parts.field("sign"),
        pc.utf8_slice_codeunits(significant, 0, 1),
        ".",
        pc.if_else(pc.equal(rest, ""), "0", rest),
        "E",
        power,
        "",
    )
