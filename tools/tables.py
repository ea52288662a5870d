"""Pieces of generated pages: paragraphs, and tables whose cells link the pages that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator


def paragraph(*lines: str) -> str:
    return " ".join(lines)


def heading(title: str, *columns: str, text: str = "", level: int = 2) -> Iterator[str]:
    """A heading, a paragraph when there is one, and the head of a table."""
    yield from (f"{'#' * level} {title}", "")
    if text:
        yield from (text, "")
    yield from (row(*columns), "|" + "---|" * len(columns))


def row(*cells: str) -> str:
    """A row; a page that a cell names is a link to it."""
    shown = (linked(cell).replace("|", "\\|").replace("\n", " ") for cell in cells)
    return "| " + " | ".join(shown) + " |"


def linked(text: str) -> str:
    """``text``, with a link for each page that it names, such as ``tuning.md#preflight``."""
    return re.sub(
        r"(?<![\[\w./-])(?<!\]\()([a-z-]+)\.md(#[a-z0-9-]*[a-z0-9])?(?![\w-])",
        lambda found: f"[{found[1]}]({found[0]})",
        text,
    )


def anchor_of(name: str) -> str:
    """Of an option: ``kafka-batch-size`` of ``kafka.batch.size``."""
    return name.lower().replace(".", "-")
