"""What users read stays short: at most 28 000 words, 31 600 when they were first counted.

Counted are README, CHANGELOG, SECURITY and the pages of docs/ and docs/api. Not counted are what is
looked up by a name (options, errors), notebooks, and what developers read.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_WORDS = 28_000
LOOKED_UP = {"options.md", "options-by-task.md", "errors.md"}
DEVELOPERS = {"upstream-behaviours.md"}


def words_of(path: Path) -> int:
    """Without what is punctuation only: lines of tables, borders, bullets."""
    return len(re.findall(r"\S*\w\S*", path.read_text("utf-8")))


def test_what_users_read_has_at_most_28_000_words():
    """Each fact once: one page has it, others link there."""
    pages = [ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")]
    pages += [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "api").glob("*.md")]
    words = {path.name: words_of(path) for path in pages if path.name not in LOOKED_UP | DEVELOPERS}
    assert len(words) > 30
    longest = sorted(words.items(), key=lambda one: -one[1])[:8]
    assert sum(words.values()) <= MOST_WORDS, longest
