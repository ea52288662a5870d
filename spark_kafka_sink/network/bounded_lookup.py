"""Resolves a host name with a time limit.

:func:`resolve_within` runs the lookup on a daemon thread of its own, and waits for the result. When
the time limit is over, the caller continues. The thread ends later, when the lookup returns. A
caller that must not wait uses ``client/lookup_threads.py``.

The lookup calls the resolver of the operating system, which can't be interrupted. If a name server
does not respond, the resolver may block for 15 s or longer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from spark_kafka_sink.base.background import run_aside

T = TypeVar("T")


def resolve_within(seconds: float, host: str, look_up: Callable[[str], T]) -> T:
    """Calls ``look_up(host)`` on another thread, and returns its result. Raises OSError if the
    lookup fails, or if the lookup takes longer than ``seconds``.
    """
    late = TimeoutError(f"no answer to the lookup of its name within {max(seconds, 0):.1f} s")
    if seconds <= 0:
        raise late
    ended: SimpleQueue[T | OSError] = SimpleQueue()
    start(lambda: ended.put(answer_of(lambda: look_up(host))))
    try:
        answer = ended.get(timeout=min(seconds, threading.TIMEOUT_MAX))
    except Empty:
        raise late from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def answer_of(look_up: Callable[[], T]) -> T | OSError:
    """Calls ``look_up()``. Returns its result, or the OSError that ``look_up`` raises. If
    ``look_up`` raises any other exception, returns an OSError with the class name of the exception.
    """
    try:
        return look_up()
    except OSError as error:
        return error
    except Exception as error:  # noqa: BLE001 - whoever waits needs an answer
        return OSError(f"{type(error).__name__} in the lookup of its name")


def start(run: Callable[[], None]) -> None:
    """Starts a daemon thread that calls ``run``. Raises OSError if the operating system allows no
    more threads.
    """
    try:
        run_aside(run, "kafka-name-lookup")
    except RuntimeError as error:
        raise OSError(f"no thread for the lookup of its name: {error}") from None
