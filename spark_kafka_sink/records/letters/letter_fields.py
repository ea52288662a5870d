"""Reads the fields of a dead letter from its headers.

The constants are the prefixes of the headers' names. This module does not import Arrow.
``letter_writer`` writes dead letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

CONNECT: Final = "__connect.errors."
OURS: Final = "__kprod.errors."
#: The text of an integer. The column of a DataFrame has 64 bits for the integer.
_NUMBER: Final = re.compile("-?[0-9]{1,19}")


def letter_fields(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str | int | None]:
    """Reads the fields of a dead letter from its headers: code, reason, topic, batch, row and
    message.

    A field is None if the record does not have the field's header: not every program that writes
    dead letters writes all headers. If a header occurs several times, the last one counts.
    """
    from spark_kafka_sink.records.bad_rows.bad_rows import TEXT_OF_CODE

    found = {name: value.decode(errors="replace") for name, value in headers if value is not None}
    code = found.get(f"{OURS}code")
    return {
        "code": code,
        "reason": TEXT_OF_CODE.get(code or "", found.get(f"{CONNECT}exception.class.name")),
        "topic": found.get(f"{OURS}topic", found.get(f"{CONNECT}topic")),
        "batch": _number(found.get(f"{OURS}batch.id")),
        "row": _number(found.get(f"{OURS}row")),
        "message": found.get(f"{CONNECT}exception.message"),
    }


def _number(text: str | None) -> int | None:
    """Parses ``text`` as an integer. Returns None if ``text`` is not an integer. (Other clients can
    write any text.)
    """
    number = int(text) if text is not None and _NUMBER.fullmatch(text) else None
    return number if number is None or -(1 << 63) <= number < 1 << 63 else None
