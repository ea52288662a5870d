"""Adds a section to bench/HISTORY.md, and removes older rows of the same measurements.

For each setting and each peer, the page keeps the newest measurement. Only the sections that ``make
bench`` has written are changed. The sections after them have other tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

Line = tuple[str, str, str, str]

HISTORY = Path(__file__).with_name("HISTORY.md")
_HEAD = ("| what | kprod | peer | kprod / peer |", "|---|---|---|---|")
_OF_BENCH = re.compile(r"\d{4}-\d\d-\d\d, commit ")
_PEER = re.compile(r"\(([^()]*(?:\(\))?)\)$")
_COMMIT = re.compile(r"[0-9a-f]{7,8}")
_NUMBER = re.compile(r"[\d.,]+")


def with_section(page: str, title: str, conditions: str, lines: list[Line]) -> str:
    """``page`` with a new first section, and without the older rows of the same measurements.

    A section of ``make bench`` goes when none of its rows is the newest one.
    """
    rows = [f"| {' | '.join(line)} |" for line in lines]
    head, *sections = page.split("\n## ")
    new = "\n".join([title, "", conditions, "", *_HEAD, *rows, ""])
    return "\n## ".join([head, *_newest([new, *sections])])


def _newest(sections: list[str]) -> Iterator[str]:
    """The sections, newest first, without the rows that an earlier section of the list has."""
    measured: set[tuple[str, str, str]] = set()
    for section in sections:
        if not _OF_BENCH.match(section):
            yield section
            continue
        lines = section.split("\n")
        rows = {line: found for line in lines if (found := _measurement(line)) is not None}
        older = {line for line, found in rows.items() if found in measured}
        measured.update(rows.values())
        if older != rows.keys():
            yield "\n".join(line for line in lines if line not in older)


def _measurement(line: str) -> tuple[str, str, str] | None:
    """The setting, the unit and the peer of a row; all older commits are one peer.

    None for a line that is no row.
    """
    cells = line.strip("| ").split(" | ")
    if line in _HEAD or len(cells) != len(_HEAD[0].split(" | ")):
        return None
    what, ours, theirs, _ = cells
    peer = _PEER.search(theirs)
    name = "" if peer is None else peer[1]
    name = "an older commit" if _COMMIT.fullmatch(name) else _NUMBER.sub("", name)
    return what, _NUMBER.sub("", ours).strip(), name
