"""BufferPool (Java: BufferPoolTest)."""

import random
import threading
from collections.abc import Callable

import pytest

from spark_kafka_sink.base.clock import NEVER, Latch, SystemClock
from spark_kafka_sink.base.errors import (
    BufferExhaustedError,
    IllegalStateError,
    RecordTooLargeError,
)
from spark_kafka_sink.producer.buffer_pool import BufferPool
from tests.fakes.clock import FakeClock


class Call(threading.Thread):
    """A call on a thread of its own; its error, if any, is kept."""

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.call = call
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.call()
        except BaseException as error:
            self.error = error

    def result(self) -> BaseException | None:
        self.join(60)
        assert not self.is_alive()
        return self.error


def test_bytes_come_back_to_the_count_whatever_their_size():
    """BufferPoolTest#testSimple: sizes return to the counter (there is no free list here)."""
    pool = BufferPool(100, FakeClock())
    pool.allocate(30, NEVER)
    pool.allocate(7, NEVER)
    assert pool.available == 63
    pool.deallocate(30)
    pool.deallocate(7)
    assert pool.available == 100


def test_more_than_the_whole_pool_is_refused():
    """BufferPoolTest#testCantAllocateMoreMemoryThanWeHave."""
    pool = BufferPool(100, FakeClock())
    with pytest.raises(RecordTooLargeError, match=r"buffer\.memory"):
        pool.allocate(101, NEVER)
    pool.allocate(100, NEVER)
    assert pool.available == 0


def test_a_blocked_allocation_gathers_memory_piecewise():
    """BufferPoolTest#testDelayedAllocation."""
    clock = FakeClock(threads=9)
    pool = BufferPool(100, clock)
    pool.allocate(100, NEVER)
    woken = threading.Event()
    call = Call(lambda: pool.allocate(60, NEVER, on_wait=woken.set))
    clock.await_waiters(1)
    assert woken.is_set()
    pool.deallocate(40)
    assert pool.waiters == 1
    assert pool.available == 0  # set aside for the one who waits
    pool.deallocate(60)
    assert call.result() is None
    assert (pool.available, pool.waiters) == (40, 0)


def test_a_timed_out_allocation_leaves_the_line():
    """BufferPoolTest#testBlockTimeout: not before the deadline; the waiter is removed, a partial
    grab returned.
    """
    clock = FakeClock()
    pool = BufferPool(100, clock)
    pool.allocate(90, NEVER)
    began = clock.now_ms()
    with pytest.raises(BufferExhaustedError, match="Failed to allocate 20 bytes"):
        pool.allocate(20, began + 500)
    assert clock.now_ms() == began + 500
    assert (pool.available, pool.waiters) == (10, 0)


def test_a_timed_out_waiters_memory_goes_to_the_next_in_line():
    """BufferPoolTest#testBlockTimeout, BufferPool#allocate."""
    clock = FakeClock(threads=9)
    pool = BufferPool(100, clock)
    pool.allocate(100, NEVER)
    first = Call(lambda: pool.allocate(80, clock.now_ms() + 50))
    clock.await_waiters(1)
    second = Call(lambda: pool.allocate(20, NEVER))
    clock.await_waiters(2)
    pool.deallocate(30)
    assert pool.waiters == 2  # all 30 are the first one's
    clock.advance(50)
    assert isinstance(first.result(), BufferExhaustedError)
    assert second.result() is None
    assert pool.available == 10


class InterruptedClock(FakeClock):
    def wait(self, latch: Latch, deadline_ms: int) -> bool:
        raise KeyboardInterrupt


def test_an_interrupted_wait_leaves_no_waiter_and_all_memory():
    """BufferPoolTest#testCleanupMemoryAvailabilityWaiterOnInterruption."""
    pool = BufferPool(100, InterruptedClock())
    pool.allocate(95, NEVER)
    with pytest.raises(KeyboardInterrupt):
        pool.allocate(50, NEVER)
    assert (pool.available, pool.waiters) == (5, 0)

    def fail() -> None:
        raise RuntimeError("wakeup failed")

    with pytest.raises(RuntimeError):
        pool.allocate(50, NEVER, on_wait=fail)
    assert (pool.available, pool.waiters) == (5, 0)


def test_waiters_are_served_first_in_first_out():
    """BufferPool#allocate: a small request does not overtake a big one before it."""
    clock = FakeClock(threads=9)
    pool = BufferPool(100, clock)
    pool.allocate(100, NEVER)
    order: list[str] = []
    lock = threading.Lock()

    def take(name: str, size: int) -> None:
        pool.allocate(size, NEVER)
        with lock:
            order.append(name)

    big = Call(lambda: take("big", 90))
    clock.await_waiters(1)
    small = Call(lambda: take("small", 10))
    clock.await_waiters(2)
    pool.deallocate(50)
    assert pool.waiters == 2
    pool.deallocate(40)
    assert big.result() is None
    assert order == ["big"]
    pool.deallocate(10)
    assert small.result() is None
    assert order == ["big", "small"]


def test_who_comes_while_another_gets_in_line_is_behind_it():
    """BufferPool#allocate: 10 bytes are free, but somebody waits for 50 already."""
    pool = BufferPool(100, FakeClock())
    pool.allocate(90, NEVER)
    seen: list[BaseException] = []

    def overtake() -> None:
        try:
            pool.allocate(5, 0)
        except BufferExhaustedError as error:
            seen.append(error)
        pool.deallocate(90)

    pool.allocate(50, NEVER, on_wait=overtake)
    assert len(seen) == 1
    assert pool.available == 50


def test_close_wakes_all_who_wait_and_refuses_further_ones():
    """BufferPoolTest#testCloseNotifyWaiters."""
    clock = FakeClock(threads=9)
    pool = BufferPool(100, clock)
    pool.allocate(90, NEVER)
    calls = [Call(lambda: pool.allocate(50, NEVER)) for _ in range(3)]
    clock.await_waiters(3)
    pool.close()
    assert all(isinstance(call.result(), IllegalStateError) for call in calls)
    with pytest.raises(IllegalStateError):
        pool.allocate(1, NEVER)
    pool.deallocate(90)
    assert (pool.available, pool.waiters) == (100, 0)


def test_a_total_beyond_two_gib_does_not_overflow():
    """BufferPoolTest#testLargeAvailableMemory."""
    pool = BufferPool(2**33, FakeClock())
    pool.allocate(2**32 + 1, NEVER)
    assert pool.available == 2**33 - 2**32 - 1


def test_a_recount_never_waits_even_when_it_grows():
    """An incompressible batch is a little larger than its records; its closer must not block."""
    pool = BufferPool(100, FakeClock())
    pool.allocate(100, NEVER)
    pool.adjust(100, 104)
    assert pool.available == -4
    pool.adjust(104, 20)
    assert pool.available == 80


def test_many_threads_end_with_all_memory_back():
    """BufferPoolTest#testStressfulSituation."""
    pool = BufferPool(1000, SystemClock())

    def work(seed: int) -> None:
        sizes = random.Random(seed)
        for _ in range(500):
            size = sizes.randint(1, 600)
            pool.allocate(size, NEVER)
            pool.deallocate(size)

    calls = [Call(lambda seed=seed: work(seed)) for seed in range(6)]
    assert [call.result() for call in calls] == [None] * 6
    assert (pool.available, pool.waiters) == (1000, 0)
