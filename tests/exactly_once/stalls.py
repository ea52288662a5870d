"""How long consumers with read_committed stood still, watched while a scenario runs.

A transaction that is open holds up every reader of its partition: that is right while its batch is
under way, and a stall once the batch has ended. What was in a partition when a batch ended (its end
offset, the "high watermark") must be below the last stable offset soon after.
"""

from __future__ import annotations

import bisect
import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.exactly_once.checker import new_admin, offsets

#: Between two looks.
EVERY_S = 0.2

#: End and last stable offset of each partition of the topic.
Places = dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Stall:
    """``seconds`` after ``end`` (of a batch), readers of ``partition`` had not got beyond what was
    there when it ended.
    """

    end: str
    partition: int
    seconds: float

    def __str__(self) -> str:
        return f"partition {self.partition} for {self.seconds:.1f} s after {self.end}"


class StallWatch:
    """Looks at ``topic`` until it is closed, on a thread of its own. A look that fails (a broker is
    away) is left out, and that time does not count.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._admin = new_admin(bootstrap)
        self._closed = threading.Event()
        self._looks: list[tuple[float, Places]] = []
        self._thread = threading.Thread(target=self._watch, name=f"stalls of {topic}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """After one more look."""
        if not self._closed.is_set():
            self._closed.set()
            self._thread.join()
            self._look()

    def worst(self, ends: Sequence[tuple[float, str]]) -> Stall | None:
        """The longest stall after these ends; None without one that was seen."""
        return worst_stall(self._looks, ends)

    def _watch(self) -> None:
        while not self._closed.wait(EVERY_S):
            self._look()

    def _look(self) -> None:
        with contextlib.suppress(Exception):  # the next look may find it
            found = offsets(self._bootstrap, [self._topic], self._admin)
            self._looks.append((time.time(), {p: at for (_, p), at in found.items()}))


def worst_stall(
    looks: Sequence[tuple[float, Places]], ends: Sequence[tuple[float, str]]
) -> Stall | None:
    """``looks`` are in the order of time, which is seconds, as in ``ends``."""
    worst: Stall | None = None
    times = [at for at, _ in looks]
    for at, end in ends:
        first = bisect.bisect_right(times, at)
        if first == 0:
            continue
        for partition, (high, _) in looks[first - 1][1].items():
            seconds = 0.0
            before = at
            for then, places in looks[first:]:
                # Between two looks that are far from each other nobody knows.
                seconds += min(then - before, 1.0)
                before = then
                if places.get(partition, (0, 0))[1] >= high:
                    break
            if worst is None or seconds > worst.seconds:
                worst = Stall(end, partition, seconds)
    return worst
