"""Payloads of many rows, and the rows that have none because they can't be written.

Owns: :class:`Payloads` and :class:`Refusal`. Never: why a row is refused (``records/formats/``),
what becomes of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Refusal:
    """``rows`` is true for the refused ones, ``column`` the path to the value, ``reason`` the rest
    of the sentence, without the value.
    """

    rows: npt.NDArray[np.bool_]
    column: str
    reason: str


@dataclass(frozen=True, slots=True)
class Payloads:
    """A (large) binary array with an entry for each row; those of refused rows mean nothing."""

    array: pa.Array
    refusals: tuple[Refusal, ...] = ()
