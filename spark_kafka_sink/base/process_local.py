"""A value that each process creates for itself. A forked child process creates a new value.

Owns: :class:`ProcessLocal`. Never: the meaning of the value.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ProcessLocal(Generic[T]):
    """A callable that returns the value of this process. The first call in a process creates the
    value.

    A forked child process must not use the value of its parent process, for three reasons:

    * The child would share the sockets of the parent.
    * The threads of the parent do not run in the child.
    * If another thread of the parent held a lock during the fork, the lock would stay locked in the
      child forever.
    """

    def __init__(self, make: Callable[[], T], *, pid: Callable[[], int] = os.getpid) -> None:
        self._make = make
        self._current_pid = pid
        self._values: dict[int, T] = {}

    def __call__(self) -> T:
        pid = self._current_pid()
        values = self._values
        if pid in values:
            return values[pid]
        found = values.setdefault(pid, self._make())  # of two threads, one makes it
        for other in values.keys() - {pid}:
            del values[other]
        return found
