"""Runs contenders in turn, in rounds, and repeats a round that another process has disturbed.

This module determines the order of the contenders in each round. Before the first round, each
contender runs once for warming up, which is not counted. Before and after each round, a loop runs
that always does the same. If the loop was slower than at its best, the round was disturbed. A
disturbed round is run again, up to a limit. This module does not know what a contender does.

Both times of the loop count. A longer CPU time means that the processor itself was slower, or that
other processes used its caches. A longer wall time means that other processes used the processor.
The steal time of the hypervisor and the load are shown beside the figures. On a shared machine,
neither is ever zero.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from bench.statistics import median

R = TypeVar("R")

#: A round is disturbed when the loop beside it took this much more CPU, or twice as much more wall
#: time, than it does at best.
TOO_SLOW = 1.25
#: So many more rounds, for each that was asked for, may be run for disturbed ones.
_AGAIN = 0.5
_LOOP_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of the loop, in seconds."""

    cpu: float
    wall: float


def calibrate() -> Sample:
    """A loop as an engine's: Python, and numpy over more than the caches hold."""
    numbers = np.arange(_LOOP_ROWS * 8)
    cpu, wall = time.process_time(), time.perf_counter()
    total = 0
    for number in range(_LOOP_ROWS):
        total += number & 7
    for _ in range(8):
        numbers = numbers * 3 + total
    return Sample(time.process_time() - cpu, time.perf_counter() - wall)


def stolen() -> tuple[float, float]:
    """Seconds that the hypervisor took from this machine, and all seconds, since it started."""
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]
    ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in first]
    return ticks[7], sum(ticks)


@dataclass(slots=True)
class Rounds:
    """``count`` rounds for each call of :meth:`interleaved`; what can be said of all of them."""

    count: int
    say: Callable[[str], None] = print
    samples: list[Sample] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    #: Rounds that were disturbed and run again, and that count although they were disturbed.
    repeated: int = 0
    disturbed: int = 0
    _before: tuple[float, float] = field(default_factory=stolen)

    def interleaved(self, contenders: Sequence[Callable[[], R]]) -> list[list[R]]:
        """The results of each of ``contenders``, by rounds; their order is turned each round."""
        for contender in contenders:
            contender()  # what only the first run pays: pages, caches, a broker's classes
        found: list[list[R]] = [[] for _ in contenders]
        spare = round(_AGAIN * self.count)
        number = 0
        while number < self.count:
            before = self._sample()
            results: dict[int, R] = {}
            for index in self._order(len(contenders), number):
                results[index] = contenders[index]()
            if self._is_disturbed(before, self._sample()):
                if spare:
                    spare -= 1
                    self.repeated += 1
                    self.say("a disturbed round is run again")
                    continue
                self.disturbed += 1
            for index, result in results.items():
                found[index].append(result)
            number += 1
        return found

    def conditions(self) -> str:
        """What the machine did while the rounds ran, for the head of a table."""
        taken, whole = (now - then for now, then in zip(stolen(), self._before, strict=True))
        walls = sorted(sample.wall for sample in self.samples)
        load = median(self.loads) if self.loads else os.getloadavg()[0]
        said = f"load {load:.1f} in the median, {100 * taken / max(whole, 1e-9):.1f} % stolen"
        if not self.samples:  # rounds of a child, which says its own
            return said
        slowest = walls[-1] / median(walls)
        return (
            f"{said}, the loop beside the rounds up to {slowest:.1f}x as slow as in the median; "
            f"{self.repeated} disturbed rounds run again, {self.disturbed} counted all the same"
        )

    def _sample(self) -> Sample:
        self.loads.append(os.getloadavg()[0])
        self.samples.append(calibrate())
        return self.samples[-1]

    def _order(self, contenders: int, number: int) -> Sequence[int]:
        return range(contenders) if number % 2 else range(contenders - 1, -1, -1)

    def _is_disturbed(self, *around: Sample) -> bool:
        """Against the fastest so far, because the first rounds have no others to compare with."""
        cpu = min(sample.cpu for sample in self.samples)
        wall = min(sample.wall for sample in self.samples)
        return any(s.cpu > TOO_SLOW * cpu or s.wall > 2 * TOO_SLOW * wall for s in around)
