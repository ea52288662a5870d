"""Asks the operating system for the readiness of sockets, by epoll or by poll(2) (macOS).

Owns: one interface for both. Never: the connection that belongs to a file number (``selector.py``).
Python's module ``selectors`` is not used, because its lookups and tuples cost more than the system
calls for every request.
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
        """Waits for up to ``timeout`` seconds. Returns file numbers and their events, including
        errors and hang-ups.
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
    """Creates a poller with epoll if the system has it, otherwise with poll(2)."""
    return select.epoll() if hasattr(select, "epoll") else PollPoller()
