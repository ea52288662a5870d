"""A small OAuth token endpoint on the loopback: client credentials in, unsigned tokens out.

Its tokens are those that Kafka's own validator for development takes: ``sub`` is the user.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs


def jwt(**claims) -> str:
    """An unsigned JWS, which ends after an hour unless the claims say otherwise."""
    now = time.time()
    body = {"sub": "alice", "iat": now, "exp": now + 3600} | claims
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, body))
    return ".".join(base64.urlsafe_b64encode(p).decode().rstrip("=") for p in parts) + "."


@dataclass
class Asked:
    """One request to the endpoint."""

    path: str
    user: str
    password: str
    form: dict[str, list[str]]


@dataclass
class IdentityProvider:
    """``answers`` are given first, in order: status and body (an object becomes JSON)."""

    client_id: str = "client"
    client_secret: str = "s3cr3t"
    life_s: float = 3600
    answers: list[tuple[int, object]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    #: Set and cleared by a test that wants answers to wait.
    gate: threading.Event = field(default_factory=threading.Event)
    headers: dict[str, str] = field(default_factory=dict)
    #: Private key and chain in one PEM file: answers by https.
    key_file: Path | None = None

    def __enter__(self) -> Self:
        provider = self
        self.gate.set()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                kind, _, basic = self.headers["Authorization"].partition(" ")
                assert kind == "Basic"
                user, _, password = base64.b64decode(basic).decode().partition(":")
                provider.asked.append(Asked(self.path, user, password, parse_qs(body)))
                provider.gate.wait(60)
                status, answer = provider.answer(user, password)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                for name, value in provider.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None: ...

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """A client that does not trust us hangs up: what it says of that is tested."""

        self.server = Server(("127.0.0.1", 0), Handler)
        if self.key_file is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.key_file)
            # The handshake is made by the connection's own thread, in its first read.
            self.server.socket = context.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(60)

    def answer(self, user: str, password: str) -> tuple[int, object]:
        if self.answers:
            return self.answers.pop(0)
        if (user, password) != (self.client_id, self.client_secret):
            return 401, {"error": "invalid_client", "error_description": "who are you?"}
        token = jwt(exp=time.time() + self.life_s)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.life_s}

    @property
    def url(self) -> str:
        scheme = "http" if self.key_file is None else "https"
        return f"{scheme}://127.0.0.1:{self.server.server_address[1]}/oauth2/token"

    def options(self, **more: str) -> dict[str, str]:
        """The options of a client of ours, by Java's names."""
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.oauthbearer.client.credentials.client.id": self.client_id,
            "sasl.oauthbearer.client.credentials.client.secret": self.client_secret,
        } | {name.replace("__", "."): value for name, value in more.items()}
