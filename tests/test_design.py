"""DESIGN.md names tests for its invariants, and files for the way of a record: they exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DESIGN = "\n".join(
    page.read_text()
    for page in (ROOT / "DESIGN.md", *sorted((ROOT / "docs" / "design").glob("*.md")))
)
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^\s*def (test_\w+)\(", path.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+)`", DESIGN))))
def test_a_test_that_guards_an_invariant_exists(name):
    assert name in TESTS


def test_every_invariant_names_its_guard():
    rows = re.findall(r"^\| .+ \| .* \| (.+) \|$", DESIGN.split("## Non-obvious")[1], re.MULTILINE)
    rows = [row for row in rows if row not in ("test", "because") and not set(row) <= {"-"}]
    invariants = [row for row in rows if "`" in row]
    assert len(invariants) > 20


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py|[a-z_]+\.py)`", DESIGN)))
)
def test_a_file_on_the_way_of_a_record_exists(path):
    assert (ROOT / path).exists() or (ROOT / "spark_kafka_sink" / path).exists()
