"""SaslHandshake and SaslAuthenticate: the envelope of every SASL mechanism (KIP-43, KIP-152).

Owns: both requests and their responses, in all versions of brokers since 2.1. Never: the meaning of
the tokens (``network/auth/sasl_*.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol import messages
from spark_kafka_sink.protocol.bodies import ControlRequest, Message
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from spark_kafka_sink.protocol.wire import MalformedError, WireReader, error_code

#: Kafka has five; a broker may add others.
_MOST_MECHANISMS = 100


@dataclass(frozen=True, slots=True)
class SaslHandshakeResponse:
    """``mechanisms`` are those that the listener offers, also when it refuses ours."""

    error: ErrorCode
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SaslAuthenticateResponse:
    """``token`` is the mechanism's next message; ``session_lifetime_ms`` 0: no limit.

    ``message`` is the broker's text about ``error``, or None.
    """

    error: ErrorCode
    message: str | None
    token: bytes = field(repr=False)
    session_lifetime_ms: int = 0


@dataclass(frozen=True, slots=True)
class SaslHandshakeRequest(ControlRequest[SaslHandshakeResponse]):
    """Selects the mechanism. Version 1: its tokens are sent in SaslAuthenticate."""

    mechanism: str

    api_key = ApiKey.SASL_HANDSHAKE
    versions = VersionRange(1, 1)

    def message(self, version: int) -> Message:
        return messages.sasl_handshake.SaslHandshakeRequest(mechanism=self.mechanism)

    def read(self, reader: WireReader, version: int) -> SaslHandshakeResponse:
        answer = messages.sasl_handshake.SaslHandshakeResponse.read(reader, version)
        if len(answer.mechanisms) > _MOST_MECHANISMS:
            raise MalformedError(f"it offers {len(answer.mechanisms)} mechanisms")
        return SaslHandshakeResponse(error_code(answer.error_code), tuple(answer.mechanisms))


@dataclass(frozen=True, slots=True)
class SaslAuthenticateRequest(ControlRequest[SaslAuthenticateResponse]):
    """One message of the mechanism. It is a secret, or as good as one."""

    token: bytes = field(repr=False)

    api_key = ApiKey.SASL_AUTHENTICATE
    versions = VersionRange(0, 2)

    def message(self, version: int) -> Message:
        return messages.sasl_authenticate.SaslAuthenticateRequest(auth_bytes=self.token)

    def read(self, reader: WireReader, version: int) -> SaslAuthenticateResponse:
        answer = messages.sasl_authenticate.SaslAuthenticateResponse.read(reader, version)
        if answer.session_lifetime_ms < 0:
            raise MalformedError("the session's lifetime is negative")
        return SaslAuthenticateResponse(
            error_code(answer.error_code),
            answer.error_message,
            answer.auth_bytes,
            answer.session_lifetime_ms,
        )
