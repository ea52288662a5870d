"""What a dead letter says of itself: its headers, read back.

Owns: :class:`LetterFields`, and the names of the headers. Never: their writing
(``letter_writer``). No Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

CONNECT: Final = "__connect.errors."
OURS: Final = "__kprod.errors."


@dataclass(frozen=True, slots=True)
class LetterFields:
    """None where a record has no such header: it may be another's letter, Connect's for example."""

    topic: str | None
    reason: str | None
    code: str | None
    message: str | None
    row: int | None
    batch: int | None

    @classmethod
    def of(cls, headers: Iterable[tuple[str, bytes | None]]) -> Self:
        """Of several headers of a name the last one counts: a row may have been a letter before."""
        from spark_kafka_sink.records.bad_rows.bad_rows import TEXT_OF_CODE

        found = {
            name: value.decode(errors="replace")
            for name, value in headers
            if value is not None and name.startswith((CONNECT, OURS))
        }
        code = found.get(f"{OURS}code")
        return cls(
            found.get(f"{OURS}topic", found.get(f"{CONNECT}topic")),
            TEXT_OF_CODE.get(code or "", found.get(f"{CONNECT}exception.class.name")),
            code,
            found.get(f"{CONNECT}exception.message"),
            _number(found.get(f"{OURS}row")),
            _number(found.get(f"{OURS}batch.id")),
        )


def _number(text: str | None) -> int | None:
    """None when it is none of 64 bits: any client may write to the topic."""
    try:
        number = int(text or "")
    except ValueError:
        return None
    return number if -(2**63) <= number < 2**63 else None
