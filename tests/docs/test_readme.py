"""README.md: short before its Install, and its figures measured ones."""

import re
from pathlib import Path

import spark_kafka_sink

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_it_is_short_and_has_one_picture():
    assert len(README.splitlines()) <= 110
    assert README.count("![") == 1


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
        assert len(figures) >= 7
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


def test_one_round_has_no_interval():
    assert "one round each, so without intervals" in BENCHMARKS
    (row,) = re.findall(r"^\| 5000 partitions, 100 B, 1 broker \|.+", BENCHMARKS, re.MULTILINE)
    assert re.search(r"\| [\d.]+x \| [\d.]+x \|$", row)


def test_nothing_calls_itself_the_fastest():
    """No table shows it: one interval contains 1, and send() takes 3 times the CPU of others'."""
    described = [README, (ROOT / "pyproject.toml").read_text("utf-8"), spark_kafka_sink.__doc__]
    described += [path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md")]
    for text in described:
        assert not re.search(r"fastest (?:\w+ )?(?:Kafka|producer|sink)", text)
