"""The thread that runs the sender, and whether this process still has it.

Owns: how that thread starts, and the count of forks: a child has a copy of its parent's producers
and none of their threads. Never: what the thread does (``sender.py``).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Protocol


class NetworkThread(Protocol):
    """What the producer needs of the thread that runs the sender."""

    def is_alive(self) -> bool: ...

    def join(self, timeout: float | None = None) -> None: ...


StartThread = Callable[[Callable[[], None], str], NetworkThread]


def start_thread(run: Callable[[], None], name: str) -> NetworkThread:
    """A daemon thread of that name, which has begun."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


class Forks:
    """How often this process is a fork of one that loaded this module. To ask for the process id
    before each record would be a system call.
    """

    count = 0

    @classmethod
    def forked(cls) -> None:
        cls.count += 1


os.register_at_fork(after_in_child=Forks.forked)
