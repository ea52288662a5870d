"""What an error means and what to do, as text: ``kprod explain``, without a network or an extra.

Owns: reading ``errors.toml`` and how an entry is shown. Never: a text (``errors.toml``, and
``base/errors.py`` for brokers' answers).
"""

from __future__ import annotations

import difflib
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import chain

from spark_kafka_sink.base import documentation
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import CODES, ErrorCode

#: A page of ours in the text of an entry.
_LINK = re.compile(r"\[([^]]+)]\(([a-z-]+)\.md(?:#([^)]+))?\)")
#: The end of a line that goes on: neither a paragraph's nor an item's.
_GOES_ON = re.compile(r"(?<!\n)\n(?!\n|[*] )")

#: Of ours, also within a pasted message.
_CODE = re.compile(r"\bKP[0-9]{4}\b", re.IGNORECASE)
_ANSWERS = [code for code in CODES if code is not ErrorCode.NONE]


@dataclass(frozen=True, slots=True)
class Entry:
    """The documentation of a kind: ``title`` in a few words, ``says`` its messages (``...`` for
    what differs), ``advice`` in Markdown.
    """

    title: str
    advice: str
    says: tuple[str, ...] = ()


@cache
def entries() -> Mapping[Kind, Entry]:
    """Of every kind."""
    texts = tomllib.loads(files(__package__).joinpath("errors.toml").read_text("utf-8"))
    return {
        Kind(code): Entry(
            text["title"], _GOES_ON.sub(" ", text["advice"]), tuple(text.get("says", ()))
        )
        for code, text in texts.items()
    }


def explanation(code: str) -> str:
    """Of one of our codes, also within a pasted message, or of a broker's answer by its name; for
    other words the codes whose texts have most of them. LookupError names the nearest name.
    """
    pasted = _CODE.search(code)
    requested = (pasted[0] if pasted else code.strip()).upper()
    for kind, entry in entries().items():
        if kind.kp_code == requested:
            return _shown(requested, entry.title, _addressed(entry.advice))
    for answer in _ANSWERS:
        if requested in (answer.kp_code, answer.name):
            info = CODES[answer]
            told = f"A broker's answer: {info.meaning}. The producer: {info.error_class.value}."
            helps = f"What helps: {info.hint}."
            return _shown(answer.kp_code, f"{answer.name} ({answer.value})", helps, told)
    near = difflib.get_close_matches(requested, _names_like(requested), n=1)
    if not pasted and (" " in requested or not near) and (found := _found(code)):
        return "".join(f"{code}  {title}\n" for code, title in found.items())
    raise LookupError(
        f"there is no {code!r}; {f'is it {near[0]}? ' if near else ''}'kprod explain' lists all"
    )


def list_of_codes() -> str:
    """Every code with its title, in lines."""
    titles = _titles()
    return "".join(f"{code}  {titles[code]}\n" for code in sorted(titles))


def _titles() -> dict[str, str]:
    """By code: those of our kinds, and the names of brokers' answers."""
    titles = {kind.kp_code: entry.title for kind, entry in entries().items()}
    return titles | {c.kp_code: f"{c.name} ({c.value})" for c in _ANSWERS}


def _found(text: str) -> dict[str, str]:
    """The titles by code of up to five texts that have the words of ``text``, the best first: a
    word counts by how few texts have it, and twice in a title. A word that none has counts as the
    one that it looks like.
    """
    titles = _titles()
    texts = {kind.kp_code: " ".join((*e.says, e.advice)) for kind, e in entries().items()}
    texts |= {c.kp_code: f"{CODES[c].meaning} {CODES[c].hint}" for c in _ANSWERS}
    in_title = {code: _words(title) for code, title in titles.items()}
    words = {code: in_title[code] | _words(texts[code]) for code in titles}
    texts_with = Counter(chain.from_iterable(words.values()))
    known = sorted(texts_with)
    wanted = chain.from_iterable(
        difflib.get_close_matches(word, known, n=1, cutoff=0.75) for word in _words(text)
    )
    ranks: dict[str, float] = defaultdict(float)
    for word in sorted(set(wanted)):
        for code, has in words.items():
            if word in has:
                ranks[code] += (2 if word in in_title[code] else 1) / texts_with[word]
    best = sorted(ranks, key=ranks.__getitem__, reverse=True)[:5]
    return {code: titles[code] for code in best if ranks[code] > ranks[best[0]] / 3}


def _words(text: str) -> set[str]:
    """The words of ``text`` that tell something."""
    return set(re.findall(r"[a-z]{4,}", text.lower()))


def main(arguments: list[str]) -> int:
    """Prints it where nothing of the command line but this is installed. The exit code."""
    try:
        sys.stdout.write(explanation(" ".join(arguments)) if arguments else list_of_codes())
    except LookupError as error:
        sys.stderr.write(f"kprod explain: {error}\n")
        return 2
    return 0


def _names_like(requested: str) -> list[str]:
    """What ``requested`` may be a misspelling of; a whole code only of one of its area."""
    codes = [*Kind, *(c.kp_code for c in _ANSWERS)]
    if _CODE.fullmatch(requested):
        return [code for code in codes if code[:4] == requested[:4]]
    return [*codes, *(c.name for c in _ANSWERS)]


def _shown(code: str, title: str, *paragraphs: str) -> str:
    """With the address of its page, where there is one; else with its section of the runbook."""
    section = documentation.RUNBOOK.get(code, "").replace("-", " ")
    more = f"In the runbook: {section}." if section else ""
    if documentation.SITE:
        more = documentation.where_to_read(code)
    return "\n\n".join(filter(None, (f"{code}: {title}", *paragraphs, more))) + "\n"


def _addressed(markdown: str) -> str:
    """Links to our pages as addresses, because a terminal can't resolve relative links."""

    def address(link: re.Match[str]) -> str:
        if not documentation.SITE:
            return link[1]
        return f"{link[1]} ({documentation.page_address(link[2], link[3] or '')})"

    return _LINK.sub(address, markdown)
