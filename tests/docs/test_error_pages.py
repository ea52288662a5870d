"""The site's page of each error: all codes have one, where messages lead, with links that hold."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from spark_kafka_sink.documentation import ERRORS_PAGE, error_url
from spark_kafka_sink.error_kinds import ENTRIES
from spark_kafka_sink.errors import CODES, ErrorCode

TOOLS = Path(__file__).resolve().parents[2] / "tools"
KINDS = {kind.kp_code: entry.title for kind, entry in ENTRIES.items()}
ANSWERS = {code.kp_code: code.name for code in CODES if code is not ErrorCode.NONE}


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
    pages = {path.stem: path.read_text("utf-8") for path in (site / ERRORS_PAGE).iterdir()}
    assert set(pages) == set(KINDS) | set(ANSWERS)
    for code, text in pages.items():
        assert error_url(code).endswith(f"/{ERRORS_PAGE}/{code}/")
        assert text.startswith(f"# {code}: {(KINDS | ANSWERS)[code]}")
        assert f"kprod explain {code}" in text


def test_its_links_lead_to_pages_and_back_to_the_index(site):
    for path in (site / ERRORS_PAGE).iterdir():
        text = path.read_text("utf-8")
        assert f"](../errors.md#{path.stem.lower()})" in text
        for target in re.findall(r"]\(([^)#]+)", text):
            assert "://" in target or (path.parent / target).is_file(), (path.name, target)
