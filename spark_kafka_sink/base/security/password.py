"""Secret values that messages and logs must not show.

This module also removes secrets from a text that a server has sent. It does not know where a secret
comes from: ``secret_references`` does.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus, unquote_plus

HIDDEN = "[hidden]"

#: The hint for a text that is possibly a secret in a wrong place. Others can have seen this text.
REPLACE_IT = (
    "if that was a real secret, replace it: an option of a write is in Spark's event log and REST"
    " interface by now, and a command line in the shell's history and in ps"
)

#: The fewest characters of an encoded secret that is searched for. A shorter text can occur in any
#: message by chance, and reveals little.
_SHORTEST_ENCODED = 8


class Password:
    """A string that messages and logs do not show (Kafka's ``common.config.types.Password``).

    Only :attr:`value` returns the string. ``str``, ``repr`` and ``format`` return ``[hidden]``. If
    the string comes from a reference such as ``${env:NAME}``, they return the reference instead.

    Each value from a reference has this type, even a path or an address. So a message never has the
    content of a file or variable.
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
        """The reference from which the string comes, such as ``${env:NAME}``. None if the option
        contains the string itself.
        """
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
    """The value of an option as a string, even if it is a secret. Empty if the option is not set.
    Never put the result into a message: use :func:`shown_text`.
    """
    if isinstance(value, Password):
        return value.value
    return "" if value is None else str(value)


def shown_text(value: object) -> Text:
    """The value of an option, in the form for messages.

    A value from a reference becomes a Password, which shows only the reference. Any other value is
    shown as it is. So never pass the value of an option that is always a secret, such as a
    password.
    """
    if isinstance(value, Password) and value.reference is not None and value.value:
        return value
    return text_of(value)


def as_password(text: Text) -> Password:
    """Converts ``text`` to a :class:`Password`. If ``text`` is a Password already, returns ``text``
    itself.
    """
    return text if isinstance(text, Password) else Password(text)


def looked_up(*values: Text | None) -> tuple[str, ...]:
    """Returns the strings of the ``values`` that come from a reference, such as ``${env:NAME}``.

    A server may repeat these strings in a message. The caller removes the strings from the message
    with :func:`without_secrets`.
    """
    return tuple(v.value for v in values if isinstance(v, Password) and v.reference is not None)


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Removes secrets from a text that a server has sent. ``secrets`` are the secrets that the
    server got.

    Each secret in the text is replaced by ``[hidden]``. The whole text is replaced if it contains a
    secret in another letter case, or in an encoded form: base64, base32, hex, URL, HTML or quoted.
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
    """Yields the encoded forms of ``secret``, such as base64 and hex."""
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
