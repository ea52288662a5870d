"""The result of a call of ``backfill``, and the line that shows each step.

:class:`StepLines` writes the lines to a terminal or a file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TextIO

from spark_kafka_sink.datasource.jobs.backfill_ledger import Progress


@dataclass(frozen=True, slots=True)
class BackfillStep:
    """A step of a backfill that was written.

    - ``version`` is the step's txnVersion. Versions rise, but not always by 1.
    - ``rows`` is the number of the step's rows.
    - ``bytes`` are the bytes of the step's keys and values.
    - ``seconds`` is the duration of the write.
    - ``share`` is the fraction of the source's rows that this step and all earlier steps have
      written, from 0 to 1. It is an estimate.
    """

    version: int
    rows: int
    bytes: int
    seconds: float
    #: For the estimate, all slices of a range count as equally large. If the first call did not
    #: count the rows, all ranges also count as equally large.
    share: float


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """The state of a backfill after a call of ``backfill``.

    - ``finished`` is true if all steps are written.
    - ``stopped_by`` is the reason why the call ended early: ``SIGTERM``, or ``on_step returned
      False``. It is empty if the backfill is finished.
    - ``steps`` is the number of written steps that had rows, in all calls.
    - ``rows``, ``bytes`` (of keys and values) and ``seconds`` are totals of the written steps of
      all calls.
    - ``written`` are the steps that this call has written.

    If a call was killed, its last step may be missing in the totals and in ``steps``.
    """

    name: str
    finished: bool
    stopped_by: str
    steps: int
    rows: int
    bytes: int
    seconds: float
    written: tuple[BackfillStep, ...] = ()

    def __str__(self) -> str:
        state = "is finished" if self.finished else f"was stopped ({self.stopped_by})"
        return (
            f"backfill '{self.name}' {state}: {totals(self.steps, self.rows, self.bytes, ', ')} "
            f"in {clock(self.seconds)}. Steps written by this call: {len(self.written)}"
        )


def line_of(name: str, progress: Progress, step: BackfillStep) -> str:
    """The log line of a step, with the totals of the backfill.

    An example: ``orders-2026  42%  17 steps  412,000,000 rows  38.2 GB  16.9 MB/s  0:52:40 left``.
    """
    rate = step.bytes / 1e6 / step.seconds if step.seconds else 0.0
    seconds = progress.ms / 1000
    left = seconds / step.share - seconds if step.share else 0.0
    return (
        f"{name}  {step.share:.0%}  {totals(progress.steps, progress.rows, progress.bytes)}  "
        f"{rate:.1f} MB/s  {clock(left)} left"
    )


@dataclass(slots=True)
class StepLines:
    """Writes the lines of steps to ``stream``.

    If ``rewrites`` is true, ``stream`` is a terminal, and each line takes the place of the previous
    line. If ``rewrites`` is false, each step has a line of its own.
    """

    stream: TextIO
    rewrites: bool
    _width: int = 0

    def show(self, line: str) -> None:
        if self.rewrites:
            # A line that is wider than the terminal would go on in a second one, which stays.
            if columns := os.get_terminal_size(self.stream.fileno()).columns:  # 0 if unknown
                line = line[: columns - 1]
            line, self._width = f"\r{line:<{self._width}}", len(line)
        else:
            line += "\n"
        self.stream.write(line)
        self.stream.flush()

    def end(self) -> None:
        """Ends the rewritten line, so that the next output does not join it."""
        if self._width:
            self.stream.write("\n")
            self.stream.flush()


def totals(steps: int, rows: int, size: int, between: str = "  ") -> str:
    """Steps, rows and bytes of a backfill as text, such as ``17 steps  2,000 rows  38.2 GB``. Less
    than a gigabyte is shown in megabytes.
    """
    of_steps, of_rows = (
        f"{count:,} {noun}{'s' * (count != 1)}" for count, noun in ((steps, "step"), (rows, "row"))
    )
    in_bytes = f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
    return between.join((of_steps, of_rows, in_bytes))


def clock(seconds: float) -> str:
    """Formats seconds as hours, minutes and seconds, such as ``1:02:03``."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
