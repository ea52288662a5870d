"""Builds the documentation site: ``make site``.

The pages are docs/, those of the repository that lie elsewhere (:data:`ELSEWHERE`), and one for
each code of an error (``error_docs.py``); where
docs/api names a class, mkdocstrings puts its docstrings. They are collected below build/, with
their links turned to where the pages are there, and mkdocs builds them strictly: a dead link or
anchor is an error.
Afterwards :func:`problems` looks at what was built: each address that an error message names must
lead somewhere, and nothing may be loaded from another host.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import error_docs  # noqa: E402 - a bare checkout

from spark_kafka_sink.base import documentation, errors  # noqa: E402
from spark_kafka_sink.base.error_kinds import Kind  # noqa: E402
from spark_kafka_sink.base.version import __version__  # noqa: E402

PAGES = ROOT / "build" / "site-pages"
#: Pages that the repository has where developers look for them, and their places in the site.
ELSEWHERE = {
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "DESIGN.md": "design/index",
    "README.md": "index",  # the home of the site is the text of the repository's front page
    "SECURITY.md": "security-policy",
    "bench/HISTORY.md": "developers/benchmark-history",
    "tests/README.md": "developers/tests",
    "tests/exactly_once/RESULTS.md": "developers/faults",
    "tests/mutation.md": "developers/mutation",
    "tests/other_brokers/RESULTS.md": "developers/other-brokers",
    "tests/simulation/RESULTS.md": "developers/simulation",
}
_LINK = re.compile(r"(?<!`)(!?\[(?:[^\[\]]|\[[^\[\]]*\])*\])\(([^)\s#]*)(#[^)\s]*)?\)")
#: Folders whose pictures are put into a page.
_PICTURES = ("pictures", "notebooks")
#: The heading of an option, with the anchor that the repository's page needs.
_OPTION = re.compile(r'^### <a id="([^"]+)"></a>`([^`]+)`$', re.MULTILINE)
#: Code before a change, and beside it the code after it.
_BESIDE = re.compile(r"^```python\n(# before +# after\n.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^ {0,3}```", re.MULTILINE)


def main() -> int:
    begun = time.monotonic()
    collect(PAGES)
    site = Path(os.environ.get("SITE_DIR") or ROOT / "build" / "site")
    environment = os.environ | {
        "NO_MKDOCS_2_WARNING": "1",  # who builds this knows what the theme's future is
        "SITE_DIR": str(site),
        "SITE_NAME": f"spark_kafka_sink {__version__}",
        "SITE_EDITION": f"spark_kafka_sink {__version__}, Apache-2.0",
        "SITE_URL": documentation.SITE and documentation.page_address("x").removesuffix("x/"),
    }
    mkdocs = (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--clean")
    done = subprocess.run(mkdocs, cwd=ROOT, env=environment, check=False)
    if done.returncode != 0:
        return done.returncode
    found = list(problems(site))
    for problem in found:
        print(problem, file=sys.stderr)
    pages = len(list(site.rglob("*.html")))
    print(f"{site}: {pages} pages in {time.monotonic() - begun:.0f} s, {len(found)} problems")
    return 1 if found else 0


def collect(into: Path) -> None:
    """All pages with their links, and docs/'s other files, below ``into``."""
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(ROOT / "docs", into, ignore=shutil.ignore_patterns("*.md"))
    places = {path: path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    places |= {ROOT / name: Path(place).with_suffix(".md") for name, place in ELSEWHERE.items()}
    for path, place in places.items():
        text = path.read_text(encoding="utf-8")
        (into / place).parent.mkdir(parents=True, exist_ok=True)
        (into / place).write_text(page(text, path, place, places), encoding="utf-8")
    index = ROOT / "docs" / f"{documentation.ERRORS_PAGE}.md"
    (into / documentation.ERRORS_PAGE).mkdir()
    for code, text in error_docs.pages():
        place = Path(documentation.ERRORS_PAGE, f"{code}.md")
        (into / place).write_text(page(text, index, place, places), encoding="utf-8")


def page(text: str, path: Path, place: Path, places: dict[Path, Path]) -> str:
    """A page as the site has it: links lead to places, pictures are in it, codes are anchors."""

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match.groups()
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        file = (path.parent / target).resolve()
        if words.startswith("!") and file.suffix == ".svg" and file.parent.name in _PICTURES:
            return picture(file, words[2:-1])
        there = places.get(file)
        if there is None:
            there = file.relative_to(ROOT / "docs") if (ROOT / "docs") in file.parents else None
        if there is None:
            raise SystemExit(f"{path}: {target} is no page of the site")
        return f"{words}({os.path.relpath(there, place.parent)}{anchor or ''})"

    parts = _FENCE.split(_OPTION.sub(r"### `\2` { #\1 .option }", text))
    parts[::2] = [_LINK.sub(link, part) for part in parts[::2]]
    text = _BESIDE.sub(_in_columns, "```".join(parts))
    # The index of errors: each code leads to its page.
    return re.sub(
        r'(<a id="kp\d+"></a>)(KP(?!1000)\d+)', rf"\1[\2]({documentation.ERRORS_PAGE}/\2.md)", text
    )


def _in_columns(match: re.Match[str]) -> str:
    """Two blocks of code in place of two columns of one: a phone shows one below the other."""
    lines = match[1].splitlines()
    at = lines[0].index("# after")
    sides = ([line[:at].rstrip() for line in lines[1:]], [line[at:] for line in lines[1:]])
    blocks = []
    for title, side in zip(("Before", "After"), sides, strict=True):
        code = "\n".join(side).strip("\n")
        blocks += [f'```python title="{title}"', code, "```", ""]
    return "\n".join(['<div class="grid" markdown>', "", *blocks, "</div>"])


def picture(file: Path, words: str) -> str:
    """The SVG itself, so that it takes the colours of the page."""
    svg = file.read_text(encoding="utf-8")
    return f'<figure class="picture">{svg.strip()}<figcaption>{words}</figcaption></figure>'


class _Page(HTMLParser):
    """Of one page: its ids, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids.add(found.get("id") or "")
        loaded = found.get("src") or (found.get("href") if tag == "link" else None)
        relation = found.get("rel") or ""
        if loaded and relation not in ("canonical", "prev", "next"):
            self.loads.append(loaded)


def problems(site: Path) -> Iterator[str]:
    """What a reader of the built site would miss, a line each."""
    pages: dict[str, _Page] = {}
    for path in site.rglob("*.html"):
        parsed = pages[str(path.relative_to(site).parent)] = _Page()
        parsed.feed(path.read_text(encoding="utf-8"))
    for name, parsed in pages.items():
        for loaded in parsed.loads:
            if "://" in loaded or loaded.startswith("//"):
                yield f"{name} loads {loaded} from another host"
    for css in (*site.rglob("*.css"), *site.rglob("*.svg")):
        for loaded in re.findall(r"url\(['\"]?(https?:[^)]+)\)", css.read_text(encoding="utf-8")):
            yield f"{css} loads {loaded} from another host"
    for where, name, anchor in named():
        if name not in pages or (anchor and anchor not in pages[name].ids):
            yield f"{where} names {name}/#{anchor}, which is not there"


def named() -> Iterator[tuple[str, str, str]]:
    """Pages and anchors that users are sent to: by whom, page, anchor."""
    kinds = [kind.kp_code for kind in Kind]
    for code in (*kinds, *(code.kp_code for code in errors.CODES)):
        yield f"the old address of {code}", documentation.ERRORS_PAGE, code.lower()
    for code, _ in error_docs.pages():
        yield f"error {code}", f"{documentation.ERRORS_PAGE}/{code}", ""
    for code, anchor in documentation.RUNBOOK.items():
        yield f"error {code}", documentation.RUNBOOK_PAGE, anchor
    call = re.compile(r'page_address\(\s*"([a-z-]+)"(?:,\s*"([a-z0-9-]+)")?\s*\)')
    for path in (ROOT / "spark_kafka_sink").rglob("*.py"):
        for name, anchor in call.findall(path.read_text(encoding="utf-8")):
            yield path.name, name, anchor
    alerts = "conf/monitoring/kprod-alerts.yml"
    text = (ROOT / alerts).read_text(encoding="utf-8")
    for found, anchor in re.findall(r"docs/([a-z-]+)\.md#([a-z0-9-]+)", text):
        yield alerts, found, anchor


if __name__ == "__main__":
    raise SystemExit(main())
