"""Sets how a search on the site finds a page. mkdocs calls this hook for each page (mkdocs.yml).

A page has a weight in the search, and words by which it is also found. The visible text of the page
is not changed.
"""

from __future__ import annotations

from typing import Any

#: What a page counts in a search, by the beginning of its path; the first one holds.
BOOSTS = (
    ("quick-start", 8.0),
    ("tutorial-exactly-once", 3.0),
    ("runbook", 1.6),
    ("security.md", 3.0),
    ("formats", 8.0),
    ("dead-letters", 3.0),
    ("exactly-once", 2.5),
    ("delivery-guarantees", 2.5),
    ("options.md", 1.5),
    ("tuning", 2.0),
    ("errors/", 0.5),
    ("notebooks/", 0.3),
    ("cli.md", 0.6),
    ("faq", 0.8),
    ("glossary", 0.5),
    ("options-by-task", 0.8),
)
#: Developers' pages, and the index whose codes have pages: they are found by the menu.
NOT_SEARCHED = (
    "developers/", "design/", "contributing", "changelog", "errors.md", "upstream-behaviours",
)  # fmt: skip
#: Words that people type, and that are not on the page.
FOUND_AS = {
    "quick-start.md": "How do I get started? Getting started, first steps, install, installation,"
    " hello world",
    "tutorial-exactly-once.md": "exactly once, EOS, idempotent, no duplicates, transactional sink",
    "exactly-once.md": "exactly once, EOS, transaction timeout, time-out, txnAppId, txnVersion",
    "delivery-guarantees.md": "exactly once, duplicates, lost rows",
    "runbook.md": "duplicates, rows twice, slow, hangs, nothing arrives, consumer lag, stuck,"
    " troubleshooting",
    "schedulers.md": "Airflow, backfill, cron, dbt, retry, rerun, scheduler, workflow",
    "sql.md": "SQL, INSERT INTO, CREATE TABLE, spark-sql",
    "security.md": "SASL, SASL_SSL, SASL_PLAINTEXT, SSL, TLS, mTLS, login, password, Kerberos",
    "tuning.md": "slow, performance, throughput, latency, timeout, timeouts",
    "formats.md": "avro, protobuf, json schema, schema registry, to_avro, magic byte",
    "changelogs.md": "change data feed, CDC, CDF, Debezium, upsert, delete, MERGE, changelog",
    "dead-letters.md": "dead letter, dead letter queue, DLQ, bad rows, poison pill, skip rows",
}


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:  # noqa: ANN401 - mkdocs is not here
    """Set how the page is searched, and add the words that it is found by."""
    place = page.file.src_uri
    boost = next((value for start, value in BOOSTS if place.startswith(start)), 1.0)
    search = page.meta.setdefault("search", {})
    search.setdefault("exclude", place.startswith(NOT_SEARCHED))
    search.setdefault("boost", boost)
    words = FOUND_AS.get(place)
    if words is None:
        return markdown
    title, _, rest = markdown.partition("\n")
    return f"{title}\n\n<p hidden>{words}.</p>\n{rest}"
