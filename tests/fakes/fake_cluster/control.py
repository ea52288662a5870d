"""Faults that a test lays in the way of requests, and the proof that each was met.

The idea is franz-go's kfake control functions: a fault waits for the requests that fit it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes.fake_cluster.codec import Request

FOREVER = -1


class Kind(Enum):
    ANSWER = "answer"
    DELAY = "delay"
    DROP = "drop"
    CUT = "cut"
    HOLD = "hold"


@dataclass(eq=False)
class Fault:
    """``fired`` counts the requests it was met by."""

    kind: Kind
    api: int
    times: int
    node: int | None = None
    topic: str | None = None
    partition: int | None = None
    nth: int | None = None
    where: Callable[[Request], bool] = lambda request: True
    #: What is answered: an error, a kio entity, or a function of the request that makes one.
    answer: ErrorCode | Any = None
    #: The request is worked on before the fault comes in.
    processed: bool = False
    delay_ms: int = 0
    fired: int = 0
    seen: int = field(default=0, repr=False)

    def meets(self, request: Request, node: int) -> bool:
        if request.api != self.api or self.node not in (None, node) or not self.where(request):
            return False
        if self.topic is not None and self.topic not in _topics(request):
            return False
        self.seen += 1
        if self.nth is not None and self.seen < self.nth:
            return False
        if self.times != FOREVER and self.fired >= self.times:
            return False
        self.fired += 1
        return True

    def stop(self) -> None:
        """No other request meets it."""
        self.times = self.fired

    def covers(self, topic: str | None, partition: int) -> bool:
        return self.topic in (None, topic) and self.partition in (None, partition)


def _topics(request: Request) -> set[str]:
    body = request.body
    lists = [
        getattr(body, name, None) or () for name in ("topic_data", "topics", "v3_and_below_topics")
    ]
    return {
        str(getattr(topic, "name", None) or getattr(topic, "topic", None) or "")
        for topics in lists
        for topic in topics
    }


class Control:
    """All faults of one cluster. Filters (all must fit): node, topic, partition, nth, where.

    ``times`` is how many requests are met, or :data:`FOREVER`; ``nth`` the first of the fitting
    requests that matches, from 1. ``partition`` restricts an error answer to Produce to it. Call
    :meth:`check` at the end of a test: a fault that was never met proves nothing.
    """

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def answer(self, api: int, answer: Any, times: int = 1, **filters: Any) -> Fault:
        """Answer this (an ErrorCode, a kio entity, a function of the request) instead of working.

        With ``processed=True`` the request is worked on first. To Produce an error is returned for
        the partitions that fit; the others are worked on as ever.
        """
        return self._add(Fault(Kind.ANSWER, int(api), times, answer=answer, **filters))

    def delay(self, api: int, milliseconds: int, times: int = 1, **filters: Any) -> Fault:
        """Work on the request now and answer that much later."""
        return self._add(Fault(Kind.DELAY, int(api), times, delay_ms=milliseconds, **filters))

    def hold(self, api: int, milliseconds: int, times: int = 1, **filters: Any) -> Fault:
        """Work on the request that much later, as if it had been on its way for so long."""
        return self._add(Fault(Kind.HOLD, int(api), times, delay_ms=milliseconds, **filters))

    def drop(self, api: int, times: int = 1, *, processed: bool = True, **filters: Any) -> Fault:
        """Never answer; the connection stays and takes the next request."""
        return self._add(Fault(Kind.DROP, int(api), times, processed=processed, **filters))

    def cut(self, api: int, times: int = 1, *, processed: bool = True, **filters: Any) -> Fault:
        """Close the connection instead of an answer."""
        return self._add(Fault(Kind.CUT, int(api), times, processed=processed, **filters))

    def clear(self) -> None:
        """Heal: no fault fires any more. Those that fired stay known to :meth:`check`."""
        for fault in self.faults:
            fault.times = fault.fired

    def check(self) -> None:
        """AssertionError for a fault that no request met."""
        never = [fault for fault in self.faults if not fault.fired]
        assert not never, f"laid, and never met: {never}"

    def _add(self, fault: Fault) -> Fault:
        assert fault.times == FOREVER or fault.times > 0
        self.faults.append(fault)
        return fault

    def met_by(self, request: Request, node: int) -> list[Fault]:
        """The faults of this request: at most one of each kind, the one laid first."""
        met: dict[Kind, Fault] = {}
        for fault in self.faults:
            if fault.kind is not Kind.HOLD and fault.kind not in met and fault.meets(request, node):
                met[fault.kind] = fault
        return list(met.values())

    @property
    def may_hold(self) -> bool:
        """A request may be held."""
        return any(f.kind is Kind.HOLD and f.times != f.fired for f in self.faults)

    def held_by(self, request: Request, node: int) -> Fault | None:
        """The fault that holds this request."""
        holds = (fault for fault in self.faults if fault.kind is Kind.HOLD)
        return next((fault for fault in holds if fault.meets(request, node)), None)
