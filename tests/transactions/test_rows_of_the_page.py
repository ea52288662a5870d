"""The page of the commit protocol has the rows of the code, in the same order and words."""

from __future__ import annotations

import inspect
from pathlib import Path

from spark_kafka_sink.transactions import table

PAGE = Path(__file__).parents[2] / "docs/design/commit-protocol.md"


def rows_of_the_code() -> str:
    """As the page has them."""
    lines = ["| goal | row | then |", "|---|---|---|"]
    for goal, rows in table.TABLES.items():
        for row in rows:
            text = " ".join((inspect.getdoc(row) or "").split("\n\n")[0].split())
            text = text.removesuffix("::") + "." if text.endswith("::") else text
            lines.append(f"| {goal.__name__} | {row.__name__.replace('_', ' ')} | {text} |")
    return "\n".join(lines)


def test_the_page_has_the_rows_of_the_code() -> None:
    """(``python -m tests.transactions.test_rows_of_the_page`` writes them into the page.)"""
    assert rows_of_the_code() in PAGE.read_text()


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition("| goal | row | then |")
    after = rest.split("\n\n", 1)[1]
    PAGE.write_text(f"{before}{rows_of_the_code()}\n\n{after}")
