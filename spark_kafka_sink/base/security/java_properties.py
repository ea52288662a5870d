"""Parses Java's ``.properties`` format, as Kafka's command line tools do.

The rules are the rules of ``java.util.Properties.load`` for comments, separators, continued lines
and escapes. This module does not read files (``local_files`` does), and does not know the meaning
of a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANKS = " \t\f"
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SIMPLE = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ODD_BACKSLASHES = re.compile(r"(?<!\\)(?:\\\\)*\\$")


def parse_properties(text: str) -> dict[str, str]:
    """Parses ``text``. Returns a dict from each name to its value. If a name occurs twice, the
    later value is used, as in Java.
    """
    return dict(property_lines(text))


def property_lines(text: str) -> list[tuple[str, str]]:
    """Parses ``text``. Returns the pairs of name and value, in the order of the text. A name that
    occurs twice has two pairs.
    """
    return [_pair(line) for line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[str]:
    """Yields the lines of the text without comments and empty lines. If a line ends with a
    backslash, the next line is joined to it.
    """
    begun = ""
    # Not splitlines(), which has more line separators than Java.
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_BLANKS)
        if not begun and (not line or line[0] in "#!"):
            continue
        if _ODD_BACKSLASHES.search(line):
            begun += line[:-1]
            continue
        yield begun + line
        begun = ""
    if begun:
        yield begun


def _pair(line: str) -> tuple[str, str]:
    end = _end_of_name(line)
    name, rest = line[:end], line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescape(name), _unescape(rest)


def _end_of_name(line: str) -> int:
    at = 0
    while at < len(line) and line[at] not in f"=:{_BLANKS}":
        at += 2 if line[at] == "\\" else 1
    return min(at, len(line))


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        escape = match.group(1)
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        return _SIMPLE.get(escape, escape)

    decoded = _ESCAPE.sub(one, text)
    # Java's characters are UTF-16: an emoji is two escapes.
    return decoded if decoded.isascii() else _joined_surrogates(decoded)


def _joined_surrogates(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
