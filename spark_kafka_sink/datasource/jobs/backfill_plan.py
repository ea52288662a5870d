"""The plan of a backfill: ranges of a column, slices of the ranges, and the size of the next step.

A plan is recorded once (``backfill_ledger.py``) and never changes. ``backfill_rows.py`` finds the
ranges, and selects the rows of a step. The functions of this module compute only numbers, and read
no rows.

**Positions.** A plan divides the rows of the source in two stages:

1. The values of a column are divided into ranges, in ascending order. A backfill by hash has one
   range for all rows.
2. The rows of each range are divided into slices, by a hash of the row. Each range has the same
   number S of slices.

A position is the number of a slice in the whole plan: position p is slice p mod S of range p div S.
Each row of the source has exactly one position, even a row that is added later. A step writes the
rows of consecutive positions: whole ranges, or slices of one range.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import CommitError, CommitLogError

#: The number of slices of each range of a column. A range with very many rows (such as one frequent
#: value) can be written in up to as many steps.
SLICES_OF_A_RANGE: Final = 64
#: The number of slices for each step that the user wants, in a backfill by hash.
SLICES_OF_A_STEP: Final = 64
#: The number of steps that determines the first step's size if the user gives no number.
USUAL_STEPS: Final = 40
#: The largest number of rows in the first step, if the rows of the ranges are known. Before the
#: first step, the rate of the write is unknown.
FIRST_ROWS: Final = 1_000_000
#: The stage of a step may take this share of the transaction timeout.
SHARE_OF_TIMEOUT: Final = 1 / 3
#: A step is planned for this share of that time, because rates change.
_CAUTION: Final = 0.8
#: The largest ratio of a step's size to the size of the previous step.
_MOST_GROWTH: Final = 4.0
#: After a step that took too long, the next step has this fraction (1 / _CUT) of its size.
_CUT: Final = 4
#: The largest number of differences that an error names.
_SHOWN: Final = 5
#: A text in the error of a write that took too long for its transactions, and the error code of a
#: write that was refused because it would take too long.
_TOO_LONG: Final = "kafka.transaction.timeout.ms"
_RATE_TOO_LOW: Final = Kind.RATE_TOO_LOW.kp_code


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """The plan of a backfill: its ranges, and the facts that every call must share.

    - ``slices`` is the number of slices in each range. A hash of a row, modulo ``slices``, is the
      number of the row's slice.
    - ``by`` is the column that divides the rows into ranges. ``by_type`` is the type of this
      column. For a backfill by hash, ``by`` and ``by_type`` are empty, and the plan has one range.
    - ``bounds`` are the lower bounds of all ranges except the first, ascending, as texts.
    - ``rows`` has the number of rows in each range at the first call. It is empty if the rows were
      not counted.
    - ``facts`` are the options, columns and properties of the source that must be the same in each
      call.
    - ``pin`` identifies the snapshot of the source table, such as ``delta 7``. It is empty if there
      is no snapshot.
    """

    slices: int
    by: str = ""
    by_type: str = ""
    bounds: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    pin: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The number of positions of the plan: the number of ranges times ``slices``. The last
        position is ``end`` - 1.
        """
        return (len(self.bounds) + 1) * self.slices

    def weight(self, first: int, end: int) -> float:
        """The size of the slices ``first`` to ``end`` - 1. Slices are the parts of the ranges. The
        slices of all ranges are numbered consecutively, from 0.

        * If the plan has ``rows``: the size in rows. Each slice counts as an equal share of its
          range's rows, so the size of a part of a range is an estimate.
        * If ``rows`` is empty: the size in ranges. Each slice counts as 1 / ``slices``.
        """
        return self._weight_before(end) - self._weight_before(first)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.encode().encode()).hexdigest()[:32]

    def next_end(self, first: int, limit: float) -> int:
        """Returns the end of the step that begins at the position ``first``. The step has the
        positions ``first`` to end - 1. It has whole ranges, or slices of one range.

        The step is as large as possible, but its :meth:`weight` is not more than ``limit``.
        Exception: the step has at least one slice, even if this slice is larger than ``limit``.
        """
        at, within = divmod(first, self.slices)
        if within == 0 and self._weight_of(at) <= limit:
            left = limit
            while at <= len(self.bounds) and self._weight_of(at) <= left:
                left -= self._weight_of(at)
                at += 1
            return at * self.slices
        of_range = self._weight_of(at)
        fits = self.slices if of_range <= 0 else int(self.slices * limit / of_range)
        return at * self.slices + min(self.slices, within + max(1, fits))

    def difference(self, facts: Mapping[str, str]) -> str:
        """The differences between ``facts`` and the plan's facts, as text. Empty if there is no
        difference.
        """
        names = sorted(
            name
            for name in self.facts.keys() | facts.keys()
            if self.facts.get(name) != facts.get(name)
        )
        shown = [
            f"{name}: {self.facts.get(name, 'not set')} in the plan, {facts.get(name, 'not set')} "
            "now"
            for name in names[:_SHOWN]
        ]
        more = len(names) - len(shown)
        return "; ".join(shown) + (f"; and {more} more" if more else "")

    def encode(self) -> str:
        fields = {
            "slices": self.slices,
            "by": self.by,
            "byType": self.by_type,
            "bounds": self.bounds,
            "rows": self.rows,
            "pin": self.pin,
            "facts": dict(sorted(self.facts.items())),
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> BackfillPlan:
        """Parses the text of :meth:`encode`. Raises CommitLogError for any other text."""
        try:
            found = json.loads(text)
            plan = cls(
                int(found["slices"]),
                str(found["by"]),
                str(found["byType"]),
                tuple(map(str, found["bounds"])),
                tuple(map(int, found["rows"])),
                str(found["pin"]),
                {str(name): str(value) for name, value in found["facts"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            plan = cls(0)
        if plan.slices < 1 or (plan.rows and len(plan.rows) != len(plan.bounds) + 1):
            raise CommitLogError(
                "the plan of the backfill was not written by spark-kafka-sink",
                hint="no other client may write to the topic of commitLogTopic; 'kprod backfill "
                "NAME --forget' removes the plan",
            )
        return plan

    def _weight_of(self, at: int) -> float:
        return float(self.rows[at]) if self.rows else 1.0

    def _weight_before(self, position: int) -> float:
        at, within = divmod(position, self.slices)
        whole = float(sum(self.rows[:at])) if self.rows else float(at)
        part = within / self.slices * self._weight_of(at) if within else 0.0
        return whole + part


class StepSizes:
    """Computes the size of the next step from the seconds that earlier steps took.

    ``timeout_ms`` is transaction.timeout.ms. ``steps`` is the number of steps that the user wants.
    This number determines the size of the first step. If ``steps`` is 0, a default number is used.
    """

    def __init__(self, plan: BackfillPlan, timeout_ms: int, steps: int = 0) -> None:
        whole = plan.weight(0, plan.end)
        self._target_s = timeout_ms / 1000 * SHARE_OF_TIMEOUT * _CAUTION
        self._most = whole / (steps or USUAL_STEPS)
        if plan.rows:
            # The first step gets the whole first range, if that is small. Otherwise another step
            # would read the range once more for the rest of its rows.
            of_range = plan.weight(0, plan.slices)
            self._most = min(max(self._most, of_range), float(FIRST_ROWS))
        self._plan = plan

    def next_end(self, first: int) -> int:
        return self._plan.next_end(first, self._most)

    def took(self, first: int, end: int, seconds: float) -> None:
        """Adjusts the size of the next step. The step at the positions from ``first`` up to
        ``end`` - 1 was written in ``seconds``.
        """
        weight = self._plan.weight(first, end)
        if weight > 0:
            fits = self._target_s / max(seconds, 0.001)
            # (At the end of a range, a step may be smaller than allowed.)
            self._most = min(max(self._most, weight) * _MOST_GROWTH, weight * fits)

    def was_too_long(self, first: int, end: int) -> None:
        """Reduces the size of the next step. The step at the positions from ``first`` up to
        ``end`` - 1 did not end in time.
        """
        self._most = self._plan.weight(first, end) / _CUT


def took_too_long(error: str, seconds: float, timeout_ms: int) -> bool:
    """Whether a step probably failed because it was too large for its transaction. The step failed
    with ``error`` after ``seconds``.
    """
    if _RATE_TOO_LOW in error:
        return True
    return _TOO_LONG in error and seconds * 1000 >= timeout_ms / 2


def step_too_long(
    name: str, error: str, seconds: float, timeout_ms: int, *, by_column: bool
) -> CommitError:
    """Creates the error for a backfill whose smallest step is too large. The step had a single
    slice, which can't be divided, and failed with ``error`` after ``seconds``.
    """
    if _RATE_TOO_LOW in error:
        # The write was refused before the wait, so its seconds are no measure.
        return CommitError(
            f"the smallest step of the backfill '{name}' has more rows than the rate limit lets "
            f"through within kafka.transaction.timeout.ms ({timeout_ms}); nothing of it is visible",
            hint="raise maxRecordsPerSecond or maxBytesPerSecond, or set "
            "kafka.transaction.timeout.ms to more than the milliseconds that the task's error "
            "names (the brokers' transaction.max.timeout.ms is the limit), and call it again: it "
            "goes on there",
            kind=Kind.STEP_TOO_LONG,
        )
    needed = int(seconds / SHARE_OF_TIMEOUT * 1000)
    return CommitError(
        f"the smallest step of the backfill '{name}' took {seconds:.0f} s, too long for "
        f"kafka.transaction.timeout.ms ({timeout_ms}); nothing of it is visible",
        hint=f"set kafka.transaction.timeout.ms={needed} or more (the brokers' "
        "transaction.max.timeout.ms is the limit), or give the job more cores, and call it "
        "again: it goes on there"
        + ("" if by_column else "; with by= a step need not read the whole source"),
        kind=Kind.STEP_TOO_LONG,
    )
