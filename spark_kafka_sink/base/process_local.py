"""A value that each process creates for itself. A forked child process creates a new value.

This module does not know the meaning of the value.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ProcessLocal(Generic[T]):
    """A callable that returns the value of this process. The first call in a process creates the
    value with ``make``. A forked child process creates a value of its own.

    If two threads make the first call at the same time, ``make`` can be called twice. Both threads
    then get the same value, and the other value is dropped.
    """

    def __init__(self, make: Callable[[], T], *, pid: Callable[[], int] = os.getpid) -> None:
        self._make = make
        self._current_pid = pid
        self._values: dict[int, T] = {}

    # A forked child must not use the value of its parent:
    # * The child would share the sockets of the parent.
    # * The threads of the parent do not run in the child.
    # * If another thread of the parent held a lock during the fork, the lock would stay locked in
    #   the child forever.
    def __call__(self) -> T:
        pid = self._current_pid()
        values = self._values
        if pid in values:
            return values[pid]
        found = values.setdefault(pid, self._make())  # of two threads' values, one is kept
        for other in values.keys() - {pid}:
            del values[other]
        return found
