"""Looks at the built site in headless Chromium: ``make site-test``.

The pages of :data:`LOOKS`, light and dark, wide and narrow: no page may be wider than its window, a
line of text has at most 80 characters, nothing may be asked of another host, and no script may
fail. A search must find a page, and the filter of the options must leave those with its words. The
screenshots are in build/screenshots, for a person to look at. Chromium is the system's
(``apt install chromium``).
"""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import TimeoutError as NothingFound

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"
SCREENSHOTS = ROOT / "build" / "screenshots"
LOOKS = (
    "",
    "quick-start",
    "how-it-works",
    "options",
    "options-by-task",
    "errors",
    "delivery-guarantees",
    "exactly-once",
    "benchmarks",
    "migration",
    "api/spark",
    "notebooks/tuning",
    "runbook",
    "errors/KP0301",
)
SIZES = {"wide": (1366, 900), "narrow": (390, 844)}
SCHEMES = ("light", "dark")
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
#: What people type, and the pages of which one must be among the first two found.
SEARCHES = {
    "KP0311": ("errors/KP0311",),
    "transactionalIdPrefix": ("exactly-once", "options"),
    "exactly once": ("tutorial-exactly-once", "exactly-once", "delivery-guarantees"),
    "duplicates": ("runbook", "delivery-guarantees"),
    "how do I get started": ("quick-start",),
    "install": ("quick-start",),
    "SASL": ("security",),
    "SASL_SSL": ("security",),
    "slow": ("runbook", "tuning"),
    "timeout": ("exactly-once", "tuning"),
    "nothing arrives": ("runbook",),
    "schema registry": ("formats",),
    "avro": ("formats", "notebooks/schemas"),
    "dead letter": ("dead-letters",),
}
#: Of a line of text, at most.
_CHARACTERS = 80
#: The most characters a line that a paragraph of at least four lines has on average.
_LONGEST_LINE = """Math.max(0, ...[...document.querySelectorAll('article > p')].map(p => {
    const lines = p.getBoundingClientRect().height / parseFloat(getComputedStyle(p).lineHeight);
    return lines < 4 ? 0 : p.textContent.length / lines;
}))"""
#: What Chromium would ask of its maker by itself.
_QUIET = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
)


def main() -> int:
    chromium = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if chromium is None:
        print("no Chromium on PATH: apt install chromium", file=sys.stderr)
        return 1
    shutil.rmtree(SCREENSHOTS, ignore_errors=True)
    SCREENSHOTS.mkdir(parents=True)
    with served(SITE) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=_QUIET)
        found = [*looks(browser, address), *searches(browser, address), *filters(browser, address)]
        browser.close()
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{SCREENSHOTS}: {len(list(SCREENSHOTS.iterdir()))} pictures, {len(found)} problems")
    return 1 if found else 0


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Says nothing."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The address of a server of ``site`` on this machine."""
    handler = functools.partial(_Silent, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def looks(browser: Browser, address: str) -> Iterator[str]:
    """What is wrong with the pages' looks, a line each."""
    for size, (width, height) in SIZES.items():
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page = context.new_page()
            heard = list_problems(page, address)
            for name in LOOKS:
                page.goto(f"{address}/{name}/" if name else f"{address}/", wait_until="load")
                label = f"{name or 'home'} ({size}, {scheme})"
                shown = page.evaluate("document.body.getAttribute('data-md-color-scheme')")
                if shown != {"light": "default", "dark": "slate"}[scheme]:
                    yield f"{label} is shown in {shown}"
                wide = page.evaluate("document.documentElement.scrollWidth")
                if wide > width:
                    yield f"{label} is {wide} pixels wide: {_widest(page, width)}"
                if (longest := page.evaluate(_LONGEST_LINE)) > _CHARACTERS:
                    yield f"{label} has lines of {longest:.0f} characters"
                file = f"{name.replace('/', '-') or 'home'}-{size}-{scheme}.png"
                page.screenshot(path=SCREENSHOTS / file)
            yield from heard
            context.close()


def list_problems(page: Page, address: str) -> list[str]:
    """A list that fills with what the page asks of others, and with its scripts' errors."""
    heard: list[str] = []

    def asked(url: str) -> None:
        if not url.startswith((address, "data:", "blob:")):
            heard.append(f"{page.url} asks for {url}")

    page.on("request", lambda request: asked(request.url))
    page.on("pageerror", lambda error: heard.append(f"{page.url}: {error}"))
    # (A request that the next page's load has ended is no failure.)
    page.on(
        "requestfailed",
        lambda request: (
            None
            if request.failure == "net::ERR_ABORTED"
            else heard.append(f"{request.url} is not there")
        ),
    )
    return heard


def _widest(page: Page, width: int) -> str:
    """The elements that stick out, and are cut off by nothing."""
    found = page.evaluate(
        """width => [...document.querySelectorAll('.md-content *')]
            .filter(e => e.getBoundingClientRect().right > width + 1).slice(0, 3)
            .map(e => e.tagName + ': ' + e.textContent.slice(0, 40))""",
        width,
    )
    return "; ".join(found)


def searches(browser: Browser, address: str) -> Iterator[str]:
    """What people type must lead to a page that they want, by the first two that are found."""
    page = browser.new_page()
    for words, wanted in SEARCHES.items():
        page.goto(f"{address}/", wait_until="load")
        page.fill(".md-search__input", words)
        # Filling is an "input", which the search does not listen for: it reads the words when it is
        # ready, or when its box gets the focus (the moment before they are filled in) or a key.
        page.press(".md-search__input", "End")
        first = ".md-search-result__item > .md-search-result__link"
        try:
            page.wait_for_selector(first, timeout=120_000, state="attached")
        except NothingFound:
            yield f"the search finds nothing for {words!r}"
            continue
        links = [link.get_attribute("href") or "" for link in page.query_selector_all(first)[:2]]
        if not any(f"/{name}" in link for link in links for name in wanted):
            yield f"the search for {words!r} leads to {links}"
    page.close()


def filters(browser: Browser, address: str) -> Iterator[str]:
    """The box above the options hides the options without its words, and chapters without any."""
    page = browser.new_page()
    page.goto(f"{address}/options/", wait_until="load")
    page.fill(".option-filter", "registry transient")
    shown = page.locator("h3.option:visible").all_inner_texts()
    if len(shown) != 1 or "schema.registry.request.timeout.ms" not in shown[0]:
        yield f"the filter of the options leaves {shown}"
    page.fill(".option-filter", "no such words")
    if page.locator("h2:visible", has_text="importance").count():
        yield "the filter of the options leaves chapters without an option"
    page.close()


if __name__ == "__main__":
    raise SystemExit(main())
