"""The interface of all SASL mechanisms (RFC 4422), which get and return messages.

Owns: the :class:`SaslMechanism` protocol, and the error that a mechanism raises when the broker's
authentication failed. Never: the frame around a message, sockets, time.
"""

from __future__ import annotations

from typing import Final, Protocol

#: The likely cause when a name and a password are rejected.
CHECK_THE_USER: Final = (
    "are name and password right (sasl.jaas.config, or sasl.username and sasl.password), and does "
    "the broker have this user for this mechanism?"
)


class SaslMechanism(Protocol):
    """The client's side of one exchange. A re-authentication needs a new instance.

    :meth:`first` and :meth:`answer` raise KafkaError. They raise :class:`SaslError` for a message
    that breaks the mechanism's rules, and if no valid reply is possible.
    """

    __slots__ = ()

    #: The mechanism's registered name, as the broker has it in sasl.enabled.mechanisms.
    name: str
    #: True when complete on the client's side, including the broker's authentication.
    complete: bool
    #: The things to check when the broker rejects the client.
    hint: str

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets that must not be shown even if the broker sends them back."""
        ...

    def refused(self) -> bool:
        """Notifies the mechanism that the authentication failed. Returns True if the next exchange
        will be different, so that another attempt is useful.
        """
        return False

    def first(self) -> bytes:
        """The first message to the broker."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The response to a message of the broker. None if the exchange is complete."""
        ...


class SaslError(Exception):
    """An error in the broker's message. The text of the error contains no part of the message."""
