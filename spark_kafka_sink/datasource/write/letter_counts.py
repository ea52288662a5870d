"""How many rows became dead letters, and how many may. No Arrow: the driver counts, too.

Owns: :class:`LetterCount`, and the limits errors.max.records and errors.max.fraction. Never: which
rows these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import CommitError, DataError
from spark_kafka_sink.config.sink_config import DeadLetterOptions
from spark_kafka_sink.datasource.described_fields import Described

_MAX_RECORDS: Final = "errors.max.records"
#: Rows of a reason that are named.
SAMPLES: Final = 3
_NOT_VISIBLE: Final = "neither its rows nor its letters are visible"


@dataclass(frozen=True, slots=True)
class LetterSample:
    """A row that became a dead letter."""

    task: Annotated[int, Described("The DataFrame's partition.")]
    row: Annotated[int, Described("The row's number within it, from 0.")]


@dataclass(frozen=True, slots=True)
class LetterCount:
    """Rows that can't be sent for one reason."""

    code: Annotated[str, Described("The reason's code, `KP0213` for example.")]
    reason: Annotated[str, Described("The reason in words.")]
    rows: Annotated[int, Described("How many rows.", "rows")] = 0
    samples: Annotated[tuple[LetterSample, ...], Described("Three of them at most.")] = ()

    def __str__(self) -> str:
        where = ", ".join(f"row {one.row} of task {one.task}" for one in self.samples)
        return f"{self.rows} {self.reason} ({self.code}: {where})"


def listed(counts: Iterable[LetterCount]) -> str:
    """For messages."""
    return "; ".join(map(str, counts))


def summed(counts: Iterable[LetterCount]) -> tuple[LetterCount, ...]:
    """One for each reason, those with most rows first."""
    found: dict[tuple[str, str], LetterCount] = {}
    for one in counts:
        key = (one.code, one.reason)
        before = found.get(key, LetterCount(*key))
        samples = (*before.samples, *one.samples)[:SAMPLES]
        found[key] = LetterCount(*key, before.rows + one.rows, samples)
    return tuple(sorted(found.values(), key=lambda count: -count.rows))


def check_records(options: DeadLetterOptions, counts: Sequence[LetterCount], task: int) -> None:
    """DataError for a task that alone has more letters than its batch may have."""
    rows = sum(count.rows for count in counts)
    if options.max_records is not None and rows > options.max_records:
        raise DataError(
            f"partition {task} of the DataFrame: {rows} rows can't be sent, and {_MAX_RECORDS} is "
            f"{options.max_records}: {listed(counts)}",
            hint=f"correct the rows, or raise {_MAX_RECORDS}",
            kind=Kind.TOO_MANY_BAD_ROWS,
        )


def check_batch(
    options: DeadLetterOptions, counts: Sequence[LetterCount], rows_in: int, *, exactly_once: bool
) -> None:
    """CommitError for a batch with more letters than it may have; ``rows_in`` are the rows that
    came in.
    """
    visible = _NOT_VISIBLE if exactly_once else "the rows and letters that were sent stay in Kafka"
    text = f"so the batch fails; {visible}: {listed(counts)}"
    _check(options, sum(count.rows for count in counts), rows_in, text)


def check_block(options: DeadLetterOptions, rows: int, rows_in: int) -> None:
    """The same for all writes of a ``transaction`` block together: ``rows`` are their letters."""
    _check(options, rows, rows_in, f"so the transaction fails; {_NOT_VISIBLE}")


def _check(options: DeadLetterOptions, rows: int, rows_in: int, text: str) -> None:
    records, fraction = options.max_records, options.max_fraction
    if records is not None and rows > records:
        name, limit = _MAX_RECORDS, str(records)
    elif fraction is not None and rows_in and rows / rows_in > fraction:  # 0.29 * 100 < 29
        name, limit = "errors.max.fraction", str(fraction)
    else:
        return
    raise CommitError(
        f"{rows} of {rows_in} rows can't be sent, and {name} is {limit}, {text}",
        hint=f"correct the rows, or raise {name}",
        kind=Kind.TOO_MANY_BAD_ROWS,
    )
