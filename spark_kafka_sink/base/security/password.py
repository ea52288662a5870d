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
    """A string that messages and logs do not show (Kafka's ``common.config.types.Password``).

    Only :attr:`value` returns the string. ``str``, ``repr`` and ``format`` return ``[hidden]``. If
    the string was looked up by a reference, they return the reference. This holds for every option,
    even for a path or an address, so that the content of a file or a variable never appears in
    messages.
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
        """The reference by which the value was looked up. None for an inline value."""
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
    """The text of an option, including a secret, for the code that uses it. Empty if the option is
    not set.
    """
    if isinstance(value, Password):
        return value.value
    return "" if value is None else str(value)


def shown_text(value: object) -> Text:
    """The text of an option that is no secret, for messages. If the value was looked up by a
    reference, the value stays hidden.
    """
    if isinstance(value, Password) and value.reference is not None and value.value:
        return value
    return text_of(value)


def as_password(text: Text) -> Password:
    """Converts ``text`` to a :class:`Password`. A value that was looked up by a reference keeps
    this reference.
    """
    return text if isinstance(text, Password) else Password(text)


def looked_up(*values: Text | None) -> tuple[str, ...]:
    """The values that were looked up by reference. A server may repeat them in its responses, and
    messages must not show them.
    """
    return tuple(v.value for v in values if isinstance(v, Password) and v.reference is not None)


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Removes secrets from a server's text. ``secrets`` are the secrets that were sent to the
    server, because the server may repeat them.

    A plain secret in the text is replaced. If the text has an encoded secret (base64, base32, hex,
    URL, HTML, quoted) or a secret in another letter case, the whole text is hidden.
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
