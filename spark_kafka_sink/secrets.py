"""Values that must not be shown.

Owns: :class:`Password`, and taking secrets out of what a server says. Never: where a secret comes
from.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus

HIDDEN = "[hidden]"

#: A shorter one can stand in any text by accident, and gives little away.
_SHORTEST_ENCODED = 8


class Password:
    """A secret string that prints as ``[hidden]`` (Kafka's ``common.config.types.Password``).

    The value is reached through :attr:`value` alone; ``str``, ``repr`` and ``format`` hide it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    @property
    def value(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Password, self._value))

    def __iter__(self) -> NoReturn:
        raise TypeError("a Password is not a sequence")

    def __getstate__(self) -> Any:  # noqa: ANN401 - pickle's own protocol is untyped
        return (None, {"_value": self._value})


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """What a server says, without the ``secrets`` that it was told; it may repeat anything.

    A secret as it is, is replaced. One that is encoded (base64, hex, URL, quoted) hides all of it:
    who sends back what we sent has nothing to say about it.
    """
    for secret in secrets:
        if not secret:
            continue
        if any(form in text for form in _encoded(secret)):
            return HIDDEN
        text = text.replace(secret, HIDDEN)
    return text


def _encoded(secret: str) -> Iterator[str]:
    raw = secret.encode("utf-8", "surrogatepass")
    forms = [raw.hex(), raw.hex().upper(), quote(raw, safe=""), quote_plus(raw)]
    forms.append(secret.replace("\\", "\\\\").replace('"', '\\"'))
    for shift in range(3):
        # Within a longer text, what stands before decides where a group of three begins; the first
        # and the last group may be mixed with neighbours.
        text = base64.b64encode(bytes(shift) + raw).decode()
        inner = text[4 if shift else 0 : len(text) // 4 * 4 - 4]
        forms += [inner, inner.replace("+", "-").replace("/", "_")]
    return (form for form in forms if len(form) >= _SHORTEST_ENCODED and form != secret)
