"""How much of what brokers send may be in memory at once (Java's ``MemoryPool``).

Owns: :class:`MemoryPool` and :class:`SimpleMemoryPool`, which count; a frame's buffer is the frame
reader's (``frame_reader.py``) and grows with the bytes that came. Never: sockets. Who stops reading
when a pool is used up, and goes on later, is the selector.

A producer has no pool, as in Java: its answers are small, and few are under way. It is for whoever
reads records (the commit log) or must share a machine with hundreds of connections.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from spark_kafka_sink.errors import IllegalStateError


class MemoryPool(Protocol):
    """Counts bytes of frames from when their length is known until they are released."""

    @property
    def size(self) -> int: ...

    @property
    def available(self) -> int:
        """May be negative: see :class:`SimpleMemoryPool`."""
        ...

    @property
    def out_of_memory(self) -> bool: ...

    def try_allocate(self, size: int) -> bool:
        """Take ``size`` bytes, or none and return False."""
        ...

    def release(self, size: int) -> None:
        """Give back what one :meth:`try_allocate` took."""
        ...

    def attach(self, wakeup: Callable[[], None]) -> None:
        """Call ``wakeup`` when there is memory again for who was refused. From any thread."""
        ...

    def detach(self, wakeup: Callable[[], None]) -> None: ...


class SimpleMemoryPool:
    """``size`` bytes. Any number of threads may share it.

    Unless ``strict``, a frame is let in while any memory is left, so that frames larger than what
    happens to be left do not wait behind small ones for ever: at most the pool and the largest
    frame are in use then. A frame larger than the whole pool is let in when nothing else is in it.

    One lock (``_lock``) guards ``_available``, ``_refused`` and the list of wake-ups, which is
    replaced, so that it can be gone through without it.
    """

    def __init__(self, size: int, *, strict: bool = False) -> None:
        if size <= 0:
            raise IllegalStateError(f"a memory pool of {size} bytes lets nothing in")
        self._size = size
        self._strict = strict
        self._available = size
        # Somebody was let in no more since the last wake-up.
        self._refused = False
        self._lock = threading.Lock()
        self._wakeups: list[Callable[[], None]] = []

    @property
    def size(self) -> int:
        return self._size

    @property
    def available(self) -> int:
        return self._available

    @property
    def out_of_memory(self) -> bool:
        return self._available <= 0

    def try_allocate(self, size: int) -> bool:
        with self._lock:
            needed = min(size, self._size) if self._strict else 1
            if self._available < needed:
                self._refused = True
                return False
            self._available -= size
            return True

    def release(self, size: int) -> None:
        with self._lock:
            self._available += size
            over = self._available > self._size
            awaited = self._refused and self._available > 0
            if awaited:
                self._refused = False
        if over:
            raise IllegalStateError("a memory pool was given back more than was taken")
        if awaited:
            for wakeup in self._wakeups:
                wakeup()

    def attach(self, wakeup: Callable[[], None]) -> None:
        with self._lock:
            self._wakeups = [*self._wakeups, wakeup]

    def detach(self, wakeup: Callable[[], None]) -> None:
        with self._lock:
            self._wakeups = [other for other in self._wakeups if other != wakeup]
