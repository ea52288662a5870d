"""Unique secrets, and the search for them in whatever a job leaves behind."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_plus

#: In each: characters that base64, URLs, JSON and JAAS write in another way.
_SPICE = 'p%/"+='


def new_canary(*, spicy: bool = True) -> str:
    """Random, so that a hit is no accident."""
    return f"{secrets.token_hex(9)}{_SPICE if spicy else ''}{secrets.token_hex(9)}"


def forms(secret: str) -> dict[str, bytes]:
    """How a secret may look by the time it has leaked: name of the form to its bytes.

    Base64 depends on where in a longer text the secret began: three ways, each without the ends
    that its neighbours decide. A half of it is enough, in case somebody cuts.
    """
    raw = secret.encode()
    half = raw[len(raw) // 2 :] if len(raw) >= 32 else raw
    found = {"raw": raw, "half": half, "hex": raw.hex().encode(), "HEX": raw.hex().upper().encode()}
    found["url"], found["url+"] = quote(secret, safe="").encode(), quote_plus(secret).encode()
    found["escaped"] = secret.replace("\\", "\\\\").replace('"', '\\"').encode()
    found["utf-16"] = secret.encode("utf-16-le")
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + raw)
        whole = text[4 if shift else 0 : len(text) // 4 * 4 - 4]
        found[f"base64+{shift}"] = whole
        found[f"base64url+{shift}"] = whole.replace(b"+", b"-").replace(b"/", b"_")
    return found


@dataclass(frozen=True, order=True)
class Hit:
    """``secret`` by its name, never by its value: a failing test is a log, too."""

    place: str
    secret: str
    form: str


def search(places: Iterable[tuple[str, bytes]], canaries: Mapping[str, str]) -> set[Hit]:
    """Every form of every canary (name to value) in every place (name to content)."""
    looked_for = {name: forms(value) for name, value in canaries.items()}
    return {
        Hit(place, name, form)
        for place, content in places
        for name, known in looked_for.items()
        for form, octets in known.items()
        if octets in content
    }


def files_below(directory: Path, label: str) -> Iterator[tuple[str, bytes]]:
    """The content of every file, and the paths themselves: a file's name can tell, too."""
    names = []
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        names.append(name)
        if path.is_file():
            yield f"{label}/{name}", path.read_bytes()
    yield f"{label} (names)", "\n".join(names).encode()
