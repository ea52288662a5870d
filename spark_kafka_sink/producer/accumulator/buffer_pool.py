"""buffer.memory: bytes counted, and writers made to wait while they are used up.

Owns: the count and the line of waiters. Never: the bytes themselves (a batch's chunks are plain
``bytes`` objects of their exact size; Java's free list of batch.size buffers has no use here).
Stands between the writer's encoder and the accumulator (rule R6: back-pressure).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from spark_kafka_sink.clock import Clock, Latch
from spark_kafka_sink.errors import (
    BufferExhaustedError,
    ErrorCode,
    IllegalStateError,
    RecordTooLargeError,
)


class _Waiter:
    """One writer in line: ``gathered`` bytes of its ``size`` are already set aside for it."""

    __slots__ = ("gathered", "served", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.gathered = 0
        #: Opened when all is gathered, and when the pool is closed.
        self.served = Latch()


class PoolMetrics(Protocol):
    """Who counts waits for memory (``producer_metrics.py``)."""

    def buffer_waited(self, waited_ms: int, now: int, *, exhausted: bool) -> None: ...


class BufferPool:
    """A count of bytes with a first-in-first-out line (Java's BufferPool).

    One lock (``_lock``) guards ``_available``, ``_waiters``, ``_closed`` and the waiters' gathered
    bytes. It is never held while anything else is called.
    """

    __slots__ = ("_available", "_clock", "_closed", "_lock", "_waiters", "metrics", "total")

    def __init__(self, total: int, clock: Clock) -> None:
        self.total = total
        self._clock = clock
        self._lock = threading.Lock()
        self._available = total
        self._waiters: deque[_Waiter] = deque()
        self._closed = False
        #: Told of every wait, when it is over.
        self.metrics: PoolMetrics | None = None

    @property
    def available(self) -> int:
        """Bytes nobody uses. May be a little below zero after :meth:`adjust`."""
        return self._available

    @property
    def waiters(self) -> int:
        """How many writers wait. Read without the lock: the sender asks in every pass."""
        return len(self._waiters)

    def allocate(
        self, size: int, deadline_ms: int, on_wait: Callable[[], None] | None = None
    ) -> None:
        """Take ``size`` bytes, waiting in line until ``deadline_ms`` at most.

        ``on_wait`` is called once, without the lock, when this call has got in line: the sender is
        woken then, because only it can free memory (and all of it may sit in open batches).

        Raises RecordTooLargeError for more than the pool has in all, BufferExhaustedError at the
        deadline, IllegalStateError when the pool is closed. A failed call leaves nothing taken.
        """
        if size > self.total:
            raise RecordTooLargeError(
                f"The message is {size} bytes when serialized which is larger than the total "
                f"memory buffer you have configured with the buffer.memory configuration "
                f"({self.total}).",
                hint="raise kafka.buffer.memory, or write smaller rows",
                code=ErrorCode.MESSAGE_TOO_LARGE,
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
            if self.metrics is not None:
                now = self._clock.now_ms()
                self.metrics.buffer_waited(now - start, now, exhausted=not in_time)
            with self._lock:
                self._check_served(waiter)
        except BaseException:
            # Whatever ended the wait (deadline, close, KeyboardInterrupt): leave the line and
            # give back what was gathered, which may be what the next in line waits for.
            with self._lock:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                self._available += waiter.gathered
                self._hand_out()
            raise

    def _check_served(self, waiter: _Waiter) -> None:
        if waiter.gathered == waiter.size:
            return
        self._check_open()
        raise BufferExhaustedError(
            f"Failed to allocate {waiter.size} bytes within the configured max blocking "
            f"time. Total memory: {self.total} bytes. Available memory: "
            f"{self._available} bytes.",
            code=ErrorCode.REQUEST_TIMED_OUT,
        )

    def _hand_out(self) -> None:
        """Give free bytes to the line, its head first; piecewise, so that a big one is served."""
        while self._waiters and self._available > 0:
            head = self._waiters[0]
            piece = min(self._available, head.size - head.gathered)
            head.gathered += piece
            self._available -= piece
            if head.gathered < head.size:
                return
            self._waiters.popleft()
            head.served.open()

    def deallocate(self, size: int) -> None:
        """Give ``size`` bytes back."""
        with self._lock:
            self._available += size
            if self._waiters:
                self._hand_out()

    def adjust(self, old_size: int, new_size: int) -> None:
        """Recount bytes that changed their size (compressed, split), without waiting.

        Incompressible records grow by a few bytes; those may take :attr:`available` below zero,
        because the thread that closes a batch must never wait for memory.
        """
        self.deallocate(old_size - new_size)

    def close(self) -> None:
        """Refuse everything from now on, and wake all who wait. Bytes may still come back."""
        with self._lock:
            self._closed = True
            for waiter in self._waiters:
                waiter.served.open()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the producer was closed while memory was allocated")
