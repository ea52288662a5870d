"""``kprod explain``: explains an error, and how to resolve it. It needs neither a network nor the
extra ``cli``.

This module searches for an entry and formats it. ``errors.toml`` has the texts of this package's
errors, ``base/errors.py`` has the texts of brokers' errors, and ``words.toml`` has words that users
type when they search.
"""

from __future__ import annotations

import difflib
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import chain

from spark_kafka_sink.base import documentation
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import CODES, ErrorClass, ErrorCode

#: A page of ours in the text of an entry.
_LINK = re.compile(r"\[([^]]+)]\(([a-z-]+)\.md(?:#([^)]+))?\)")
#: The end of a line that continues on the next line, and does not end a paragraph or an item.
_GOES_ON = re.compile(r"(?<!\n)\n(?!\n|[*] )")

#: Of ours, also within a pasted message.
_CODE = re.compile(r"\bKP[0-9]{4}\b", re.IGNORECASE)
#: Lines that a search shows.
_MOST_FOUND = 5
_ANSWERS = [code for code in CODES if code is not ErrorCode.NONE]

_RETRIED = (
    "The client sends the request again, with growing pauses. A record batch is sent again until a"
    " broker acknowledges it, or until `kafka.delivery.timeout.ms` is over."
)
#: What the client does after a broker's error.
REACTIONS: Mapping[ErrorClass, str] = {
    ErrorClass.SUCCESS: "The producer counts the record batch as written.",
    ErrorClass.RETRIABLE: _RETRIED,
    ErrorClass.REFRESH_METADATA: (
        f"{_RETRIED} The client also requests the current leader of each partition."
    ),
    ErrorClass.FIND_COORDINATOR: (
        "The client looks up the coordinator, and sends the request again, with growing pauses."
    ),
    ErrorClass.SEQUENCE: (
        "The producer either sends the record batch again, or waits until a later record batch is"
        " acknowledged, or fails the task. The results of the partition's other record batches"
        " decide this."
    ),
    ErrorClass.FATAL: (
        "The request fails. If a task has sent the request, the task also fails, and Spark may run"
        " the task again."
    ),
}
#: What the producer does after MESSAGE_TOO_LARGE, in place of a text of :data:`REACTIONS`.
_TOO_LARGE = (
    "If the record batch has several records, the producer splits it, and sends the parts. If the"
    " record batch has one record, the request fails. If a task has sent this request, the task"
    " also fails, and Spark may run the task again."
)
_COMMIT_LOG_TOPIC = (
    "The option `commitLogTopic` names the topic in which exactly-once writes record their commits"
    " ([commit log](glossary.md)). If this topic is missing, the sink creates it."
)


@dataclass(frozen=True, slots=True)
class Entry:
    """The documentation of an error code.

    * ``title``: a few words.
    * ``advice``: Markdown.
    * ``says``: the messages of errors with this code, with ``...`` in place of the parts that vary.
    """

    title: str
    advice: str
    says: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Phrase:
    """Words that users type when they search, such as "connection refused", and the result of the
    search: an error code, or a section of the runbook.
    """

    words: frozenset[str]
    code: str = ""
    section: str = ""


@cache
def _phrases() -> tuple[_Phrase, ...]:
    """The phrases of ``words.toml``."""
    table = tomllib.loads(files(__package__).joinpath("words.toml").read_text("utf-8"))

    def split(text: str) -> list[frozenset[str]]:
        return [frozenset(_every_word(phrase)) for phrase in text.split(",")]

    of_codes = [_Phrase(w, code=c) for c, text in table["codes"].items() for w in split(text)]
    sections = table["runbook"].items()
    return (*of_codes, *(_Phrase(w, section=s) for s, text in sections for w in split(text)))


def sections() -> set[str]:
    """The sections of the runbook that a search can find, as anchors such as ``a-job-is-slow``.
    ``words.toml`` lists the words for each section.
    """
    return {phrase.section for phrase in _phrases() if phrase.section}


@cache
def entries() -> Mapping[Kind, Entry]:
    """The documentation of every error code of this package."""
    texts = tomllib.loads(files(__package__).joinpath("errors.toml").read_text("utf-8"))
    return {
        Kind(code): Entry(
            text["title"], _GOES_ON.sub(" ", text["advice"]), tuple(text.get("says", ()))
        )
        for code, text in texts.items()
    }


def explanation(code: str) -> str:
    """Explains the error ``code``, or searches for the words in ``code``:

    - If ``code`` is an error code, a message with an error code, or Kafka's name of an error, the
      result is the explanation of the error.
    - For any other text, the result is a list of error codes and sections of the runbook that match
      the words of the text. The best match comes first.

    Raises LookupError if nothing is found. The message of the LookupError suggests a similar error
    code or name, if there is one.
    """
    pasted = _CODE.search(code)
    requested = (pasted[0] if pasted else code.strip()).upper()
    for kind, entry in entries().items():
        if kind.kp_code == requested:
            return _shown(requested, entry.title, _addressed(entry.advice))
    for answer in _ANSWERS:
        if requested in (answer.kp_code, answer.name):
            paragraphs = map(_addressed, advice_for(answer))
            return _shown(answer.kp_code, f"{answer.name} ({answer.value})", *paragraphs)
    near = difflib.get_close_matches(requested, _names_like(requested), n=1)
    found = {} if pasted else _by_phrase(code)
    if not pasted and (" " in requested or not near or found):
        found |= {code: title for code, title in _found(code).items() if code not in found}
    if found:
        return "".join(f"{place}  {title}\n" for place, title in list(found.items())[:_MOST_FOUND])
    raise LookupError(
        f"there is no {code!r}; {f'is it {near[0]}? ' if near else ''}'kprod explain' lists all"
    )


def advice_for(answer: ErrorCode) -> Iterator[str]:
    """The explanation of a broker's error, as paragraphs in Markdown: the meaning of the error, the
    next step of the producer, the option in the remedy, the remedy, and the exception.
    """
    info = CODES[answer]
    yield _sentence(info.meaning)
    too_large = answer is ErrorCode.MESSAGE_TOO_LARGE
    yield _TOO_LARGE if too_large else REACTIONS[info.error_class]
    if "commitLogTopic" in info.hint:
        yield _COMMIT_LOG_TOPIC
    yield _sentence(info.hint)
    if info.error_class is not ErrorClass.SUCCESS:
        yield f"The exception of this error is `{info.error_type.__name__}`."


def _sentence(text: str) -> str:
    """A meaning or a hint, as one or several sentences."""
    return f"{text[0].upper()}{text[1:]}."


def list_of_codes() -> str:
    """A list of all error codes, one line each, with code and title."""
    titles = _titles()
    return "".join(f"{code}  {titles[code]}\n" for code in sorted(titles))


def _titles() -> dict[str, str]:
    """Titles by error code, for this package's errors and for brokers' errors."""
    titles = {kind.kp_code: entry.title for kind, entry in entries().items()}
    return titles | {c.kp_code: f"{c.name} ({c.value})" for c in _ANSWERS}


def _by_phrase(text: str) -> dict[str, str]:
    """Searches the phrases of ``words.toml``. A phrase matches if all of its words are in ``text``.
    Returns the error codes and runbook sections of the matching phrases, with their titles. The
    results of longer phrases come first.
    """
    typed = _every_word(text)
    hits = [phrase for phrase in _phrases() if phrase.words <= typed]
    titles, found = _titles(), dict[str, str]()
    for phrase in sorted(hits, key=lambda one: -len(one.words)):
        if phrase.section:
            found.setdefault("runbook", phrase.section.replace("-", " ").capitalize())
        else:
            found.setdefault(phrase.code, titles[phrase.code])
    return found


def _found(text: str) -> dict[str, str]:
    """Searches for the words of ``text``. Returns up to five entries as a map from error code to
    title. The best entry is the first.

    A rare word counts more, and a word in a title counts twice. A word that no entry has is
    replaced by the most similar word that an entry has.
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


def _every_word(text: str) -> set[str]:
    """The words of ``text`` in lower case, with apostrophes."""
    return set(re.findall(r"[a-z0-9']+", text.lower()))


def _words(text: str) -> set[str]:
    """The words of ``text`` with four letters or more, in lower case."""
    return set(re.findall(r"[a-z]{4,}", text.lower()))


def main(arguments: list[str]) -> int:
    """Runs ``kprod explain`` without Typer, for an installation without the extra ``cli``. Returns
    the exit code.
    """
    try:
        sys.stdout.write(explanation(" ".join(arguments)) if arguments else list_of_codes())
    except LookupError as error:
        sys.stderr.write(f"kprod explain: {error}\n")
        return 2
    return 0


def _names_like(requested: str) -> list[str]:
    """The known codes and names that are compared with ``requested`` to find a misspelling. If
    ``requested`` is a complete code such as ``KP0399``, only codes with the same first four
    characters are compared.
    """
    codes = [*Kind, *(c.kp_code for c in _ANSWERS)]
    if _CODE.fullmatch(requested):
        return [code for code in codes if code[:4] == requested[:4]]
    return [*codes, *(c.name for c in _ANSWERS)]


def _shown(code: str, title: str, *paragraphs: str) -> str:
    """Formats the explanation of an error code, with the address of its documentation page. If the
    documentation has no website, names the section of the runbook instead.
    """
    section = documentation.RUNBOOK.get(code, "").replace("-", " ")
    more = f"In the runbook: {section}." if section else ""
    if documentation.SITE:
        more = documentation.where_to_read(code)
    return "\n\n".join(filter(None, (f"{code}: {title}", *paragraphs, more))) + "\n"


def _addressed(markdown: str) -> str:
    """Replaces relative links to the documentation by addresses, because a terminal can't resolve
    relative links. If the documentation has no website, replaces them by the names of the pages.
    """

    def address(link: re.Match[str]) -> str:
        return f"{link[1]} ({documentation.page_address(link[2], link[3] or '')})"

    return _LINK.sub(address, markdown)
