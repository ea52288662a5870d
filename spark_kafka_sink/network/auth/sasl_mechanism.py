"""The interface of SASL mechanisms (RFC 4422), and the error of a mechanism.

A mechanism creates and checks messages. It does not create the frame around a message, uses no
socket, and reads no clock.
"""

from __future__ import annotations

from typing import Final, Protocol

#: The likely cause when a name and a password are rejected.
CHECK_THE_USER: Final = (
    "are name and password right (sasl.jaas.config, or sasl.username and sasl.password), and does "
    "the broker have this user for this mechanism?"
)


class SaslMechanism(Protocol):
    """The client's part of one SASL exchange. A re-authentication needs a new object.

    :meth:`first` and :meth:`answer` raise :class:`SaslError` if the broker's message breaks the
    rules of the mechanism, or if the next message can't be created. :meth:`first` also raises
    KafkaError if data for the message is missing, such as the AWS region of a broker.
    """

    __slots__ = ()

    #: The mechanism's registered name, as the broker has it in sasl.enabled.mechanisms.
    name: str
    #: True when the client has finished the exchange. If the mechanism also authenticates the
    #: broker, this has then succeeded.
    complete: bool
    #: The things to check when the broker rejects the client.
    hint: str

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets of this exchange. An error message of the broker might repeat a secret. So
        the caller removes these secrets from such a message.
        """
        ...

    def refused(self) -> bool:
        """Called after the broker has rejected the client. Returns True if the next exchange would
        send different data, and therefore may succeed. For example, SCRAM can send the proof of a
        second form of the password.
        """
        return False

    def first(self) -> bytes:
        """The first message to send to the broker."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """Handles the message ``challenge`` of the broker. Returns the next message to send, or
        None if the exchange is complete.
        """
        ...


class SaslError(Exception):
    """The broker has sent an invalid message, or the mechanism can't create its next message. The
    text of the error contains no part of the broker's message.
    """
