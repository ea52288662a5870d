"""Where the documentation of this very version is.

Owns: the one address that everything shown to a user is built from. Never: a page's content. A
wheel has no docs/, so no message names a file of it: it names a page here.
"""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.version import __version__

#: The site; each release has its own copy below it, and ``latest`` is the unreleased one.
SITE: Final = "https://spark-kafka-sink.readthedocs.io/en"
#: The page of all errors, with an anchor for each code.
ERRORS_PAGE: Final = "errors"


def page_url(page: str, anchor: str = "") -> str:
    """The address of docs/``page``.md, and of one of its headings or codes."""
    return f"{SITE}/{_edition(__version__)}/{page}/{f'#{anchor}' if anchor else ''}"


def error_url(code: str) -> str:
    """The address of what is said about an error's code, such as ``KP0301``."""
    return page_url(ERRORS_PAGE, code.lower())


def _edition(version: str) -> str:
    """A release's number; what is between releases (``0.2.0.dev1``, ``0.2.0+abc``) is latest."""
    return version if version.replace(".", "").isdigit() else "latest"
