"""What all SASL mechanisms have in common (RFC 4422): messages in, messages out.

Owns: the :class:`SaslMechanism` protocol, and the one error with which a mechanism reports that the
broker's authentication failed. Never: bytes around a message, sockets, time.
"""

from __future__ import annotations

from typing import Final, Protocol

#: The likely cause when a name and a password are rejected.
CHECK_THE_USER: Final = (
    "are name and password right (sasl.jaas.config, or sasl.username and sasl.password), and does "
    "the broker have this user for this mechanism?"
)


class SaslMechanism(Protocol):
    """One exchange, used once: a re-authentication gets a new one.

    :meth:`first` and :meth:`answer` raise :class:`SaslError`, for a message that breaks the
    mechanism's rules or none that can be made, and KafkaError.
    """

    __slots__ = ()

    #: The mechanism's registered name, as the broker has it in sasl.enabled.mechanisms.
    name: str
    #: True when complete on the client's side, including the broker's authentication.
    complete: bool
    #: What a person should look at when the broker rejects us.
    hint: str

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown even if the broker sends it back."""
        ...

    def refused(self) -> bool:
        """Authentication failed. True when the next exchange will differ."""
        return False

    def first(self) -> bytes:
        """The first message."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The response to a message of the broker; None when the exchange is complete."""
        ...


class SaslError(Exception):
    """The error in the broker's message, without any part of it."""
