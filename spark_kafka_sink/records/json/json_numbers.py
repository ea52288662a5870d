"""Encodes columns of floating point numbers as Java does: ``1.0``, ``1.0E10``, ``"NaN"``. Also
converts decimals to text without an exponent.

A floating point number is written with the fewest digits from which a parser gets the same number,
and with at least two digits. Java's ``Double.toString`` does the same since JDK 19. Older JDKs
write more digits for a few numbers, such as 1.9999999999999998E23 for 2.0E23.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: Arrow's text of a finite number: sign, integer digits, fraction digits, exponent.
_PARTS = r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]+))?(?:e(?P<exponent>[+-]?[0-9]+))?$"
#: Java's ``Double.toString`` writes the numbers between these limits without an exponent.
_LEAST_PLAIN, _LEAST_SCIENTIFIC = 1e-3, 1e7
#: A number below this multiple of the least positive number can have a text with only one digit.
#: Java then writes the two digits that are closest to the number.
_LEAST_OF_ONE_DIGIT = 1000


def json_floats(column: pa.Array) -> pa.Array:
    """Converts each float or double to its JSON. Returns a string array. Nulls stay null. Infinity
    and NaN are JSON strings, as Jackson writes them.
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
    tiny = (size < _LEAST_OF_ONE_DIGIT * np.finfo(numbers.dtype).smallest_subnormal) & (size > 0)
    text = _put(text, tiny, partial(_digits_of_tiny, numbers[tiny]))
    text = _put(text, finite & ~plain, _scientific)
    for odd, name in (
        (np.isnan(numbers) & valid, '"NaN"'),
        (numbers == np.inf, '"Infinity"'),
        (numbers == -np.inf, '"-Infinity"'),
    ):
        if odd.any():
            text = pc.if_else(pa.array(odd), name, text)
    return text


def java_digits(number: np.floating[Any] | float, text: str) -> str:
    """The digits that Java writes for a finite ``number``. ``text`` is the shortest decimal text of
    the number.

    Java writes at least two digits. If one digit would be enough, Java writes the two digits that
    are closest to the exact number: 4.9E-324, not 5E-324.
    """
    two = f"{float(number):.1e}"
    return two if type(number)(two) == number else text


def plain_decimals(column: pa.Array) -> pa.Array:
    """Converts decimals to text without an exponent, such as ``0.00000010``. The text has all
    digits of the decimal's scale. Nulls stay null.

    Returns a string array. Java's function is ``BigDecimal.toPlainString``.
    """
    precision, scale = column.type.precision, column.type.scale
    if scale <= 0:
        return column.cast(pa.string())
    digits = column.view(pa.decimal128(precision, 0)).cast(pa.string())
    sign = pc.if_else(pc.starts_with(digits, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    whole, part = (
        pc.utf8_slice_codeunits(digits, 0, -scale),
        pc.utf8_slice_codeunits(digits, -scale),
    )
    return pc.binary_join_element_wise(sign, whole, ".", part, "")


def _put(
    text: pa.Array, where: npt.NDArray[np.bool_], change: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    """Changes the texts of the rows in the mask ``where``: ``change`` gets these texts and returns
    the new texts.
    """
    if not where.any():
        return text
    mask = pa.array(where)
    return pc.replace_with_mask(text, mask, change(text.filter(mask)))


def _digits_of_tiny(numbers: npt.NDArray[np.floating[Any]], text: pa.Array) -> pa.Array:
    """Replaces the texts of very small numbers by texts with the digits that Java writes
    (:func:`java_digits`). ``numbers`` are the numbers of ``text``. Such numbers are rare, so they
    are converted one by one.
    """
    found = zip(numbers, text.to_pylist(), strict=True)
    return pa.array([java_digits(number, shown) for number, shown in found], text.type)


def _scientific(text: pa.Array) -> pa.Array:
    """Converts numbers to Java's scientific notation: ``1.5e-7``, ``0.0001`` and ``123456789``
    become ``1.5E-7``, ``1.0E-4`` and ``1.23456789E8``.
    """
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
