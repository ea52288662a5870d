"""The one source of time of the producer, and the one way to wait.

Owns: reading clocks and blocking. Never: any decision. Everything below the two loops
(the writer's and the sender's) takes ``now`` as an argument; what must block does so through
:meth:`Clock.wait`, so that tests can run the whole producer on a clock that jumps.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

#: A deadline that never comes, in milliseconds (Java's Long.MAX_VALUE).
NEVER = 2**63 - 1


class Clock(Protocol):
    """What the producer needs of time. All values are integer milliseconds."""

    def now_ms(self) -> int:
        """Monotonic milliseconds: for time-outs, backoff and ages. Never for records."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch: for record timestamps and reports only."""
        ...

    def wait(self, condition: threading.Condition, deadline_ms: int) -> bool:
        """Wait on ``condition``, whose lock the caller holds, until notified or the deadline.

        ``deadline_ms`` is on :meth:`now_ms`'s scale; :data:`NEVER` waits without limit. Returns
        False when the deadline had come. May wake without cause: callers loop over their
        predicate.
        """
        ...


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def wait(self, condition: threading.Condition, deadline_ms: int) -> bool:
        if deadline_ms >= NEVER:
            condition.wait()
            return True
        remaining = deadline_ms - self.now_ms()
        if remaining <= 0:
            return False
        # threading refuses time-outs beyond TIMEOUT_MAX; callers loop, so a cap is harmless.
        condition.wait(min(remaining / 1000, threading.TIMEOUT_MAX))
        return True
