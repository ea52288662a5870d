"""The sections of a ``RESULTS.md``: each holds the newest run of the tool that writes it."""

from __future__ import annotations

import datetime as dt
import subprocess
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).with_name("RESULTS.md")


def replaced(page: str, heading: str, body: str) -> str:
    """``page`` with ``body`` as its section ``heading``; a new section comes last."""
    before, found, rest = page.partition(f"\n## {heading}\n")
    _, following, others = rest.partition("\n## ") if found else ("", "", "")
    return (
        f"{before.rstrip()}\n\n## {heading}\n\n{body.strip()}\n"
        f"{f'{following}{others}' if following else ''}"
    )


def table(head: str, rows: Iterable[Iterable[object]]) -> str:
    """A table of Markdown; ``head`` has the names of its columns, divided by ``|``."""
    rule = "|".join(["---"] * len(head.split("|")))
    lines = [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join([f"| {head} |", f"|{rule}|", *lines])


def write_section(heading: str, call: str, body: str, path: Path = PAGE) -> None:
    """Replaces section ``heading`` of the page; ``call`` is the command that was run."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=PAGE.parent, check=True,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    day = dt.datetime.now(tz=dt.UTC).date().isoformat()
    text = f"`{call}`, {day}, commit {done.stdout.strip()}.\n\n{body}"
    page = replaced(path.read_text(encoding="utf-8"), heading, text)
    path.write_text(page, encoding="utf-8")
