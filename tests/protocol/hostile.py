"""What every decoder must stand: one call that tries it, and the mutations to try it with."""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st

from spark_kafka_sink.base.errors import RemoteProtocolError

T = TypeVar("T")


def parses_or_refuses(decode: Callable[[], T]) -> T | None:
    """None when it was refused. Any other exception fails the test by itself."""
    try:
        return decode()
    except RemoteProtocolError as error:
        caught = error
    assert "\n" not in caught.message
    assert caught.__cause__ is None
    assert caught.__context__ is None  # a UnicodeDecodeError would carry the broker's bytes
    return None


def refused(decode: Callable[[], object]) -> bool:
    return parses_or_refuses(decode) is None


def peak(work: Callable[[], object]) -> int:
    """The most bytes that were Python's at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def allocated(decode: Callable[[], object]) -> int:
    """Bytes at the peak of ``decode``, refused or not."""
    parses_or_refuses(decode)  # caches and lazy imports are not the answer's doing
    return peak(lambda: parses_or_refuses(decode))


def best_seconds(call: Callable[[], object], rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def mutate(draw: st.DrawFn, frame: bytes) -> bytes:
    """``frame`` with bytes changed, cut out, put in or repeated."""
    data = bytearray(frame)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        what = draw(st.sampled_from(["set", "cut", "insert", "int32", "varint"]))
        if what == "set" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif what == "cut":
            del data[at : at + draw(st.integers(1, 8))]
        elif what == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
        elif what == "int32":
            value = draw(st.sampled_from([2**31 - 1, -(2**31), -1, -2, 0, 1, 65536]))
            data[at : at + 4] = value.to_bytes(4, "big", signed=True)
        else:
            data[at : at + 1] = b"\xff" * draw(st.integers(1, 10)) + b"\x0f"
    return bytes(data)


def work(call: Callable[[], object]) -> int:
    """Functions called in ``call``, Python's and C's: how long it takes, without a clock."""
    events = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal events
        if event in ("call", "c_call"):
            events += 1

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return events
