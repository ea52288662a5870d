"""The clock and the waiting of the producer. Tests use a simulated clock instead.

* :class:`Clock` gives the time, and blocks a thread until an event or a deadline.
* :class:`Latch` is an event that a thread waits for.
* :class:`Waiters` has the latches of several threads that wait for the same state.

Most code does not read the clock: it gets the time as the argument ``now``. It blocks only in
:meth:`Clock.wait`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Protocol

#: A deadline that never comes, in milliseconds (Java's Long.MAX_VALUE).
NEVER = 2**63 - 1


class Latch:
    """An event that happens once. One thread waits for it, and holds no lock meanwhile."""

    # Not a threading.Condition: a KeyboardInterrupt can be raised between two calls of its Python
    # code. In Condition.__enter__, the lock then stays held forever. In Condition.wait, the
    # caller's ``with`` then releases a lock that it does not hold. A plain lock has no such gap:
    # ``with`` takes it in one step, and releases it in one step.
    __slots__ = ("_gate",)

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()

    @property
    def is_open(self) -> bool:
        return not self._gate.locked()

    def open(self) -> None:
        """Makes the event happen: the waiting thread, if there is one, continues. A second call
        does nothing.
        """
        with contextlib.suppress(RuntimeError):
            self._gate.release()

    def wait(self, seconds: float) -> bool:
        """Waits for the event, for at most ``seconds``, or without a limit if ``seconds`` is -1.
        Returns True if the event has happened. Only :meth:`Clock.wait` calls this method.
        """
        if not self._gate.acquire(timeout=seconds):
            return False
        self.open()
        return True


class Waiters:
    """The latches of all threads that wait for a change of a shared state.

    A lock protects the state. The caller must hold this lock for each call. A thread waits in these
    steps:

    1. Take the lock and check the state.
    2. Call :meth:`enlist`, and release the lock.
    3. Call ``clock.wait`` with the new latch.
    4. Begin again with step 1.

    A change of the state between the steps 2 and 3 is not missed: the thread that changes the state
    opens the latch, so the wait ends at once.
    """

    __slots__ = ("_latches",)

    def __init__(self) -> None:
        self._latches: list[Latch] = []

    def enlist(self) -> Latch:
        """Creates a latch, which the next :meth:`wake_all` opens."""
        latch = Latch()
        self._latches.append(latch)
        return latch

    def wake_all(self) -> None:
        """Opens all enlisted latches. A latch is opened even if its thread has stopped waiting
        because of a deadline or an interrupt.
        """
        for latch in self._latches:
            latch.open()
        self._latches.clear()


class Clock(Protocol):
    """The interface of a clock. All times are whole milliseconds."""

    def now_ms(self) -> int:
        """The monotonic time in ms, for timeouts, backoffs and ages. The value has a meaning only
        in this process, so it is never the timestamp of a record.
        """
        ...

    def wall_ms(self) -> int:
        """The time in ms since the epoch (wall-clock time). It can jump backwards. So it is used
        for timestamps, and to compare with the times of other machines, but not for timeouts.
        """
        ...

    def wait(self, latch: Latch, deadline_ms: int) -> bool:
        """Waits until ``latch`` is open or the deadline is over. Returns True if the latch is open.

        ``deadline_ms`` is a time of :meth:`now_ms`. If it is :data:`NEVER`, there is no deadline.
        The caller must hold no lock.
        """
        ...


class SystemClock:
    """The clock of the operating system."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def wait(self, latch: Latch, deadline_ms: int) -> bool:
        remaining = max(0, deadline_ms - self.now_ms()) / 1000
        # threading rejects timeouts beyond TIMEOUT_MAX, which is centuries.
        return latch.wait(-1 if remaining > threading.TIMEOUT_MAX else remaining)
