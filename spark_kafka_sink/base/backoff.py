"""Computes the wait before the next attempt (Java's ``ExponentialBackoff``).

All backoffs of this package use this formula. This module does not read a clock, count attempts or
wait: the caller does.
"""

from __future__ import annotations

import math
import random as _random
from collections.abc import Callable

#: A producer's first wait after CONCURRENT_TRANSACTIONS, in milliseconds: the change of its
#: transaction that is being written takes milliseconds. Java has it for AddPartitionsToTxn only
#: (KAFKA-5482).
_CONCURRENT_MS = 20


class ExponentialBackoff:
    """An exponential backoff in milliseconds: ``initial_ms * multiplier ** attempts``, at most
    ``max_ms``.

    Each backoff is changed by a random part: at most the fraction ``jitter`` is added or
    subtracted. The result is never above ``max_ms``. If ``initial_ms >= max_ms``, each backoff is
    exactly ``max_ms``, as in Java. ``random`` returns floats in [0, 1).
    """

    __slots__ = ("_exponent_max", "_initial", "_jitter", "_max", "_multiplier", "_random")

    def __init__(
        self,
        initial_ms: int,
        max_ms: int,
        *,
        multiplier: int = 2,
        jitter: float = 0.2,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._initial = min(initial_ms, max_ms)
        self._max = max_ms
        self._multiplier = multiplier
        self._jitter = jitter
        self._random = random
        self._exponent_max = (
            math.log(max_ms / max(initial_ms, 1)) / math.log(multiplier)
            if max_ms > initial_ms
            else 0.0
        )

    def backoff(self, attempts: int) -> int:
        """The wait in ms before the next attempt. ``attempts`` is the number of waits so far: 0 for
        the first wait.
        """
        if self._exponent_max == 0:
            return self._initial
        term = self._initial * self._multiplier ** min(attempts, self._exponent_max)
        spread = 1 - self._jitter + 2 * self._jitter * self._random()
        return min(int(spread * term), self._max)


def concurrent_backoff(
    retry_ms: int, retry_max_ms: int, random: Callable[[], float] = _random.random
) -> ExponentialBackoff:
    """The backoff of a producer after CONCURRENT_TRANSACTIONS, in milliseconds.

    The first wait is 20 ms, or ``retry_ms`` (retry.backoff.ms) if that is shorter. Each later wait
    is twice as long as the wait before, up to ``retry_max_ms`` (retry.backoff.max.ms). Each wait
    has a random part, as in :class:`ExponentialBackoff`.
    """
    soon = min(_CONCURRENT_MS, retry_ms)
    return ExponentialBackoff(soon, max(soon, retry_max_ms), random=random)
