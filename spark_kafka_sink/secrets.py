"""Values that must not be shown. Owns: :class:`Password`. Never: where a secret comes from."""

from __future__ import annotations

from typing import Any, NoReturn

HIDDEN = "[hidden]"


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
