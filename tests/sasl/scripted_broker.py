"""A broker's side of SASL as plain functions: what it gets, and the frames it sends.

Frames are payloads, without their length. kio reads and writes them: nothing here shares code with
the client.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from scramp import ScramMechanism as ScrampMechanism

from tests.fakes.fake_cluster.codec import Request, read_request, write_answer

API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36


def hear(frame: bytes) -> Request:
    """Take a whole frame of the client apart, checking its length."""
    (size,) = struct.unpack_from(">i", frame)
    assert size == len(frame) - 4
    return read_request(frame[4:])


def token_of(heard: Request) -> bytes:
    assert heard.api == AUTHENTICATE
    token: bytes = heard.body.auth_bytes
    return token


def api_versions(heard: Request, *, authenticate: int | None = 2, handshake: int = 1) -> bytes:
    newest = {3: 13, HANDSHAKE: handshake, AUTHENTICATE: authenticate}
    keys = [
        {"api_key": api, "min_version": 0, "max_version": version}
        for api, version in newest.items()
        if version is not None
    ]
    return write_answer(heard, heard.answer(error_code=0, api_keys=keys))


def handshake(heard: Request, *mechanisms: str, error: int = 0) -> bytes:
    return write_answer(heard, heard.answer(error_code=error, mechanisms=mechanisms))


def authenticate(
    heard: Request, token: bytes = b"", *, error: int = 0, message: str | None = None, lifetime=0
) -> bytes:
    answer = heard.answer(
        error_code=error, error_message=message, auth_bytes=token, session_lifetime=lifetime
    )
    return write_answer(heard, answer)


@dataclass
class ScriptedBroker:
    """Answers as a broker with one user does; ``said`` are its frames in order.

    SCRAM is scramp's server: another implementation than the client's.
    """

    mechanism: str
    username: str = "alice"
    password: str = "correct horse"
    authenticate_version: int = 2
    lifetime: int = 0
    said: list[bytes] = field(default_factory=list)
    heard: list[Request] = field(default_factory=list)
    server: object = None

    def answer(self, frame: bytes) -> bytes:
        heard = hear(frame)
        self.heard.append(heard)
        if heard.api == API_VERSIONS:
            payload = api_versions(heard, authenticate=self.authenticate_version)
        elif heard.api == HANDSHAKE:
            asked = heard.body.mechanism
            error = 0 if asked == self.mechanism else 33
            self.server = None
            payload = handshake(heard, self.mechanism, error=error)
        else:
            payload = self._authenticate(heard, token_of(heard))
        self.said.append(payload)
        return payload

    def _authenticate(self, heard: Request, token: bytes) -> bytes:
        if self.mechanism == "PLAIN":
            if token == f"\0{self.username}\0{self.password}".encode():
                return authenticate(heard, lifetime=self.lifetime)
            refusal = "Authentication failed: Invalid username or password"
            return authenticate(heard, error=58, message=refusal)
        if self.server is None:
            scramp = ScrampMechanism(self.mechanism)
            info = scramp.make_auth_info(self.password, iteration_count=4096)
            self.server = scramp.make_server(lambda user: info)
            self.server.set_client_first(token.decode())
            return authenticate(heard, self.server.get_server_first().encode())
        try:
            self.server.set_client_final(token.decode())
        except Exception:
            return authenticate(heard, error=58, message="Authentication failed")
        final = self.server.get_server_final().encode()
        return authenticate(heard, final, lifetime=self.lifetime)
