"""Waiting for a condition."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

#: The limits of waits, and pytest's of tests, are multiplied by it. A limit is there to end a test
#: that hangs; a machine that is slow, or has other work, needs more of it.
PATIENCE = float(os.environ.get("KPROD_TESTS_PATIENCE", "1"))
#: Seconds for anything that comes sooner or later: a JVM's start, a stream's first batch.
LONG_S = 240.0 * PATIENCE


def wait_for(
    condition: Callable[[], T],
    timeout: float = 60.0,
    what: str = "condition",
    *,
    pause: float = 0.01,
) -> T:
    """The first value of ``condition()`` that is true, called again after ``pause``. Times are
    seconds; AssertionError, naming ``what``, after ``timeout`` times :data:`PATIENCE`.
    """
    limit = timeout * PATIENCE
    deadline = time.monotonic() + limit
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come in {limit} s"
        time.sleep(pause)
    return found


def with_patience(limits_ms: Mapping[str, int]) -> dict[str, str]:
    """Options that are limits in ms, multiplied for a slow machine."""
    return {name: str(int(ms * PATIENCE)) for name, ms in limits_ms.items()}


def with_more_time(attempt: Callable[[int], T], limit_ms: int) -> T:
    """The result of ``attempt(limit_ms)``, where the limit is an option that runs out in the test.

    A slow machine may not get as far as the test wants within a short limit. So an attempt that
    ends with an AssertionError is repeated with four times the limit, and then with 16 times.
    """
    for factor in (1, 4):
        with suppress(AssertionError):
            return attempt(limit_ms * factor)
    return attempt(limit_ms * 16)
