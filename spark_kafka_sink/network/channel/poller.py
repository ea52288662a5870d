"""The readiness of sockets from the operating system: epoll, or poll(2) without it (macOS).

Owns: one interface for both. Never: the connection of a file number (``selector.py``). Python's
``selectors`` is not used: at every request its lookups and tuples cost more than the system calls.
"""

from __future__ import annotations

import select
from typing import Protocol


class Poller(Protocol):
    """The readiness of sockets by file number. ``events`` are POLLIN and POLLOUT, whose bits are
    the same in epoll.
    """

    def register(self, fd: int, events: int) -> None: ...

    def modify(self, fd: int, events: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        """Waits up to ``timeout`` seconds; returns file numbers and their events, including errors
        and hang-ups.
        """
        ...

    def close(self) -> None: ...


class PollPoller:
    """The poller over poll(2), which every POSIX system has."""

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
