"""Payloads of many rows, and the rows that have none because they can't be written.

Owns: :class:`Payloads` and :class:`Refusal`. Never: why a row is refused (``records/formats/``),
what becomes of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import DataError, safe_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Refusal:
    """``rows`` is true for the refused ones, ``column`` the path to the value, ``reason`` the rest
    of the sentence, without the value. ``part``: the value or the key, which these rows lack.
    """

    rows: npt.NDArray[np.bool_]
    column: str
    reason: str
    part: str = "value"
    kind: Kind = Kind.REFUSED_BY_SCHEMA

    @property
    def sentence(self) -> str:
        """For all of its rows."""
        column = safe_text(self.column, 200)
        return f"column {column}: it {self.reason}, so the row has no {self.part}"

    def error(self) -> DataError:
        """For its first row."""
        return DataError(
            f"column {safe_text(self.column, 200)}, row {int(self.rows.argmax())} of the Arrow"
            f" batch: it {self.reason}, so the row has no {self.part}",
            hint="correct the value or filter such rows out before they are written, or write with"
            " a schema that accepts it",
            kind=self.kind,
        )


@dataclass(frozen=True, slots=True)
class Payloads:
    """A (large) binary array with an entry for each row; those of refused rows mean nothing."""

    array: pa.Array
    refusals: tuple[Refusal, ...] = ()
