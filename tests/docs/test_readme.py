"""README.md: its log line is the real one, and its figures were measured."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_its_log_line_has_fields_of_the_real_one():
    (line,) = re.findall(r"^kprod wrote (.*)$", README, re.MULTILINE)
    named = set(re.findall(r"(\w+)=", line))
    source = (ROOT / "spark_kafka_sink/datasource/report/log_line.py").read_text("utf-8")
    assert len(named) >= 6
    assert {name for name in named if f'"{name}"' not in source} == set()


BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
_RATIO = re.compile(r"([\d.]+x \(([\d.]+)-([\d.]+))[^)]*\)")


def test_a_figure_is_one_of_the_benchmarks_page():
    """The FAQ said 1.2 where the README said 1.29, and 40 ms where it said 21."""
    for name in ("README.md", "docs/faq.md"):
        page = (ROOT / name).read_text("utf-8")
        figures = [found[0] for found in _RATIO.findall(page)]
        figures += re.findall(r"\+\d+ ms \(\+\d+ to \+\d+", page)
        assert len(figures) >= 3
        assert [figure for figure in figures if figure not in BENCHMARKS] == []
        # Nothing of speed is written by hand.
        by_hand = re.sub(r"<!-- figure: .*?<!-- / -->", "", page)
        assert re.findall(r"\b\d[\d.]* times|[\d.]+x\b|\+\d+ ms", by_hand) == []


def test_an_interval_that_holds_1_shows_no_difference():
    """But in the table of all figures, where each has its interval."""
    pages = {ROOT / "README.md", *(ROOT / "docs").glob("*.md")} - {ROOT / "docs/benchmarks.md"}
    for path in pages:
        for _, low, high in _RATIO.findall(path.read_text("utf-8")):
            if float(low) <= 1 <= float(high):
                line = next(one for one in path.read_text("utf-8").splitlines() if low in one)
                assert "no difference shown" in line, (path.name, line)
