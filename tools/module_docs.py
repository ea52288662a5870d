"""docs/design/modules-of-a-write.md, from tests/datasource/modules_of_a_write.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from tables import row

LIST = Path(__file__).parents[1] / "tests/datasource/modules_of_a_write.toml"
_PROCESSES = ("plan", "task", "commit")


def page_lines() -> Iterator[str]:
    """A table of the rooms: how many modules each process of a write imports, and the reason."""
    rooms = tomllib.loads(LIST.read_text(encoding="utf-8"))
    yield (
        "A write has three Python processes. Spark plans a batch in the first process, a task"
        " writes in the second one, and the commit runs in the third one. The table has the number"
        " of modules that each process imports, room by room, and the reason for the room. The"
        " second number of a cell is the number with exactly-once, if it differs."
    )
    yield ""
    yield (
        "The list of the modules is `tests/datasource/modules_of_a_write.toml`. A test compares its"
        " rooms with a write to a real broker (`test_a_write_imports_the_listed_rooms_only`)."
    )
    yield ""
    yield row("room", *_PROCESSES, "reason")
    yield row(*["---"] * 5)
    total = {process: _cell(list(rooms.values()), process) for process in _PROCESSES}
    for room, entry in rooms.items():
        counts = [_cell([entry], process) for process in _PROCESSES]
        yield row(f"`{room}`", *counts, str(entry["reason"]))
    yield row("all", *total.values(), "")


def _cell(entries: list[dict[str, list[str]]], process: str) -> str:
    once, least = (
        sum(len(entry.get(f"{guarantee}-{process}", [])) for entry in entries)
        for guarantee in ("exactly-once", "at-least-once")
    )
    return str(least or "") if once == least else f"{least} / {once}"
