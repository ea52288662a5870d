"""Name lookups on threads of their own: the operating system's resolver blocks, for 15 s and more
when a name server is silent.

Owns: :class:`LookupThreads`, which never blocks, for a network client; :func:`resolve_within`,
which blocks up to a deadline, for callers without one. Never: a lookup (``host_resolver.py``).

A thread can't be interrupted in the resolver. It is a daemon, ends with its lookup, and holds
nothing but the name and where its answer goes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from spark_kafka_sink.network.client.host_resolver import HostResolver, numeric, resolve_host

T = TypeVar("T")

#: Lookups of one client at once: further names wait for one of them.
_MOST_AT_ONCE: Final = 4


class LookupThreads:
    """A HostResolver that raises BlockingIOError while the host is being looked up: call it again
    after ``wakeup`` was called, by another thread. One thread uses it.
    """

    def __init__(self, wakeup: Callable[[], None], resolve: HostResolver = resolve_host) -> None:
        self._wakeup = wakeup
        self._resolve = resolve
        # Written by the lookups' threads.
        self._ended: SimpleQueue[tuple[str, list[str] | OSError]] = SimpleQueue()
        self._running: set[str] = set()
        self._answers: dict[str, list[str] | OSError] = {}

    def __call__(self, host: str) -> list[str]:
        if found := numeric(host):
            return found
        while not self._ended.empty():
            ended, answer = self._ended.get()
            self._running.discard(ended)
            self._answers[ended] = answer
        if host in self._answers:
            answer = self._answers.pop(host)
            if isinstance(answer, OSError):
                raise answer
            return answer
        if host not in self._running and len(self._running) < _MOST_AT_ONCE:
            # In this order: an interrupt between the two costs a second lookup, and no more.
            _start(lambda: self._look_up(host))
            self._running.add(host)
        raise BlockingIOError(f"{host} is being looked up")

    def _look_up(self, host: str) -> None:
        self._ended.put((host, _answer(lambda: self._resolve(host))))
        self._wakeup()


def resolve_within(seconds: float, host: str, look_up: Callable[[str], T]) -> T:
    """What ``look_up`` returns for ``host``. OSError, also when that takes longer."""
    late = TimeoutError(f"no answer to the lookup of its name within {max(seconds, 0):.1f} s")
    if seconds <= 0:
        raise late
    ended: SimpleQueue[T | OSError] = SimpleQueue()
    _start(lambda: ended.put(_answer(lambda: look_up(host))))
    try:
        answer = ended.get(timeout=min(seconds, threading.TIMEOUT_MAX))
    except Empty:
        raise late from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def _answer(look_up: Callable[[], T]) -> T | OSError:
    try:
        return look_up()
    except OSError as error:
        return error
    except Exception as error:  # noqa: BLE001 - whoever waits needs an answer
        return OSError(f"{type(error).__name__} in the lookup of its name")


def _start(run: Callable[[], None]) -> None:
    """OSError when the process may have no more threads."""
    try:
        threading.Thread(target=run, name="kafka-name-lookup", daemon=True).start()
    except RuntimeError as error:
        raise OSError(f"no thread for the lookup of its name: {error}") from None
