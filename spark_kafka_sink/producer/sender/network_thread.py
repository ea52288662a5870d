"""The thread that runs the sender, and whether this process still has it.

Owns: starting the thread, and the fork count: a child has copies of its parent's producers and
none of their threads. Never: the thread's work (``sender.py``).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Protocol


class NetworkThread(Protocol):
    """The methods of ``threading.Thread`` that the producer uses."""

    def is_alive(self) -> bool: ...

    def join(self, timeout: float | None = None) -> None: ...


StartThread = Callable[[Callable[[], None], str], NetworkThread]


def start_thread(run: Callable[[], None], name: str) -> NetworkThread:
    """A started daemon thread of that name."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


class ForkCounter:
    """How often this process was forked since this module was loaded. Reading the process id for
    each record would cost a system call.
    """

    count = 0

    @classmethod
    def increment(cls) -> None:
        cls.count += 1


os.register_at_fork(after_in_child=ForkCounter.increment)
