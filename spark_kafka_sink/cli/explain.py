"""``kprod explain KP0301``: what an error means and what to do, without a network.

Owns: the command. Never: the texts (``error_kinds.py``, and ``errors.py`` for brokers' answers).
"""

from __future__ import annotations

import difflib
import re
import sys

import typer

from spark_kafka_sink.documentation import page_url, where_to_read
from spark_kafka_sink.error_kinds import ENTRIES, Kind
from spark_kafka_sink.errors import CODES, ErrorCode

#: A page of ours in the text of an entry.
_LINK = re.compile(r"\[([^]]+)]\(([a-z-]+)\.md(?:#([^)]+))?\)")


def explain(code: str) -> None:
    """Of one of our codes, or of a broker's answer by its name."""
    requested = code.strip().strip("[]").upper()
    for kind, entry in ENTRIES.items():
        if kind.kp_code == requested:
            _show(requested, entry.title, [_addressed(entry.advice)])
            return
    for answer, info in CODES.items():
        if requested in (answer.kp_code, answer.name) and answer is not ErrorCode.NONE:
            told = f"A broker's answer: {info.meaning}. The producer: {info.error_class.value}."
            helps = f"What helps: {info.hint}."
            _show(answer.kp_code, f"{answer.name} ({answer.value})", [told, helps])
            return
    known = [*Kind, *(c.kp_code for c in ErrorCode), *ErrorCode.__members__]
    near = difflib.get_close_matches(requested, known, n=1)
    raise typer.BadParameter(
        f"there is no {code!r}{f'; is it {near[0]}?' if near else ''}", param_hint="CODE"
    )


def _show(code: str, title: str, paragraphs: list[str]) -> None:
    sys.stdout.write("\n\n".join((f"{code}: {title}", *paragraphs, where_to_read(code))) + "\n")


def _addressed(markdown: str) -> str:
    """Links to our pages as URLs, because a terminal can't resolve relative links."""
    return _LINK.sub(lambda m: f"{m[1]} ({page_url(m[2], m[3] or '')})", markdown)
