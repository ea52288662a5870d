"""The operating system's readiness of sockets: epoll, or poll(2) where there is none (macOS).

Owns: that both are asked in the same way. Never: what a number stands for (``selector.py``). Not
Python's ``selectors``: its look-ups and records cost more than the system calls, at every request.
"""

from __future__ import annotations

import select
from typing import Protocol


class Poller(Protocol):
    """Sockets by file number; ``events`` are POLLIN and POLLOUT, which epoll's bits equal."""

    def register(self, fd: int, events: int) -> None: ...

    def modify(self, fd: int, events: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        """Numbers and events (errors and hang-ups among them), after ``timeout`` seconds if none
        was there.
        """
        ...

    def close(self) -> None: ...


class PollPoller:
    """poll(2), which every POSIX system has."""

    __slots__ = ("_poll", "modify", "register", "unregister")

    def __init__(self) -> None:
        poll = select.poll()
        self.register, self.modify, self.unregister = poll.register, poll.modify, poll.unregister
        self._poll = poll.poll

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        return self._poll(timeout * 1000)

    def close(self) -> None:
        """There is nothing to close."""


def new_poller() -> Poller:
    """The best that this system has."""
    return select.epoll() if hasattr(select, "epoll") else PollPoller()
