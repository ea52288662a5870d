"""Lets any thread wake up another thread that waits in a poll. Uses a pair of connected sockets, as
Java's NIO selector does.

No wakeup is lost: if :meth:`WakeupPipe.wakeup` is called before the poll begins, the poll returns
at once.
"""

from __future__ import annotations

import contextlib
import socket
import threading


class WakeupPipe:
    """A pair of connected sockets. The poll waits for ``reader``, which is readable after
    :meth:`wakeup`.

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
        """Makes ``reader`` readable, which ends the poll. Any thread may call this method. After
        :meth:`close` it does nothing.
        """
        # No wakeup is lost by relying on a pending one: the caller has published its change before
        # the call, the poll has not consumed the pending wakeup yet, and the loop reads all state
        # again after that.
        if self._pending:
            return
        with self._lock:
            if self._closed or self._pending:
                return
            # In this order: an interrupt between the two must not leave a wakeup marked as pending
            # that never arrives.
            self._writer.send(b"w")
            self._pending = True

    def consume(self) -> None:
        """Reads the byte of the last wakeup. ``reader`` is then not readable until the next
        wakeup.
        """
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                self.reader.recv(64)
            self._pending = False

    def begin_close(self) -> bool:
        """Ends the wakeups: later calls of :meth:`wakeup` do nothing. Returns False if an earlier
        call has already done this.
        """
        with self._lock:
            closed, self._closed = self._closed, True
            return not closed

    def close(self) -> None:
        """Closes both sockets, after :meth:`begin_close`."""
        try:
            self._writer.close()
        finally:
            self.reader.close()
