"""Writes measured figures into the pages of :data:`PAGES`, which are otherwise written by hand.

A figure replaces the text between ``<!-- figure: NAME -->`` and ``<!-- / -->``. The figures come
from bench/HISTORY.md. ``pictures/bars.py`` computes them, also for docs/benchmarks.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tools.pictures import bars

ROOT = Path(__file__).resolve().parent.parent
#: The pages that have some.
PAGES = ("README.md", "docs/faq.md")
_MARKED = re.compile(r"(<!-- figure: ([a-z-]+) -->).*?(<!-- / -->)")


def page(name: str) -> Callable[[], str]:
    """The page with the newest figures. KeyError for a mark that names none."""

    def written() -> str:
        text = (ROOT / name).read_text(encoding="utf-8")
        found = bars.figures()
        return _MARKED.sub(lambda mark: f"{mark[1]}{found[mark[2]]}{mark[3]}", text)

    return written
