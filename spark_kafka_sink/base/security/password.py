"""Secret values, which must not be shown.

Owns: :class:`Password`, and removing secrets from a server's text. Never: the source of a secret.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus, unquote_plus

HIDDEN = "[hidden]"

#: The hint for what may be a secret in a wrong place, which others saw before us.
REPLACE_IT = (
    "if that was a real secret, replace it: an option of a write is in Spark's event log and REST"
    " interface by now, and a command line in the shell's history and in ps"
)

#: A shorter one may occur in any text by chance, and reveals little.
_SHORTEST_ENCODED = 8


class Password:
    """A string that is not shown (Kafka's ``common.config.types.Password``).

    Only :attr:`value` returns the value; ``str``, ``repr`` and ``format`` print ``[hidden]``, or
    ``reference`` for a resolved reference. This holds for every option, even for a path or an
    address: the content of a file or a variable never appears in messages.
    """

    __slots__ = ("_reference", "_value")

    def __init__(self, value: str, reference: str | None = None) -> None:
        self._value = value
        self._reference = reference

    @property
    def value(self) -> str:
        return self._value

    @property
    def reference(self) -> str | None:
        """The reference that was resolved; None for an inline value."""
        return self._reference

    def __repr__(self) -> str:
        return HIDDEN if self._reference is None else self._reference

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Password, self._value))

    def __iter__(self) -> NoReturn:
        raise TypeError("a Password is not a sequence")

    def __getstate__(self) -> Any:  # noqa: ANN401 - pickle's own protocol is untyped
        return (None, {"_value": self._value, "_reference": self._reference})


#: Text of an option: as given, or the value of a reference.
Text = str | Password


def text_of(value: object) -> str:
    """The text of an option, for use; empty if the option is not set."""
    if isinstance(value, Password):
        return value.value
    return "" if value is None else str(value)


def shown_text(value: object) -> Text:
    """The text of an option that is no secret, for messages; a resolved reference stays hidden."""
    if isinstance(value, Password) and value.reference is not None and value.value:
        return value
    return text_of(value)


def as_password(text: Text) -> Password:
    """``text`` as a :class:`Password`; a resolved value keeps its reference."""
    return text if isinstance(text, Password) else Password(text)


def looked_up(*values: Text | None) -> tuple[str, ...]:
    """The secrets that were looked up by reference, which messages must not show if a server
    repeats them.
    """
    return tuple(v.value for v in values if isinstance(v, Password) and v.reference is not None)


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """A server's text without the ``secrets`` that were sent to the server, which may repeat them.

    A plain secret in the text is replaced. If the text has an encoded secret (base64, base32, hex,
    URL, HTML, quoted) or a secret in another case, the whole text is hidden: a server that echoes a
    secret has no useful message.
    """
    for secret in secrets:
        if not secret:
            continue
        text = text.replace(secret, HIDDEN)
        views = {text.casefold(), unescape(text).casefold(), unquote_plus(text).casefold()}
        if any(form in view for form in _encoded(secret) for view in views):
            return HIDDEN
    return text


def _encoded(secret: str) -> Iterator[str]:
    """The forms that ``secret`` may have in a text, ignoring case."""
    raw = secret.encode("utf-8", "surrogatepass")
    forms = [secret, raw.hex(), quote(raw, safe=""), quote_plus(raw)]
    forms.append(secret.replace("\\", "\\\\").replace('"', '\\"'))
    for encode, group, letters in ((base64.b64encode, 3, 4), (base64.b32encode, 5, 8)):
        for shift in range(group):
            # Within a longer text, the bytes before decide where a group of bytes begins; the
            # first and the last group may be mixed with neighbours.
            text = encode(bytes(shift) + raw).decode()
            inner = text[letters if shift else 0 : len(text) // letters * letters - letters]
            forms += [inner, inner.replace("+", "-").replace("/", "_")]
    return (form.casefold() for form in forms if len(form) >= _SHORTEST_ENCODED)
