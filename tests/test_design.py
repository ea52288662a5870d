"""The design pages name tests, files, rules and steps, and the code names them, too: they exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DESIGN = (ROOT / "DESIGN.md").read_text()
PAGES = {
    page.name: page.read_text()
    for page in (
        ROOT / "DESIGN.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "tests" / "exactly_once" / "README.md",
        *sorted((ROOT / "docs" / "design").glob("*.md")),
    )
}
CODE = {
    path: path.read_text()
    for room in ("spark_kafka_sink", "tests", "tools", "bench")
    for path in sorted((ROOT / room).rglob("*.py"))
}
TESTS = {
    name
    for path, text in CODE.items()
    if path.name.startswith("test_")
    for name in re.findall(r"^\s*def (test_\w+)\(", text, re.MULTILINE)
}
RULES = set(re.findall(r"^- \*\*(R\d+)\.", DESIGN, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_a_test_that_guards_an_invariant_exists(page):
    assert set(re.findall(r"`(test_\w+)`", PAGES[page])) - TESTS == set()


@pytest.mark.parametrize("page", PAGES)
def test_a_file_that_a_page_names_exists(page):
    for name in re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]*(?:\.py)?|[a-z_]+\.py)`", PAGES[page]):
        places = (ROOT / name, ROOT / "spark_kafka_sink" / name)
        assert any(place.exists() for place in places), name


def test_the_code_names_no_rule_that_the_design_lacks():
    assert RULES
    for path, text in CODE.items():
        assert re.findall(r"[Rr]ules? \d", text) == [], path
        named = re.findall(r"[Rr]ules? (R\d+)(?: and (R\d+))?", text)
        assert {rule for pair in named for rule in pair if rule} <= RULES, path


def test_the_code_numbers_the_steps_of_a_record_as_the_design():
    way = DESIGN.split("## The way of a record")[1].split("\n## ")[0]
    steps = set(re.findall(r"^\| (\d+) \|", way, re.MULTILINE))
    for path, text in CODE.items():
        named = re.findall(r"[Ss]teps? (\d+)(?: (?:and|to) (\d+))? of a\s+record", text)
        assert {step for pair in named for step in pair if step} <= steps, path


def test_the_code_names_no_page_that_is_not_here():
    for path, text in CODE.items():
        for name in re.findall(r"(?<![\w./-])(?:docs/|docs/design/)?[A-Za-z-]+\.md\b", text):
            places = (ROOT / name, ROOT / "docs" / name, path.parent / name, ROOT / "tests" / name)
            places += (ROOT / "docs" / "design" / name, ROOT / "docs" / "notebooks" / name)
            assert any(place.exists() for place in places), f"{path}: {name}"
