"""Merges the counts of several reports into one count: the sum or the largest of the counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Final

#: The metadata of a field, if the merged value of its count is the largest value, and not the sum:
#: ``max_queue_ms: int = field(default=0, metadata=LARGEST)``.
LARGEST: Final[Mapping[str, bool]] = MappingProxyType({"largest": True})


def merged_counts(of: type, reports: Sequence[object]) -> dict[str, int]:
    """Merges the counts of ``reports``. Returns a dict from the name of each count to its merged
    value.

    ``of`` is the dataclass of the reports. A count is a field of ``of`` whose default is the int 0.
    The merged value is the largest value if the field is declared with :data:`LARGEST`, otherwise
    the sum. If ``reports`` is empty, each merged value is 0.
    """
    counts: dict[str, int] = {}
    for one in fields(of):
        if type(one.default) is int and one.default == 0:
            values = [getattr(report, one.name) for report in reports]
            is_largest = "largest" in one.metadata
            counts[one.name] = max(values, default=0) if is_largest else sum(values)
    return counts
