"""The mechanism OAUTHBEARER (RFC 7628, KIP-255): the client sends an OAuth token in one message.

This module creates this message. ``token_sources.py`` fetches the token.
"""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.network.auth.oauth_token import Token
from spark_kafka_sink.network.auth.sasl_mechanism import SaslError, SaslMechanism

_HINT: Final = (
    "has the token expired, and does the broker trust its issuer, for this audience and scope?"
)


class OAuthBearerMechanism(SaslMechanism):
    """The mechanism OAUTHBEARER. The client sends the token. If the broker rejects the token, the
    client sends an acknowledgement of the error, as RFC 7628, 3.2.3 requires.
    """

    __slots__ = ("_refused", "_token", "complete", "hint")

    name = "OAUTHBEARER"

    def __init__(self, token: Token, hint: str = _HINT) -> None:
        self.hint = hint
        self._token = token
        self._refused = False
        self.complete = False

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._token.value.value,)

    def first(self) -> bytes:
        pairs = (("auth", f"Bearer {self._token.value.value}"), *self._token.extensions)
        fields = "".join(f"{name}={value}\x01" for name, value in pairs)
        self.complete = True
        return f"n,,\x01{fields}\x01".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if not challenge and not self._refused:
            return None
        if self._refused:
            raise SaslError("it continues after it rejected the token")
        # It holds a reason as JSON; the broker's refusal, which follows, has it as its text.
        self._refused = True
        self.complete = False
        return b"\x01"
