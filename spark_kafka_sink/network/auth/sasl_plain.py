"""The mechanism PLAIN (RFC 4616): the client sends user name and password, unencrypted, in one
message.

This module creates this message. The warning about connections without TLS is in
``config/logins/security_checks.py``.
"""

from __future__ import annotations

from spark_kafka_sink.base.security.password import Password, Text, looked_up, text_of
from spark_kafka_sink.network.auth.sasl_mechanism import CHECK_THE_USER, SaslError, SaslMechanism


class PlainMechanism(SaslMechanism):
    """The mechanism PLAIN. The client sends one message. The broker's message is empty: the error
    code of the SaslAuthenticate response shows whether the broker accepts the client.
    """

    __slots__ = ("_password", "_username", "complete")

    name = "PLAIN"
    hint = CHECK_THE_USER

    def __init__(self, username: Text, password: Password) -> None:
        self._username = username
        self._password = password
        self.complete = False

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._password.value, *looked_up(self._username))

    def first(self) -> bytes:
        self.complete = True
        return f"\0{text_of(self._username)}\0{self._password.value}".encode()

    def answer(self, challenge: bytes) -> None:
        if challenge:
            raise SaslError("it answers to PLAIN with a question, which PLAIN does not have")
