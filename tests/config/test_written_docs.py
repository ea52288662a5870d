"""What the hand-written pages quote from the code stands in the code."""

import ast
import functools
import re
from pathlib import Path

import pytest

from spark_kafka_sink.cli.explanation import entries
from spark_kafka_sink.config.names.foreign_options import foreign_options
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted([*DOCS.glob("*.md"), *(DOCS / "api").glob("*.md")])]
#: What is filled in: of logging, and of a row of cross-checks.
_PLACES = re.compile(r"%[sd]|%04o|\{[\w.]+\}|<[a-z][\w.]*>")


@functools.cache
def templates():
    """Every text of the package, with ``...`` for what is filled in."""
    found = set()
    for path in (ROOT / "spark_kafka_sink").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else "..." for p in node.values]
                found.add(_PLACES.sub("...", "".join(map(str, parts))))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(_PLACES.sub("...", node.value))
    return found


QUOTED = [message for entry in entries().values() for message in entry.says]


@pytest.mark.parametrize("message", QUOTED)
def test_an_error_that_is_explained_is_one_that_we_raise(message):
    assert any(message in template for template in templates())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_an_option_that_is_named_exists(page):
    foreign = foreign_options()
    known = {*PRODUCER_OPTIONS, *foreign.owners["consumer"].names, *foreign.librdkafka}
    for name in re.findall(r"`kafka\.([a-z.]+[a-z])[=`]", page.read_text(encoding="utf-8")):
        assert name in known, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+\.md)?(#[^)]+)?\)", page.read_text(encoding="utf-8")):
        other = page.parent / target[0] if target[0] else page
        assert other.exists(), target
        if target[1]:
            text = other.read_text(encoding="utf-8")
            slugs = {
                re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
                for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            }
            slugs.update(re.findall(r'<a id="([a-z0-9-]+)"></a>', text))
            assert target[1][1:] in slugs, target
