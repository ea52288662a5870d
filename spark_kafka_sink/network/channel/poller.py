"""The readiness of sockets from the operating system: epoll, or poll(2) without it (macOS).

Owns: one interface for both. Never: what a file number refers to (``selector.py``). Not Python's
``selectors``: its lookups and tuples cost more than the system calls, at every request.
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
        """File numbers and their events (including errors and hang-ups); waits up to ``timeout``
        seconds.
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
        """Does nothing: there is no descriptor to close."""


def new_poller() -> Poller:
    """The epoll poller if available, otherwise the poll poller."""
    return select.epoll() if hasattr(select, "epoll") else PollPoller()
