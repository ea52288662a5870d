"""Waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(
    condition: Callable[[], T],
    timeout: float = 60.0,
    what: str = "condition",
    *,
    pause: float = 0.01,
) -> T:
    """The first value of ``condition()`` that is true, called again after ``pause``. Times are
    seconds; AssertionError, naming ``what``, after ``timeout``.
    """
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come in {timeout} s"
        time.sleep(pause)
    return found
