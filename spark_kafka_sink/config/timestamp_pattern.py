"""Patterns for timestamps, such as ``yyyy-MM-dd``, with the letters of Java's DateTimeFormatter.

:func:`pattern_parts` parses a pattern. ``records/json/json_times.py`` formats timestamps with the
result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a pattern: a repeated letter or literal text. ``Part("y", 4)`` is ``yyyy``. If
    ``count`` is 0, ``text`` is literal text.
    """

    text: str
    count: int


#: How often a letter may stand in a row.
_COUNTS: Final[Mapping[str, frozenset[int]]] = {
    **dict.fromkeys("yu", frozenset({4})),
    **dict.fromkeys("MdHms", frozenset({1, 2})),
    "S": frozenset(range(1, 10)),
    **dict.fromkeys("Xx", frozenset({1, 2, 3})),
}
_OF_ZONES: Final = frozenset("Xx")
_PIECE: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z'\[\]{}#]+")


def pattern_parts(pattern: str, *, has_zone: bool = True) -> tuple[Part, ...]:
    """Splits a pattern into its parts. Raises ValueError with the reason if the pattern is not
    supported.

    If ``has_zone`` is false, letters for a time zone are not supported.
    """
    parts: list[Part] = []
    at = 0
    while at < len(pattern):
        found = _PIECE.match(pattern, at)
        if found is None:
            raise ValueError(f"{pattern[at]} has no meaning here, or a quote has no end")
        letter = found[2]
        if letter is None:
            quoted = found[1]
            text = found[0] if quoted is None else quoted.replace("''", "'") or "'"
            if escaped := next((char for char in text if char in '"\\' or char < " "), None):
                raise ValueError(f"{escaped!r} is not supported in a text")
            parts.append(Part(text, 0))
        else:
            count = len(found[0])
            if count not in _COUNTS.get(letter, ()) or (letter in _OF_ZONES and not has_zone):
                raise ValueError(f"{found[0]} is not supported")
            parts.append(Part(letter, count))
        at = found.end()
    if not any(part.count for part in parts):
        raise ValueError("No part of a timestamp is in it")
    return tuple(parts)


def checked_pattern(pattern: str, *, has_zone: bool) -> str:
    """Returns ``pattern`` if it is supported. Otherwise raises ValueError with the reason."""
    pattern_parts(pattern, has_zone=has_zone)
    return pattern
