"""Limits the memory of a producer to buffer.memory. Counts bytes, and blocks writers at the limit.

The pool only counts: it creates no buffers. (Java's BufferPool also keeps free buffers for reuse.)
While a writer waits here, it encodes no rows. This wait is the back-pressure of the producer
(DESIGN.md, rule R6).
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
    """A writer that waits for ``size`` bytes. ``gathered`` is the number of bytes that are already
    reserved for it.
    """

    __slots__ = ("gathered", "served", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.gathered = 0
        #: The latch for which the writer waits. It is opened when all bytes are gathered, or when
        #: the pool is closed.
        self.served = Latch()


class SharedBuffer:
    """A buffer of encoded records. Several batches can contain memoryviews of parts of the buffer.
    ``views`` is the number of these memoryviews.

    The pool counts all ``size`` bytes of the buffer until ``views`` is 0. The accumulator's lock
    guards ``views``.
    """

    __slots__ = ("size", "views")

    def __init__(self, size: int) -> None:
        self.size = size
        self.views = 0


class PoolMetrics(Protocol):
    """The interface by which the pool reports waits for memory. ``producer_metrics.py`` implements
    it.
    """

    def buffer_waited(self, waited_ms: int, now: int, *, exhausted: bool) -> None: ...


class BufferPool:
    """Counts the memory of a producer. If no memory is free, writers wait in the order of their
    requests (Java's BufferPool).

    One lock (``_lock``) guards ``_available``, ``_waiters``, ``_closed`` and the waiters'
    ``gathered`` bytes. No other code is called while the lock is held.
    """

    __slots__ = ("_available", "_clock", "_closed", "_lock", "_metrics", "_waiters", "total")

    def __init__(self, total: int, clock: Clock, metrics: PoolMetrics | None = None) -> None:
        self.total = total
        self._clock = clock
        self._lock = threading.Lock()
        self._available = total
        self._waiters: deque[_Waiter] = deque()
        self._closed = False
        #: Gets a report of each wait after the end of the wait.
        self._metrics = metrics

    @property
    def available(self) -> int:
        """The number of free bytes. It may be slightly negative after :meth:`adjust`."""
        return self._available

    @property
    def waiters(self) -> int:
        """The number of writers that wait for memory. Read without the lock, because the sender
        reads it in every pass.
        """
        return len(self._waiters)

    def allocate(
        self, size: int, deadline_ms: int, on_wait: Callable[[], None] | None = None
    ) -> None:
        """Allocates ``size`` bytes. If necessary, waits for free memory until ``deadline_ms``
        (monotonic ms).

        If the call must wait, it calls ``on_wait`` once at the beginning of the wait, without the
        lock. ``on_wait`` must wake the network thread. The network thread then also sends batches
        that are not full, and so frees their memory.

        A failed call allocates nothing, and raises one of these errors:

        * RecordTooLargeError: ``size`` is larger than the whole pool.
        * BufferExhaustedError: the deadline is over.
        * IllegalStateError: the pool is closed.
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
        """Gives free bytes to the waiting writers, in the order of their requests. The first writer
        may get a part of its bytes now and the rest later. So a large request is not overtaken by
        smaller requests. Called with the lock.
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
        """Frees ``size`` bytes, which waiting writers can then allocate."""
        with self._lock:
            self._available += size
            if self._waiters:
                self._serve_waiters()

    def adjust(self, old_size: int, new_size: int) -> None:
        """Changes the size of an allocation from ``old_size`` to ``new_size`` bytes. Never blocks.
        If ``new_size`` is larger, :attr:`available` may become negative.

        Used when batches take over the memory of a chunk of rows, and when compression or a split
        has changed the size of a batch.
        """
        # Records that do not compress become a few bytes larger. The thread that closes a batch
        # must never wait for memory.
        self.deallocate(old_size - new_size)

    def close(self) -> None:
        """Closes the pool. Waiting writers and later calls of :meth:`allocate` raise
        IllegalStateError. Memory can still be deallocated.
        """
        with self._lock:
            self._closed = True
            for waiter in self._waiters:
                waiter.served.open()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the producer was closed while memory was allocated")
