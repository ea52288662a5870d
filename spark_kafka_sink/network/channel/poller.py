"""Waits for events of many sockets, with epoll, or with poll(2) on systems without epoll (macOS).

A poller knows only file descriptors. ``selector.py`` finds the connection that belongs to a file
descriptor.
"""

from __future__ import annotations

import select
from typing import Protocol


# Not Python's module selectors: its dict lookups and tuples take longer than the system calls.
class Poller(Protocol):
    """The interface of a poller. Sockets are given by their file descriptors. ``events`` are POLLIN
    and POLLOUT, which have the same values in epoll.
    """

    def register(self, fd: int, events: int) -> None: ...

    def modify(self, fd: int, events: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        """Waits for at most ``timeout`` seconds. Returns pairs of a file descriptor and its events.
        The events may include errors and hang-ups.
        """
        ...

    def close(self) -> None: ...


class PollPoller:
    """A poller with poll(2), which every POSIX system has."""

    __slots__ = ("_poll", "modify", "register", "unregister")

    def __init__(self) -> None:
        poll = select.poll()
        self.register, self.modify, self.unregister = poll.register, poll.modify, poll.unregister
        self._poll = poll.poll

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        return self._poll(timeout * 1000)

    def close(self) -> None:
        """Does nothing, because poll(2) needs no file descriptor of its own."""


def new_poller() -> Poller:
    """Creates a poller with epoll if the operating system has epoll, otherwise with poll(2)."""
    return select.epoll() if hasattr(select, "epoll") else PollPoller()
