"""Merges the counts of several reports into one count: the sum or the largest of the counts.

Owns: the choice between sum and largest. The definition of each field contains this choice. Never:
the meaning of a count.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, fields
from types import MappingProxyType
from typing import Any, Final

#: The metadata of a count whose merged value is the largest value, and not the sum:
#: ``max_queue_ms: int = field(default=0, metadata=LARGEST)``.
LARGEST: Final[Mapping[str, Callable[[int, int], int]]] = MappingProxyType({"merge": max})


def count_fields(of: type[Any]) -> tuple[Field[Any], ...]:
    """The counts of a dataclass: its fields with the default 0."""
    return tuple(one for one in fields(of) if one.default == 0)


def merged(count: Field[Any], values: Iterable[int]) -> int:
    """Returns the sum of ``values``. If the field ``count`` is declared with :data:`LARGEST`,
    returns the largest of ``values`` instead. If there are no values, returns 0.
    """
    merge: Callable[[int, int], int] = count.metadata.get("merge", operator.add)
    total = 0
    for value in values:
        total = merge(total, value)
    return total
