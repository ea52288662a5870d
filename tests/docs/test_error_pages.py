"""The site's page of each error: all codes have one, where messages lead, with links that hold."""

from __future__ import annotations

import re
import runpy
import sys
from collections import Counter
from pathlib import Path

import pytest

from spark_kafka_sink.base.documentation import ERRORS_PAGE, RUNBOOK
from spark_kafka_sink.base.errors import CODES, ErrorCode
from spark_kafka_sink.cli.explanation import entries

TOOLS = Path(__file__).resolve().parents[2] / "tools"
KINDS = {kind.kp_code: entry.title for kind, entry in entries().items()}
ANSWERS = {code.kp_code: code.name for code in CODES if code is not ErrorCode.NONE}
MEANINGS = {code.kp_code: code.info.meaning for code in CODES}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """What make site hands to mkdocs."""
    into = tmp_path_factory.mktemp("site") / "pages"
    before = list(sys.path)
    sys.path.insert(0, str(TOOLS))
    try:
        runpy.run_path(str(TOOLS / "build_site.py"))["collect"](into)
    finally:
        sys.path[:] = before
    return into


def test_each_code_has_a_page_where_its_message_leads(site):
    """An answer's begins with its meaning. The runbook is a paragraph of its own: it was glued to
    the last point of a list, which is about something else.
    """
    pages = {path.stem: path.read_text("utf-8") for path in (site / ERRORS_PAGE).iterdir()}
    assert set(pages) == set(KINDS) | set(ANSWERS)
    for code, text in pages.items():
        assert text.startswith(f"# {code}: {(KINDS | ANSWERS)[code]}")
        assert f"kprod explain {code}" in text
        if code in ANSWERS:
            meaning = text.split("\n\n")[1].replace("\\_", "_")
            assert meaning[1:] == f"{MEANINGS[code][1:]}."
        assert code not in RUNBOOK or "\n\nRunbook: [" in text


def test_its_links_lead_to_pages_and_back_to_the_index(site):
    for path in (site / ERRORS_PAGE).iterdir():
        text = path.read_text("utf-8")
        assert f"](../errors.md#{path.stem.lower()})" in text
        for target in re.findall(r"]\(([^)#]+)", text):
            assert "://" in target or (path.parent / target).is_file(), (path.name, target)


#: What an advice tells one to do. (A word of this list may come first, or behind what happens.)
_DOES = re.compile(
    r"\b(ask|check|connect|create|do|give|lower|mend|needs|raise|report|run|see|set|start|stop|use|wait)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("code", sorted(CODES), ids=lambda code: code.name)
def test_each_answer_of_a_broker_says_what_to_do(code):
    """45 of 69 pages had the error's name, its meaning, and nothing that a reader can do."""
    hint = code.info.hint
    if code is ErrorCode.NONE:
        assert hint == ""
        return
    assert _DOES.search(hint), hint
    assert len(hint.split()) >= 4
    # A retried one first passes by itself.
    assert not hint.startswith("if the error") or code.info.error_class.value.startswith(
        "retriable"
    )


def test_an_advice_belongs_to_few_answers():
    """One that fits everything helps with nothing."""
    advices = Counter(code.info.hint for code in CODES)
    assert [advice for advice, times in advices.items() if times > 2] == []
