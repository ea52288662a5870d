"""Counts of dead letters by reason, and their limits: errors.max.records and errors.max.fraction.

The driver imports this module too, so this module does not import Arrow. ``dead_letters.py`` finds
the rows that become dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from spark_kafka_sink.base.described_fields import Described
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import CommitError, KafkaError
from spark_kafka_sink.config.sink_config import DeadLetterOptions

#: The largest number of sample rows for each reason.
SAMPLES: Final = 3
#: A text about the rows of a failed batch, first without exactly-once, then with exactly-once.
STAYS: Final = (
    "the rows and dead letters that were sent stay in Kafka",
    "its rows and its dead letters are not visible",
)


@dataclass(frozen=True, slots=True)
class LetterSample:
    """The task and the row number of a row that became a dead letter."""

    task: Annotated[int, Described("The DataFrame's partition.")]
    row: Annotated[int, Described("The row's number within this partition, from 0.")]


@dataclass(frozen=True, slots=True)
class LetterCount:
    """The number of rows that can't be sent for one reason, with some samples."""

    code: Annotated[str, Described("The reason's code, `KP0213` for example.")]
    reason: Annotated[str, Described("The reason in words.")]
    rows: Annotated[int, Described("The number of rows with this reason.", "rows")] = 0
    samples: Annotated[
        tuple[LetterSample, ...],
        Described(
            "The places of at most three of these rows, without their data. `task` is the number "
            "of the DataFrame's partition. `row` is the number of the row in this partition, from "
            "0."
        ),
    ] = ()

    def __str__(self) -> str:
        where = ", ".join(f"row {one.row} of task {one.task}" for one in self.samples)
        return f"{self.rows} {self.reason} ({self.code}: {where})"


def listed(counts: Iterable[LetterCount]) -> str:
    """The counts of dead letters as one text for a message, with the reasons and some rows."""
    return "; ".join(map(str, counts))


def summed(counts: Iterable[LetterCount]) -> tuple[LetterCount, ...]:
    """Sums counts of dead letters that have the same reason. The largest count comes first."""
    found: dict[tuple[str, str], LetterCount] = {}
    for one in counts:
        key = (one.code, one.reason)
        before = found.get(key, LetterCount(*key))
        samples = (*before.samples, *one.samples)[:SAMPLES]
        found[key] = LetterCount(*key, before.rows + one.rows, samples)
    return tuple(sorted(found.values(), key=lambda count: -count.rows))


def check_letters(
    options: DeadLetterOptions,
    rows: int,
    rows_in: int,
    then: str,
    error: type[KafkaError] = CommitError,
) -> None:
    """Raises ``error`` if there are more dead letters than errors.max.records or
    errors.max.fraction allow. ``rows`` is the number of dead letters, and ``rows_in`` the number of
    all rows. ``then`` describes the consequence in the error's message.
    """
    for name, limit, found in (
        ("errors.max.records", options.max_records, rows),
        ("errors.max.fraction", options.max_fraction, rows / max(rows_in, 1)),
    ):
        if limit is not None and found > limit:
            raise error(
                f"{rows} of {rows_in} rows can't be sent, and {name} is {limit}, {then}",
                hint=f"correct the rows, or raise {name}",
                kind=Kind.TOO_MANY_BAD_ROWS,
            )
