"""The one source of time of the producer, and the one way to wait.

Owns: reading clocks and blocking; :class:`Latch` and :class:`Waiters`, what threads wait with.
Never: any decision. Everything below the two loops
(the writer's and the sender's) takes ``now`` as an argument; what must block does so through
:meth:`Clock.wait`, so that tests can run the whole producer on a clock that jumps.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Protocol

#: A deadline that never comes, in milliseconds (Java's Long.MAX_VALUE).
NEVER = 2**63 - 1


class Latch:
    """Opens once; one thread waits for that.

    Why not ``threading.Condition``: a KeyboardInterrupt lands after any call, also after one inside
    its Python code. Between ``lock.__enter__()`` and the end of ``Condition.__enter__`` it leaves
    the lock held forever; around the release and the second acquire in ``Condition.wait`` it makes
    the caller's ``with`` release a lock that it does not hold. A raw lock has no such gap: ``with``
    takes and frees it in one step each, and whoever waits for a latch holds nothing.
    """

    __slots__ = ("_gate",)

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()

    @property
    def is_open(self) -> bool:
        return not self._gate.locked()

    def open(self) -> None:
        """Harmless when repeated, and when nobody waits any more."""
        with contextlib.suppress(RuntimeError):
            self._gate.release()

    def wait(self, seconds: float) -> bool:
        """True when it is open. -1 waits without limit. Only through a clock (see there)."""
        if not self._gate.acquire(timeout=seconds):
            return False
        self.open()
        return True


class Waiters:
    """The latches of all who wait for a change of what a lock guards; used under that lock.

    One round of a waiter: look under the lock, :meth:`enlist`, let the lock go, ``clock.wait``,
    look again. A change between the look and the wait opens the latch before it is waited for.
    """

    __slots__ = ("_latches",)

    def __init__(self) -> None:
        self._latches: list[Latch] = []

    def enlist(self) -> Latch:
        """A latch that the next :meth:`wake_all` opens."""
        latch = Latch()
        self._latches.append(latch)
        return latch

    def wake_all(self) -> None:
        """Open all; those whose waiters gave up (deadline, interrupt) go with them."""
        for latch in self._latches:
            latch.open()
        self._latches.clear()


class Clock(Protocol):
    """What the producer needs of time. All values are integer milliseconds."""

    def now_ms(self) -> int:
        """Monotonic milliseconds: for time-outs, backoff and ages. Never for records."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch: for record timestamps and reports only."""
        ...

    def wait(self, latch: Latch, deadline_ms: int) -> bool:
        """Wait until ``latch`` is open (True) or the deadline has come (False).

        ``deadline_ms`` is on :meth:`now_ms`'s scale; :data:`NEVER` waits without limit. The caller
        holds no lock.
        """
        ...


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def wait(self, latch: Latch, deadline_ms: int) -> bool:
        remaining = max(0, deadline_ms - self.now_ms()) / 1000
        # threading refuses time-outs beyond TIMEOUT_MAX, which is centuries.
        return latch.wait(-1 if remaining > threading.TIMEOUT_MAX else remaining)
