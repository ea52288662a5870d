"""What a handful of noisy runs can tell: medians, and the median of paired ratios."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of ratios taken round by round, with a distribution-free interval.

    ``low`` and ``high`` are order statistics of the ratios: for nine rounds the second and the
    eighth, which hold the true median with 96 % confidence whatever the distribution is.
    """

    median: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.median:.2f}x ({self.low:.2f}-{self.high:.2f}, n={self.rounds})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Ratio ours / theirs of runs made in turn (the n-th with the n-th)."""
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    n = len(ratios)
    cut, _ = _cut(n)
    return Ratio(statistics.median(ratios), ratios[cut], ratios[n - 1 - cut], n)


def level(rounds: int) -> float:
    """The confidence level of the interval of a :class:`Ratio`: 0.96 for nine rounds."""
    return 1 - 2 * _cut(rounds)[1]


def _cut(n: int) -> tuple[int, float]:
    """How many order statistics may be cut on each side at 95 %, and the tail of one side: of the
    binomial distribution of ``n`` and 1/2.
    """
    cut, tail = 0, 0.5**n
    while True:
        more = tail + _choose(n, cut + 1) * 0.5**n
        if more > 0.025 or cut + 1 > (n - 1) // 2:
            return cut, tail
        cut, tail = cut + 1, more


def _choose(n: int, k: int) -> int:
    result = 1
    for i in range(k):
        result = result * (n - i) // (i + 1)
    return result


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
