"""How many rows became dead letters, and how many may. No Arrow: the driver counts, too.

Owns: :class:`LetterCount`, and the limits errors.max.records and errors.max.fraction. Never: which
rows these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import CommitError, DataError
from spark_kafka_sink.config.sink_config import DeadLetterOptions

_MAX_RECORDS: Final = "errors.max.records"
#: Rows of a reason that are named.
SAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class LetterCount:
    """Rows of one reason in a task; ``samples`` are the numbers of the first of them."""

    code: str
    reason: str
    rows: int = 0
    samples: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LetterTotal:
    """Rows of one reason in a batch; ``samples`` are the task and the number of some of them."""

    code: str
    reason: str
    rows: int
    samples: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        where = ", ".join(f"row {row} of task {task}" for task, row in self.samples)
        return f"{self.rows} {self.reason} ({self.code}: {where})"


def totals_of(counts: Iterable[tuple[int, LetterCount]]) -> tuple[LetterTotal, ...]:
    """By reason, those with most rows first, of the counts of tasks, each with its number."""
    found: dict[tuple[str, str], LetterTotal] = {}
    for task, one in counts:
        key = (one.code, one.reason)
        before = found.get(key, LetterTotal(*key, 0, ()))
        samples = (*before.samples, *((task, row) for row in one.samples))[:SAMPLES]
        found[key] = LetterTotal(*key, before.rows + one.rows, samples)
    return tuple(sorted(found.values(), key=lambda total: -total.rows))


def check_records(options: DeadLetterOptions, counts: Iterable[LetterCount], task: int) -> None:
    """DataError for a task that alone has more letters than its batch may have."""
    totals = totals_of((task, count) for count in counts)
    rows = sum(total.rows for total in totals)
    if options.max_records is not None and rows > options.max_records:
        raise DataError(
            f"partition {task} of the DataFrame: {rows} rows can't be sent, and {_MAX_RECORDS} is "
            f"{options.max_records}: {'; '.join(map(str, totals))}",
            hint=f"correct the rows, or raise {_MAX_RECORDS}",
            kind=Kind.TOO_MANY_BAD_ROWS,
        )


def check_batch(
    options: DeadLetterOptions,
    totals: Sequence[LetterTotal],
    rows_in: int,
    *,
    exactly_once: bool,
) -> None:
    """CommitError for a batch with more letters than it may have; ``rows_in`` are the rows that
    came in.
    """
    rows = sum(total.rows for total in totals)
    records, fraction = options.max_records, options.max_fraction
    if records is not None and rows > records:
        limit = f"{_MAX_RECORDS} is {records}"
    elif fraction is not None and rows > fraction * rows_in:
        limit = f"errors.max.fraction is {fraction}"
    else:
        return
    visible = (
        "neither its rows nor its letters are visible"
        if exactly_once
        else "the rows and letters that were sent stay in Kafka"
    )
    raise CommitError(
        f"{rows} of {rows_in} rows can't be sent, and {limit}, so the batch fails; {visible}: "
        f"{'; '.join(map(str, totals))}",
        hint=f"correct the rows, or raise {limit.partition(' ')[0]}",
        kind=Kind.TOO_MANY_BAD_ROWS,
    )
