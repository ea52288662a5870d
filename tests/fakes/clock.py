"""A clock that jumps: what waits, waits in no time.

:class:`FakeClock` implements ``spark_kafka_sink.base.clock.Clock``. With one thread (the default) a
wait that nothing can end jumps straight to its deadline. With ``threads=n`` time stands still until
the test calls :meth:`advance`, or until all n threads wait: then it jumps to the nearest deadline.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from spark_kafka_sink.base.clock import NEVER, Latch


@dataclass(eq=False)
class _Wait:
    latch: Latch
    deadline_ms: int


class FakeClock:
    """Milliseconds that only tests move. ``threads`` is how many threads take part in waits."""

    def __init__(self, now_ms: int = 1_000_000, *, threads: int = 1) -> None:
        self._now_ms = now_ms
        self._threads = threads
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waits: list[_Wait] = []

    def now_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self._now_ms

    def advance(self, milliseconds: int) -> int:
        """Move time on and wake all that wait; returns the new time."""
        with self._lock:
            self._jump(self._now_ms + milliseconds)
        return self._now_ms

    def _jump(self, now_ms: int) -> None:
        self._now_ms = now_ms
        for wait in self._waits:
            if wait.deadline_ms <= now_ms:
                wait.latch.open()

    def await_waiters(self, count: int, real_seconds: float = 60) -> None:
        """Block in real time until ``count`` threads are inside :meth:`wait`."""
        with self._lock:
            reached = self._changed.wait_for(lambda: len(self._waits) >= count, real_seconds)
        assert reached, f"{len(self._waits)} threads wait, not {count}"

    def wait(self, latch: Latch, deadline_ms: int) -> bool:
        with self._lock:
            if latch.is_open:
                return True
            if deadline_ms <= self._now_ms:
                return False
            wait = _Wait(latch, deadline_ms)
            self._waits.append(wait)
            self._changed.notify_all()
            nearest = min(w.deadline_ms for w in self._waits)
            if len(self._waits) >= self._threads and nearest < NEVER:
                self._jump(nearest)
        try:
            # Opened by whoever it waits for, or by a jump to its deadline.
            latch.wait(-1)
            return self._now_ms < deadline_ms
        finally:
            with self._lock:
                self._waits.remove(wait)
