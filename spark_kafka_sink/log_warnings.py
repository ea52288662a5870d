"""Warnings: a line of the log with the code of its kind, as an error has it.

Owns: that form, and what a process said that is said once. Never: what is worth a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from spark_kafka_sink.documentation import error_url

#: More than a process has reasons to say; a text may hold a value that is new each time.
_MOST_REMEMBERED = 1_000

_said: set[str] = set()


def coded(code: str, text: str) -> str:
    """``text`` as an error's one line: its code before it, and where to read more behind it."""
    return f"[{code}] {text} (see {error_url(code)})"


def warn(
    log: logging.Logger, code: str, text: str, *values: object, level: int = logging.WARNING
) -> None:
    """``text % values`` with its code, as a warning of ``log``."""
    if log.isEnabledFor(level):
        log.log(level, "%s", coded(code, text % values), stacklevel=2)


def warn_once(log: logging.Logger, lines: Iterable[str]) -> None:
    """Each of ``lines`` that this process has not said yet, as a warning of ``log``. They have
    their codes already.
    """
    for line in lines:
        if line in _said:
            continue
        if len(_said) >= _MOST_REMEMBERED:
            _said.clear()
        _said.add(line)
        log.warning("%s", line, stacklevel=2)
