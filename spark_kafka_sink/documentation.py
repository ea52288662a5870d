"""Where the documentation of this very version is.

Owns: the one address that everything shown to a user is built from. Never: a page's content. A
wheel has no docs/, so no message names a file of it: it names a page here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.version import __version__

#: The site; each release has its own copy below it, and ``latest`` is the unreleased one.
SITE: Final = "https://spark-kafka-sink.readthedocs.io/en"
#: The page of all errors, with an anchor for each code; each has a page of its own below it.
ERRORS_PAGE: Final = "errors"
#: The page of what to do, by what is seen.
RUNBOOK_PAGE: Final = "runbook"
_STANDS_STILL: Final = "a-consumer-stands-still"
_SLOW: Final = "a-job-is-slow"
_HANGS: Final = "a-job-hangs"
_MISSING: Final = "a-partition-is-missing"
#: The section of the runbook for an error, by its code, where there is one.
RUNBOOK: Final[Mapping[str, str]] = {
    "KP0301": _HANGS,  # no broker
    "KP0305": _HANGS,  # a time-out
    "KP0306": _MISSING,  # a partition without a leader
    "KP0501": _HANGS,  # a batch that expired
    "KP0502": _SLOW,  # a wait for memory
    "KP0610": _STANDS_STILL,  # not known whether a batch is committed
    "KP0611": "partial",
    "KP0621": _STANDS_STILL,  # transactions that could not be aborted
    "KP0623": _STANDS_STILL,  # and those that nobody sees
    "KP1005": _MISSING,  # LEADER_NOT_AVAILABLE
    "KP1006": _MISSING,  # NOT_LEADER_OR_FOLLOWER
    "KP1007": _HANGS,  # REQUEST_TIMED_OUT
    "KP1019": _MISSING,  # NOT_ENOUGH_REPLICAS
    "KP1020": _MISSING,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    "KP1089": _SLOW,  # THROTTLING_QUOTA_EXCEEDED
}


def page_url(page: str, anchor: str = "") -> str:
    """The address of docs/``page``.md, and of one of its headings or codes."""
    return f"{SITE}/{_edition(__version__)}/{page}/{f'#{anchor}' if anchor else ''}"


def error_url(code: str) -> str:
    """The address of what is said about an error's code, such as ``KP0301``."""
    return page_url(f"{ERRORS_PAGE}/{code}")


def runbook_url(code: str) -> str | None:
    """The address of what to do about it in the runbook, where that has a section for it."""
    anchor = RUNBOOK.get(code)
    return None if anchor is None else page_url(RUNBOOK_PAGE, anchor)


def where_to_read(code: str) -> str:
    """Both, for the end of a message."""
    runbook = runbook_url(code)
    return error_url(code) if runbook is None else f"{error_url(code)} and {runbook}"


def _edition(version: str) -> str:
    """A release's number; what is between releases (``0.2.0.dev1``, ``0.2.0+abc``) is latest."""
    return version if version.replace(".", "").isdigit() else "latest"
