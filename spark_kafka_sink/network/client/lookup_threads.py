"""Resolves host names on separate threads, so that the network thread never blocks. The resolver of
the operating system may block for 15 s or longer if a name server does not respond.

``host_resolver.py`` has the lookup itself. A caller that waits for the lookup uses
``bounded_lookup.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from spark_kafka_sink.network.bounded_lookup import answer_of, start
from spark_kafka_sink.network.client.host_resolver import HostResolver, numeric, resolve_host

#: The largest number of parallel lookups of a client: further names wait.
_MOST_AT_ONCE: Final = 4


class LookupThreads:
    """A ``HostResolver`` that raises BlockingIOError while another thread resolves the host name.

    When the lookup is complete, the other thread calls ``wakeup``. The caller then calls the
    resolver again and gets the result. Only one thread may use this object.
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
            start(lambda: self._look_up(host))
            self._running.add(host)
        raise BlockingIOError(f"{host} is being looked up")

    def _look_up(self, host: str) -> None:
        self._ended.put((host, answer_of(lambda: self._resolve(host))))
        self._wakeup()
