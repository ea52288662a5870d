"""What users read stays short: at most 27 900 words, 36 000 when they were first counted.

Counted are README, CHANGELOG, SECURITY and the pages of docs/ and docs/api, as ``wc -w`` does: with
code, and with the bars of tables. Not counted are what is looked up by a name (options, errors),
notebooks, and what developers read.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_WORDS = 27_900
LOOKED_UP = {"options.md", "options-by-task.md", "errors.md"}
DEVELOPERS = {"upstream-behaviours.md"}


def words_of(path: Path) -> int:
    return len(path.read_text("utf-8").split())


def test_what_users_read_has_at_most_27_900_words():
    """Each fact once: one page has it, others link there."""
    pages = [ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")]
    pages += [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "api").glob("*.md")]
    words = {path.name: words_of(path) for path in pages if path.name not in LOOKED_UP | DEVELOPERS}
    assert len(words) > 30
    longest = sorted(words.items(), key=lambda one: -one[1])[:8]
    assert sum(words.values()) <= MOST_WORDS, longest
