"""A pair of sockets by which any thread ends the poll of another (what Java's NIO selector has).

Owns: the two sockets, whether a wake-up is on its way, and that none is lost. Never: what the woken
thread then does.
"""

from __future__ import annotations

import contextlib
import socket
import threading


class WakeupPipe:
    """``reader`` is readable while a wake-up is on its way.

    One lock (``_lock``) guards ``_closed`` and ``_pending``.
    """

    __slots__ = ("_closed", "_lock", "_pending", "_writer", "reader")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending = False
        self._closed = False
        self.reader, self._writer = socket.socketpair()
        self.reader.settimeout(0)
        self._writer.settimeout(0)

    def wakeup(self) -> None:
        """Make ``reader`` readable. Any thread; harmless after :meth:`close`."""
        # No wakeup is lost by trusting a pending one: whoever wakes has published what it wants
        # before it calls, the poll that consumes the pending one has not done so yet, and its
        # caller looks at everything anew after it.
        if self._pending:
            return
        with self._lock:
            if self._closed or self._pending:
                return
            # In this order: an interrupt between the two must not leave a wake-up that is noted
            # as pending and never comes.
            self._writer.send(b"w")
            self._pending = True

    def consume(self) -> None:
        """The wake-up arrived: the next one is another."""
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                self.reader.recv(64)
            self._pending = False

    def begin_close(self) -> bool:
        """From now on nobody writes; False when that was so already."""
        with self._lock:
            closed, self._closed = self._closed, True
            return not closed

    def close(self) -> None:
        """Close both sockets, after :meth:`begin_close`."""
        try:
            self._writer.close()
        finally:
            self.reader.close()
