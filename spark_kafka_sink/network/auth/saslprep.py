"""SASLprep (RFC 4013): normalizes names and passwords. Texts that look the same but have different
code points become equal.

``sasl_scram.py`` decides whether a password is normalized.
"""

from __future__ import annotations

import stringprep
import unicodedata

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str) -> str | None:
    """Normalizes ``text`` by SASLprep as a "query string" (RFC 3454, 7), in which unassigned code
    points are allowed. Returns None if ``text`` contains prohibited characters.
    """
    mapped = "".join(
        " " if stringprep.in_table_c12(c) else c for c in text if not stringprep.in_table_b1(c)
    )
    # RFC 3454 refers to Unicode 3.2, and so do the names that servers have stored.
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(prohibited(c) for c in prepared for prohibited in _PROHIBITED):
        return None
    return prepared if _directions_agree(prepared) else None


def _directions_agree(text: str) -> bool:
    """True if ``text`` has no right-to-left character, or if it follows RFC 3454, 6: it begins and
    ends with a right-to-left character and has no left-to-right character.
    """
    if not any(stringprep.in_table_d1(c) for c in text):
        return True
    return (
        stringprep.in_table_d1(text[0])
        and stringprep.in_table_d1(text[-1])
        and not any(stringprep.in_table_d2(c) for c in text)
    )
