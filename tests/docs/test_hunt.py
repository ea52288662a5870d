"""hunt.toml: each question has a page within two clicks, and the page holds the answer."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = tomllib.loads((Path(__file__).parent / "hunt.toml").read_text("utf-8"))["question"]
#: The pages that are in the navigation: a tab or section, and the page.
NAVIGATION = set(re.findall(r"([a-z_/-]+)\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
#: Where the site has what lies elsewhere in the repository (tools/build_site.py).
PLACES = dict(
    re.findall(
        r'^    "([^"]+\.md)": "([^"]+)",$', (ROOT / "tools/build_site.py").read_text(), re.MULTILINE
    )
)


def test_there_are_thirty_questions_of_all_sorts_of_people():
    assert len(QUESTIONS) == 30
    asked = Counter(question["who"] for question in QUESTIONS)
    assert set(asked) >= {
        "newcomer", "migrator", "on call", "security officer", "Databricks", "Kubernetes",
        "contributor",
    }  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["asks"])
def test_the_page_holds_the_answer_and_is_two_clicks_away(question):
    text = " ".join((ROOT / question["page"]).read_text("utf-8").split())
    for words in question["words"]:
        assert " ".join(words.split()) in text, words
    if question["page"] == "README.md":
        return  # the first page of the repository and of the package index
    place = PLACES.get(question["page"], question["page"].removeprefix("docs/").removesuffix(".md"))
    assert place in NAVIGATION


def test_every_page_of_docs_is_in_the_navigation():
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs).with_suffix("")) for page in docs.rglob("*.md")}
    assert pages <= NAVIGATION
