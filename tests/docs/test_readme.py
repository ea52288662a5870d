"""README.md: short before its Install, its figures measured ones, its links not dead."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BEFORE = README.split("## Install")[0]


def test_there_are_two_screens_before_install():
    assert len(BEFORE.splitlines()) <= 70
    assert BEFORE.count("![") == 1


def test_a_figure_is_one_of_the_benchmarks_page():
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    figures = re.findall(r"[\d.]+x \([\d.]+-[\d.]+\)|\+\d+ ms \(\+\d+ to \+\d+\)", BEFORE)
    assert len(figures) >= 7
    for figure in figures:
        assert figure.rstrip(")") in page, figure


def test_a_link_leads_to_a_file():
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", README):
        assert (ROOT / target).exists(), target
