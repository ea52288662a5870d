"""Suggests the correct form of a misspelled name or a wrong value, for the hint of an error.

The caller passes the correct names or values. This module also knows the words of other systems for
some values, and converts numbers with a unit to plain numbers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

#: difflib's time is quadratic, and nothing legal is longer.
_LONGEST = 100

#: Correct values, by the words of other systems (in the form of ``letters``). For these words, the
#: most similar value would be wrong.
_OTHER_WORDS = {
    "tls": "SSL",
    "plain": "PLAINTEXT",
    "sasl": "SASL_SSL",
    "p12": "PKCS12",
    "pfx": "PKCS12",
    "atmostonce": "none",
    "eos": "exactly-once",
    "uncompressed": "none",
    "oauth": "OAUTHBEARER",
    "iam": "AWS_MSK_IAM",
    "kerberos": "GSSAPI",
    "yes": "true",
    "on": "true",
    "1": "true",
    "no": "false",
    "off": "false",
    "0": "false",
}

_WITH_UNIT = re.compile(r"([0-9][0-9_ ,]*)\s*([a-z]*)", re.IGNORECASE)
_MILLISECONDS = {"ms": 1, "s": 1_000, "sec": 1_000, "second": 1_000, "seconds": 1_000,
                 "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
                 "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000}  # fmt: skip
_BYTES = {"b": 1, "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mb": 1 << 20,
          "mib": 1 << 20, "g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30}  # fmt: skip


def letters(text: str) -> str:
    """Returns ``text`` in lower case without separators. ``atLeastOnce`` and ``at_least_once`` both
    become ``atleastonce``.
    """
    return "".join(c for c in text.lower() if c.isalnum())


def nearest_name(key: str, names: Iterable[str], least: float = 0.6) -> str | None:
    """Finds the name in ``names`` that is most similar to ``key``. Returns None if no name is
    similar enough. ``key`` must be in lower case.

    ``least`` is the required similarity: 0 accepts any name, 1 accepts only an equal name.
    """
    by_key = {name.lower(): name for name in names}
    close = difflib.get_close_matches(key[:_LONGEST], by_key, n=1, cutoff=least)
    return by_key[close[0]] if close else None


def nearest_value(text: str, choices: Iterable[str]) -> str | None:
    """Finds the value in ``choices`` that the user probably meant by ``text``. Returns None if no
    value is probable.

    Numbers are never suggested, because a wrong number is not a misspelling of another number.
    """
    by_letters = {letters(c): c for c in choices if any(map(str.isalpha, c))}
    key = letters(text[:_LONGEST])
    other = _OTHER_WORDS.get(key)
    if other in by_letters.values():
        return other
    close = difflib.get_close_matches(key, by_letters, n=1)
    return by_letters[close[0]] if close else None


def plain_number(text: str, option: str) -> str | None:
    """Converts a number with a unit to the plain number that ``option`` expects. Separators in the
    number are removed.

    The end of the option's name shows its unit:

    * ``.ms`` is an option in milliseconds. ``5s`` becomes 5000.
    * ``.bytes``, ``.size`` or ``.memory`` is an option in bytes. ``16 MiB`` becomes 16777216.

    Returns None if ``text`` is not a number, or if its unit does not fit the option.
    """
    match = _WITH_UNIT.fullmatch(text.strip()[:_LONGEST])
    if match is None:
        return None
    units = {"": 1}
    if option.endswith(".ms"):
        units |= _MILLISECONDS
    elif option.endswith((".bytes", ".size", ".memory")):
        units |= _BYTES
    factor = units.get(match[2].lower())
    digits = "".join(filter(str.isdigit, match[1]))
    return None if factor is None or len(digits) > 20 else str(int(digits) * factor)
