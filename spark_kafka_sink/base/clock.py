"""The producer's only source of time, and its only way to wait.

Owns: reading clocks and blocking; :class:`Latch` and :class:`Waiters`, on which threads wait.
Never: any decision.

All code below the two loops (the writer's and the sender's) takes ``now`` as an argument, and
blocks only in :meth:`Clock.wait`. So tests can run the whole producer on a simulated clock.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Protocol

#: A deadline that never comes, in milliseconds (Java's Long.MAX_VALUE).
NEVER = 2**63 - 1


class Latch:
    """An event that happens once, for which one thread waits.

    A ``threading.Condition`` is not safe here, because a KeyboardInterrupt may be raised after any
    call, also inside the Condition's Python code. If it is raised between ``lock.__enter__()`` and
    the end of ``Condition.__enter__``, the lock stays held forever. If it is raised in
    ``Condition.wait`` while the lock is released, the caller's ``with`` releases a lock that the
    caller does not hold. A raw lock has no such gap: ``with`` takes and frees a raw
    lock in one step each, and a thread that waits for a latch holds no lock.
    """

    __slots__ = ("_gate",)

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()

    @property
    def is_open(self) -> bool:
        return not self._gate.locked()

    def open(self) -> None:
        """Opens the latch. Does nothing if the latch is already open. No thread need wait for
        it.
        """
        with contextlib.suppress(RuntimeError):
            self._gate.release()

    def wait(self, seconds: float) -> bool:
        """Waits for at most ``seconds``, or without a limit if it is -1. Returns True if the latch
        is open. Only a clock may call this method.
        """
        if not self._gate.acquire(timeout=seconds):
            return False
        self.open()
        return True


class Waiters:
    """The latches of the threads that wait for a change of some state. Used under the lock of that
    state.

    A waiter checks the state under the lock, calls :meth:`enlist`, releases the lock, calls
    ``clock.wait``, and checks again. If the state changes between the check and the wait, the latch
    is already open when the wait begins.
    """

    __slots__ = ("_latches",)

    def __init__(self) -> None:
        self._latches: list[Latch] = []

    def enlist(self) -> Latch:
        """A new latch, which the next :meth:`wake_all` opens."""
        latch = Latch()
        self._latches.append(latch)
        return latch

    def wake_all(self) -> None:
        """Opens all latches, including latches whose waiter no longer waits because of a deadline
        or an interrupt.
        """
        for latch in self._latches:
            latch.open()
        self._latches.clear()


class Clock(Protocol):
    """The producer's view of time. All values are integer milliseconds."""

    def now_ms(self) -> int:
        """Monotonic milliseconds, for timeouts, backoff and ages; never for records."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, for record timestamps and reports only."""
        ...

    def wait(self, latch: Latch, deadline_ms: int) -> bool:
        """Waits until ``latch`` is open or the deadline has passed. Returns True if the latch is
        open.

        ``deadline_ms`` is a time of :meth:`now_ms`. With :data:`NEVER` there is no deadline. The
        caller must hold no lock.
        """
        ...


class SystemClock:
    """The clock of the machine."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def wait(self, latch: Latch, deadline_ms: int) -> bool:
        remaining = max(0, deadline_ms - self.now_ms()) / 1000
        # threading rejects timeouts beyond TIMEOUT_MAX, which is centuries.
        return latch.wait(-1 if remaining > threading.TIMEOUT_MAX else remaining)
