"""What every decoder must stand: one call that tries it, and what it costs."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

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
