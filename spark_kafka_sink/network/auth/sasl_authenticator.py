"""The SASL exchange of a client with one broker, without a socket (Java's SaslClientAuthenticator).

The client sends these requests, and no other request before the exchange is complete:

1. ApiVersions v0
2. SaslHandshake
3. SaslAuthenticate, until client and broker are done

This module chooses the versions and correlation ids of the requests. It computes when the client
must authenticate again, before the session ends (KIP-368). It converts the broker's error codes to
exceptions.

The caller sends and receives the frames. A mechanism has the credential, and creates and checks the
messages within the frames.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable
from enum import Enum
from itertools import islice
from typing import Final

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    RemoteProtocolError,
    safe_text,
)
from spark_kafka_sink.base.security.password import without_secrets
from spark_kafka_sink.network.auth.sasl_mechanism import SaslError, SaslMechanism
from spark_kafka_sink.protocol.answers import decode
from spark_kafka_sink.protocol.frames import (
    MIN_RESERVED_CORRELATION_ID,
    frame,
    parse_response_header,
)
from spark_kafka_sink.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spark_kafka_sink.protocol.messages.sasl_authenticate import VERSIONS as AUTHENTICATE_VERSIONS
from spark_kafka_sink.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from spark_kafka_sink.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.request import ApiKey, Request

_MAX_CORRELATION_ID: Final = 2**31 - 1

#: The time of the next authentication as a share of the session's lifetime: random between these
#: two shares, so that a thousand connections that began together don't do it together (KIP-368).
_EARLIEST_SHARE: Final = 0.85
_JITTER: Final = 0.10
#: The minimum time in ms between two authentications of a connection. A broker rejects a second
#: authentication within one second (KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS).
_SHORTEST_INTERVAL_MS: Final = 1_001

#: More responses than any mechanism needs (GSSAPI: four).
_MOST_ROUNDS: Final = 16


class SaslState(Enum):
    """The state of a SASL exchange: it names the response for which the client waits."""

    INITIAL = "nothing sent yet"
    API_VERSIONS = "the answer to ApiVersions"
    HANDSHAKE = "the answer to SaslHandshake"
    AUTHENTICATE = "the answer to SaslAuthenticate"
    COMPLETE = "nothing: authenticated"
    FAILED = "nothing: refused"


#: The allowed changes of the state. COMPLETE to HANDSHAKE: a re-authentication begins. COMPLETE to
#: FAILED: the broker has sent an unexpected frame.
_TRANSITIONS: Final = {
    SaslState.INITIAL: {SaslState.API_VERSIONS, SaslState.FAILED},
    SaslState.API_VERSIONS: {SaslState.HANDSHAKE, SaslState.FAILED},
    SaslState.HANDSHAKE: {SaslState.AUTHENTICATE, SaslState.FAILED},
    SaslState.AUTHENTICATE: {SaslState.AUTHENTICATE, SaslState.COMPLETE, SaslState.FAILED},
    SaslState.COMPLETE: {SaslState.HANDSHAKE, SaslState.FAILED},
    SaslState.FAILED: {SaslState.FAILED},
}


class SaslClientAuthenticator:
    """The client's part of a SASL authentication. The caller sends and receives the frames:

    1. The caller sends the frame that :meth:`start` returns.
    2. The caller passes each received frame (without its length) to :meth:`receive`, and sends the
       frame that this method returns.
    3. When :attr:`complete` is true, the authentication is done.

    After an error the connection must be closed. ``remote`` is the address of the broker, for error
    messages. ``encrypted`` is true if the connection uses TLS.
    """

    def __init__(
        self,
        remote: str,
        client_id: str | None,
        *,
        encrypted: bool,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._remote = remote
        self._client_id = client_id
        self._encrypted = encrypted
        self._random = random
        self._state = SaslState.INITIAL
        self._mechanism: SaslMechanism | None = None
        self._correlation_id = MIN_RESERVED_CORRELATION_ID - 1
        self._sent: Request[object] | None = None
        self._sent_version = 0
        self._authenticate_version = 0
        self._rounds = 0
        self._again = False
        #: The time (monotonic ms) from which on the client must authenticate again: some time
        #: before the session expires. None if the session does not expire.
        self.reauthenticate_at: int | None = None

    @property
    def state(self) -> SaslState:
        return self._state

    @property
    def complete(self) -> bool:
        return self._state is SaslState.COMPLETE

    def start(self, mechanism: SaslMechanism) -> bytes:
        """Begins an authentication, and returns the first frame to send. If an earlier
        authentication of this connection is complete, begins a re-authentication (KIP-368).
        """
        if self._state not in (SaslState.INITIAL, SaslState.COMPLETE):
            raise IllegalStateError(
                f"an authentication begins while waiting for {self._state.value}"
            )
        self._mechanism = mechanism
        self._rounds = 0
        self.reauthenticate_at = None
        if self._state is SaslState.INITIAL:
            # Version 0: a broker treats a request that it can't read as a GSSAPI token.
            request = ApiVersionsRequest()
            return self._send_request(request, 0, SaslState.API_VERSIONS)
        self._again = True
        return self._send_request(
            SaslHandshakeRequest(mechanism=mechanism.name), 1, SaslState.HANDSHAKE
        )

    def receive(self, payload: memoryview, now: int) -> bytes | None:
        """Handles a frame of the broker. Returns the next frame to send, or None if no frame must
        be sent. After an error, the state is FAILED.

        Raises these errors:

        * AuthenticationError: the broker rejects the client, or can't prove its own identity.
        * RemoteProtocolError: the response is invalid.
        * ConnectionError: a retry may succeed.
        """
        try:
            return self._receive(payload, now)
        except (KafkaError, OSError):
            self._set_state(SaslState.FAILED)
            raise

    def describe_disconnect(self) -> str:
        """The probable reason why the broker has closed the connection in the current state, as a
        text.
        """
        if self._state is SaslState.AUTHENTICATE:
            return (
                f"the broker closed the connection instead of answering SASL "
                f"{self._expected.name} (is the credential right? See the broker's log)"
            )
        if self._state is SaslState.INITIAL:
            return "the broker closed the connection before we had a credential"
        if self._encrypted:
            return f"the broker closed the connection instead of sending {self._state.value}"
        return (
            f"the broker closed the connection instead of sending {self._state.value} (is it a TLS "
            "port? Then set kafka.security.protocol to SASL_SSL)"
        )

    def _receive(self, payload: memoryview, now: int) -> bytes | None:
        request, version = self._sent, self._sent_version
        if request is None:
            raise RemoteProtocolError("the broker sent a response without a request")
        correlation_id, body = parse_response_header(request.api_key, version, payload)
        if correlation_id != self._correlation_id:
            raise RemoteProtocolError(
                f"a response to {request.api_key.name} has correlation id {correlation_id} where "
                f"{self._correlation_id} was expected"
            )
        self._sent = None
        match decode(request, version, body):
            case ApiVersionsResponse() as versions:
                return self._handle_api_versions(versions)
            case SaslHandshakeResponse() as handshake:
                return self._handle_handshake(handshake)
            case SaslAuthenticateResponse() as answer:
                return self._handle_authenticate(answer, now)
            case other:  # pragma: no cover - no other requests are sent
                raise IllegalStateError(f"an answer of type {type(other).__name__}")

    def _handle_api_versions(self, response: ApiVersionsResponse) -> bytes:
        if response.error_code is not ErrorCode.NONE:
            raise RemoteProtocolError(
                f"the broker refused ApiVersions v0: {response.error_code.name}",
                hint="Kafka 2.1 is the oldest broker that is supported",
            )
        offered = NodeApiVersions.of(response).api_versions
        handshake = offered.get(ApiKey.SASL_HANDSHAKE)
        authenticate = offered.get(ApiKey.SASL_AUTHENTICATE)
        if handshake is None or authenticate is None or handshake.max < 1:
            raise self._failure(
                "the broker does not offer SaslHandshake v1 and SaslAuthenticate",
                "Apache Kafka has both since 1.0; Kafka 2.1 is the oldest broker that is supported",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        self._authenticate_version = max(0, min(AUTHENTICATE_VERSIONS.max, authenticate.max))
        return self._send_handshake(self._expected)

    def _handle_handshake(self, response: SaslHandshakeResponse) -> bytes:
        if response.error_code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(safe_text(name, 40) for name in islice(response.mechanisms, 16))
            raise self._failure(
                f"the broker does not offer this mechanism there; it offers {offered or 'none'}",
                "set kafka.sasl.mechanism to one of these, or add it to the broker's "
                "sasl.enabled.mechanisms",
                response.error_code,
            )
        if response.error_code is ErrorCode.ILLEGAL_SASL_STATE and not self._again:
            protocol = "SSL" if self._encrypted else "PLAINTEXT"
            raise self._failure(
                "the port does not require SASL",
                f"is it a listener of type {protocol}? Then set kafka.security.protocol to that",
                response.error_code,
            )
        if response.error_code is not ErrorCode.NONE:
            raise self._refusal(response.error_code, None)
        try:
            first = self._expected.first()
        except SaslError as error:
            raise self._failure(
                f"it can't begin: {error}",
                self._expected.hint,
                ErrorCode.SASL_AUTHENTICATION_FAILED,
            ) from None
        return self._send_token(first)

    def _handle_authenticate(self, response: SaslAuthenticateResponse, now: int) -> bytes | None:
        mechanism = self._expected
        if response.error_code is not ErrorCode.NONE:
            raise self._refusal(response.error_code, response.error_message)
        self._rounds += 1
        try:
            answer = mechanism.answer(response.auth_bytes)
            if answer is None and not mechanism.complete:
                raise SaslError("it ends the exchange too early")
            if answer is not None and self._rounds >= _MOST_ROUNDS:
                raise SaslError("its questions have no end")
        except SaslError as error:
            raise self._failure(
                f"the broker could not prove its identity: {error}",
                "is it really this broker, or something in between?",
                ErrorCode.SASL_AUTHENTICATION_FAILED,
            ) from None
        if answer is not None:
            return self._send_token(answer)
        self._set_state(SaslState.COMPLETE)
        self._mechanism = None  # and with it the credential
        if response.session_lifetime_ms > 0:
            share = _EARLIEST_SHARE + _JITTER * self._random()
            wait = max(_SHORTEST_INTERVAL_MS, int(response.session_lifetime_ms * share))
            self.reauthenticate_at = now + wait
        return None

    @property
    def _expected(self) -> SaslMechanism:
        assert self._mechanism is not None, "there is one from start to COMPLETE"
        return self._mechanism

    def _send_handshake(self, mechanism: SaslMechanism) -> bytes:
        request = SaslHandshakeRequest(mechanism=mechanism.name)
        return self._send_request(request, 1, SaslState.HANDSHAKE)

    def _send_token(self, token: bytes) -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=token)
        return self._send_request(request, self._authenticate_version, SaslState.AUTHENTICATE)

    def _send_request(self, request: Request[object], version: int, state: SaslState) -> bytes:
        self._set_state(state)
        self._sent, self._sent_version = request, version
        following = self._correlation_id + 1
        over = following > _MAX_CORRELATION_ID
        self._correlation_id = MIN_RESERVED_CORRELATION_ID if over else following
        buffers, _ = frame(request, version, self._correlation_id, self._client_id)
        return b"".join(buffers)

    def _set_state(self, state: SaslState) -> None:
        if state not in _TRANSITIONS[self._state]:
            raise IllegalStateError(f"SASL moves from {self._state.name} to {state.name}")
        self._state = state

    def _refusal(self, code: ErrorCode, message: str | None) -> Exception:
        """Creates the exception for an error code of the broker. It is a ConnectionError if a retry
        may succeed.
        """
        mechanism = self._expected
        text = "" if not message else f": {self._without_secrets(message)}"
        if code.retriable:
            return ConnectionError(
                f"the broker can't authenticate clients now ({code.name} {code.value}{text})"
            )
        if code is ErrorCode.SASL_AUTHENTICATION_FAILED and mechanism.refused():
            return ConnectionError(
                f"the broker rejects us{text}; retrying with name and password as RFC 4013"
                " prepares them"
            )
        what = "the re-authentication" if self._again else "us"
        return self._failure(
            f"the broker rejects {what}{text or f' ({code.name})'}", mechanism.hint, code
        )

    def _without_secrets(self, message: str) -> str:
        return safe_text(without_secrets(message, self._expected.secrets))

    def _failure(self, what: str, hint: str, code: ErrorCode) -> AuthenticationError:
        return AuthenticationError(
            f"SASL {self._expected.name} to {self._remote} failed: {what}", hint=hint, code=code
        )
