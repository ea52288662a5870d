"""Limits the producer's memory to buffer.memory: counts bytes, and blocks writers at the limit.

Owns: the count and the queue of waiters; the number of batches that view a chunk's buffer. Never:
the bytes themselves (Java's free list of batch.size buffers has no use here). The pool is between
the writer's encoder and the accumulator (rule R6: back-pressure).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from spark_kafka_sink.base.clock import Clock, Latch
from spark_kafka_sink.base.errors import (
    BufferExhaustedError,
    IllegalStateError,
    RecordTooLargeError,
)


class _Waiter:
    """A waiting writer. ``gathered`` bytes of the requested ``size`` are already reserved for
    it.
    """

    __slots__ = ("gathered", "served", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.gathered = 0
        #: Opened when all bytes are gathered, and when the pool is closed.
        self.served = Latch()


class SharedBuffer:
    """The buffer of a chunk's encoded records, which batches view.

    All of its ``size`` bytes stay allocated in the pool until no batch views it any more. Guarded
    by the accumulator's lock.
    """

    __slots__ = ("size", "views")

    def __init__(self, size: int) -> None:
        self.size = size
        self.views = 0


class PoolMetrics(Protocol):
    """Records waits for memory (``producer_metrics.py``)."""

    def buffer_waited(self, waited_ms: int, now: int, *, exhausted: bool) -> None: ...


class BufferPool:
    """Counts the producer's memory, with a first-in-first-out queue of waiting writers (Java's
    BufferPool).

    One lock (``_lock``) guards ``_available``, ``_waiters``, ``_closed`` and the waiters' gathered
    bytes. No other code is called while the lock is held.
    """

    __slots__ = ("_available", "_clock", "_closed", "_lock", "_metrics", "_waiters", "total")

    def __init__(self, total: int, clock: Clock, metrics: PoolMetrics | None = None) -> None:
        self.total = total
        self._clock = clock
        self._lock = threading.Lock()
        self._available = total
        self._waiters: deque[_Waiter] = deque()
        self._closed = False
        #: Notified of every wait, when it is over.
        self._metrics = metrics

    @property
    def available(self) -> int:
        """The unused bytes. May be slightly negative after :meth:`adjust`."""
        return self._available

    @property
    def waiters(self) -> int:
        """The number of waiting writers. Read without the lock, because the sender polls it."""
        return len(self._waiters)

    def allocate(
        self, size: int, deadline_ms: int, on_wait: Callable[[], None] | None = None
    ) -> None:
        """Allocates ``size`` bytes, and blocks until ``deadline_ms`` at most.

        If the call must wait, it calls ``on_wait`` once, without the lock. This wakes the sender,
        because only the sender can free memory, and open batches may hold all of it.

        Raises RecordTooLargeError for more bytes than the pool's total, BufferExhaustedError at the
        deadline, and IllegalStateError if the pool is closed. A failed call allocates nothing.
        """
        if size > self.total:
            raise RecordTooLargeError(
                f"The message is {size} bytes when serialized which is larger than the total "
                f"memory buffer you have configured with the buffer.memory configuration "
                f"({self.total}).",
                hint="raise kafka.buffer.memory, or write smaller rows",
            )
        with self._lock:
            self._check_open()
            if not self._waiters and self._available >= size:
                self._available -= size
                return
            waiter = _Waiter(size)
            self._waiters.append(waiter)
        start = self._clock.now_ms()
        try:
            if on_wait is not None:
                on_wait()
            in_time = self._clock.wait(waiter.served, deadline_ms)
            if self._metrics is not None:
                now = self._clock.now_ms()
                self._metrics.buffer_waited(now - start, now, exhausted=not in_time)
            with self._lock:
                self._check_served(waiter)
        except BaseException:
            # The wait failed (deadline, close, KeyboardInterrupt): leave the queue and return the
            # gathered bytes, which the next waiter may need.
            with self._lock:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                self._available += waiter.gathered
                self._serve_waiters()
            raise

    def _check_served(self, waiter: _Waiter) -> None:
        if waiter.gathered == waiter.size:
            return
        self._check_open()
        raise BufferExhaustedError(
            f"Failed to allocate {waiter.size} bytes within the configured max blocking "
            f"time. Total memory: {self.total} bytes. Available memory: "
            f"{self._available} bytes.",
        )

    def _serve_waiters(self) -> None:
        """Gives free bytes to the waiters, in order of arrival. The first waiter may get a part of
        its bytes and the rest later, so that a large request never starves.
        """
        while self._waiters and self._available > 0:
            head = self._waiters[0]
            granted = min(self._available, head.size - head.gathered)
            head.gathered += granted
            self._available -= granted
            if head.gathered < head.size:
                return
            self._waiters.popleft()
            head.served.open()

    def deallocate(self, size: int) -> None:
        """Returns ``size`` bytes to the pool."""
        with self._lock:
            self._available += size
            if self._waiters:
                self._serve_waiters()

    def adjust(self, old_size: int, new_size: int) -> None:
        """Updates the count after a size change (compression, split), without blocking.

        Incompressible records grow by a few bytes. So :attr:`available` may become negative,
        because the thread that closes a batch must never wait for memory.
        """
        self.deallocate(old_size - new_size)

    def close(self) -> None:
        """Rejects all further allocations, and wakes all waiters. Bytes may still be
        deallocated.
        """
        with self._lock:
            self._closed = True
            for waiter in self._waiters:
                waiter.served.open()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the producer was closed while memory was allocated")
