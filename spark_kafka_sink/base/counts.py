"""Merges the counts of several reports into one count: the sum or the largest of the counts.

Owns: the choice between sum and largest. The definition of each field contains this choice. Never:
the meaning of a count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Final

#: The metadata of a count whose merged value is the largest value, and not the sum:
#: ``max_queue_ms: int = field(default=0, metadata=LARGEST)``.
LARGEST: Final[Mapping[str, bool]] = MappingProxyType({"largest": True})


def merged_counts(of: type, reports: Sequence[object]) -> dict[str, int]:
    """The merged counts of ``reports`` by name. Each report is an object of the dataclass ``of``.

    The counts are the fields of ``of`` with the default 0. The merged value is the sum, or the
    largest value if the field is declared with :data:`LARGEST`. It is 0 without reports.
    """
    counts: dict[str, int] = {}
    for one in fields(of):
        if one.default == 0:
            values = [getattr(report, one.name) for report in reports]
            is_largest = "largest" in one.metadata
            counts[one.name] = max(values, default=0) if is_largest else sum(values)
    return counts
