"""A broker's side of SASL as plain functions: what it gets, and the frames it sends.

Frames are payloads, without their length. Nothing here shares code with the client but numbers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from scramp import ScramMechanism as ScrampMechanism

API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36


@dataclass
class Heard:
    """One request: its header's fields and the rest."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: bytes


def hear(frame: bytes) -> Heard:
    """Take a whole frame of the client apart, checking its length."""
    (size,) = struct.unpack_from(">i", frame)
    assert size == len(frame) - 4
    key, version, correlation_id, length = struct.unpack_from(">hhih", frame, 4)
    position = 14 + max(0, length)
    client_id = None if length < 0 else frame[14:position].decode()
    if key == AUTHENTICATE and version >= 2:
        assert frame[position] == 0, "header v2 ends with no tagged fields"
        position += 1
    return Heard(key, version, correlation_id, client_id, frame[position:])


def token_of(heard: Heard) -> bytes:
    assert heard.api_key == AUTHENTICATE
    if heard.version >= 2:
        size, shift, position = 0, 0, 0
        while True:
            byte = heard.body[position]
            size |= (byte & 0x7F) << shift
            shift, position = shift + 7, position + 1
            if byte < 0x80:
                break
        assert len(heard.body) == position + size - 1 + 1
        return heard.body[position : position + size - 1]
    (size,) = struct.unpack_from(">i", heard.body)
    assert len(heard.body) == 4 + size
    return heard.body[4:]


def api_versions(heard: Heard, *, authenticate: int | None = 2, handshake: int = 1) -> bytes:
    rows = [(3, 4, 13), (HANDSHAKE, 0, handshake)]
    if authenticate is not None:
        rows.append((AUTHENTICATE, 0, authenticate))
    body = struct.pack(">hi", 0, len(rows)) + b"".join(struct.pack(">hhh", *row) for row in rows)
    return struct.pack(">i", heard.correlation_id) + body


def handshake(heard: Heard, *mechanisms: str, error: int = 0) -> bytes:
    body = struct.pack(">hi", error, len(mechanisms))
    for name in mechanisms:
        body += struct.pack(">h", len(name)) + name.encode()
    return struct.pack(">i", heard.correlation_id) + body


def authenticate(
    heard: Heard, token: bytes = b"", *, error: int = 0, message: str | None = None, lifetime=0
) -> bytes:
    if heard.version >= 2:
        text = b"\x00" if message is None else bytes([len(message.encode()) + 1]) + message.encode()
        assert len(token) < 127 or len(token) < 16383
        size = len(token) + 1
        length = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
        body = b"\x00" + struct.pack(">h", error) + text + length + token
        return (
            struct.pack(">i", heard.correlation_id) + body + struct.pack(">q", lifetime) + b"\x00"
        )
    text = b"\xff\xff" if message is None else struct.pack(">h", len(message)) + message.encode()
    body = struct.pack(">h", error) + text + struct.pack(">i", len(token)) + token
    if heard.version >= 1:
        body += struct.pack(">q", lifetime)
    return struct.pack(">i", heard.correlation_id) + body


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
    heard: list[Heard] = field(default_factory=list)
    server: object = None

    def answer(self, frame: bytes) -> bytes:
        heard = hear(frame)
        self.heard.append(heard)
        if heard.api_key == API_VERSIONS:
            payload = api_versions(heard, authenticate=self.authenticate_version)
        elif heard.api_key == HANDSHAKE:
            asked = heard.body[2:].decode()
            error = 0 if asked == self.mechanism else 33
            self.server = None
            payload = handshake(heard, self.mechanism, error=error)
        else:
            payload = self._authenticate(heard, token_of(heard))
        self.said.append(payload)
        return payload

    def _authenticate(self, heard: Heard, token: bytes) -> bytes:
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
