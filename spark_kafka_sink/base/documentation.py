"""The addresses of documentation pages for this version of the package.

Every link to the documentation begins with :data:`SITE`. This applies to the links in messages, in
the metadata of the package, and on the documentation site itself.

If no site is set, messages name a command that prints the same text, such as ``kprod explain
KP0301``. They never name a file in docs/, because the installed package does not contain docs/.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.base.version import __version__

#: The URL of the documentation site, such as ``https://NAME.readthedocs.io/en``. Each release has a
#: copy of the documentation below this URL, and ``latest`` is the copy of the unreleased version.
#: Empty as long as there is no site. Then no message has a URL.
SITE: Final[str] = ""
#: The page of all errors, with an anchor for each code. Each code also has a page below this page.
ERRORS_PAGE: Final = "errors"
#: The page of remedies by symptom.
RUNBOOK_PAGE: Final = "runbook"
_STANDS_STILL: Final = "a-consumer-stands-still"
_SLOW: Final = "a-job-is-slow"
_HANGS: Final = "a-job-hangs"
_MISSING: Final = "a-partition-is-missing"
#: The section of the runbook about an error, by the code of the error. Most errors have no section.
RUNBOOK: Final[Mapping[str, str]] = {
    "KP0301": _HANGS,  # no broker
    "KP0305": _HANGS,  # a timeout
    "KP0306": _MISSING,  # a partition without a leader
    "KP0501": _HANGS,  # a batch that expired
    "KP0502": _SLOW,  # a wait for memory
    "KP0610": _STANDS_STILL,  # not known whether a batch is committed
    "KP0611": "partial",
    "KP0621": _STANDS_STILL,  # transactions that could not be aborted
    "KP0623": _STANDS_STILL,  # and orphans that were not found
    "KP1005": _MISSING,  # LEADER_NOT_AVAILABLE
    "KP1006": _MISSING,  # NOT_LEADER_OR_FOLLOWER
    "KP1007": _HANGS,  # REQUEST_TIMED_OUT
    "KP1019": _MISSING,  # NOT_ENOUGH_REPLICAS
    "KP1020": _MISSING,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    "KP1089": _SLOW,  # THROTTLING_QUOTA_EXCEEDED
}


def page_address(page: str, anchor: str = "") -> str:
    """The address of the page ``docs/<page>.md``, as a text for messages.

    ``anchor`` is the anchor of a heading or of an error code on the page. The result is a URL. If
    no documentation site is set, the result is the name of the page in words.
    """
    if not SITE:
        return f"the page '{page}' of the documentation"
    return f"{SITE}/{_edition(__version__)}/{page}/{f'#{anchor}' if anchor else ''}"


def error_url(code: str) -> str | None:
    """The URL of the documentation of an error code such as ``KP0301``. None if this package has no
    documentation site.
    """
    return page_address(f"{ERRORS_PAGE}/{code}") if SITE else None


def where_to_read(code: str) -> str:
    """The last part of an error message: the place with more text about the error code ``code``.

    The result is the URL of the page of ``code``. If the runbook has a section about ``code``, the
    URL of the section follows. If no documentation site is set, the result is a command that prints
    the text.
    """
    if not SITE:
        return f"kprod explain {code}"
    page, anchor = page_address(f"{ERRORS_PAGE}/{code}"), RUNBOOK.get(code)
    return page if anchor is None else f"{page} and {page_address(RUNBOOK_PAGE, anchor)}"


def _edition(version: str) -> str:
    """The edition of the documentation site for a version of the package. The edition of a release
    is its version number. The edition of any other version, such as ``0.2.0.dev1`` or
    ``0.2.0+abc``, is ``latest``.
    """
    return version if version.replace(".", "").isdigit() else "latest"
