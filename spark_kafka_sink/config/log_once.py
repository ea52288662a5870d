"""Warnings that a process says once.

Owns: what was said. Never: what is worth a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

#: More than a process has reasons to say; a text may hold a value that is new each time.
_MOST_REMEMBERED = 1_000

_said: set[str] = set()


def warn_once(log: logging.Logger, texts: Iterable[str]) -> None:
    """Each of ``texts`` that this process has not said yet, as a warning of ``log``."""
    for text in texts:
        if text in _said:
            continue
        if len(_said) >= _MOST_REMEMBERED:
            _said.clear()
        _said.add(text)
        log.warning("%s", text)
