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
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs

from spark_kafka_sink.config.logins.oauth_settings import OAuthSettings, RefreshRule, TokenSource
from tests.network.fake_registry import FakeRegistry

#: As the options' defaults have it.
RULE = RefreshRule(0.8, 0.05, 60, 300)


def settings_of(source: TokenSource) -> OAuthSettings:
    """A token's origin, and the rest as by default."""
    return OAuthSettings(source, (), RULE, 100, 10_000)


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
    #: Set and cleared by a test that wants answers to wait.
    gate: threading.Event = field(default_factory=threading.Event)
    headers: dict[str, str] = field(default_factory=dict)
    #: Private key and chain in one PEM file: answers by https.
    key_file: Path | None = None

    def __enter__(self) -> Self:
        self.gate.set()
        tls = None
        if self.key_file is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(self.key_file)
        self.http = FakeRegistry(self.answer, tls=tls)
        self.http.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.gate.set()
        self.http.__exit__()

    @property
    def asked(self) -> list[Asked]:
        found = []
        for _, path, body, headers in self.http.requests:
            kind, _, basic = headers["Authorization"].partition(" ")
            assert kind == "Basic"
            assert isinstance(body, bytes)
            user, _, password = base64.b64decode(basic).decode().partition(":")
            found.append(Asked(path, user, password, parse_qs(body.decode())))
        return found

    def answer(self, *_: object) -> tuple[int, dict[str, str], object]:
        asked = self.asked[-1]
        self.gate.wait(60)
        if self.answers:
            status, found = self.answers.pop(0)
            return status, self.headers, found
        if (asked.user, asked.password) != (self.client_id, self.client_secret):
            refused = {"error": "invalid_client", "error_description": "who are you?"}
            return 401, self.headers, refused
        token = jwt(exp=time.time() + self.life_s)
        found = {"access_token": token, "token_type": "Bearer", "expires_in": self.life_s}
        return 200, self.headers, found

    @property
    def url(self) -> str:
        return self.http.url.removesuffix("/api") + "/oauth2/token"

    def options(self, **more: str) -> dict[str, str]:
        """The options of a client of ours, by Java's names."""
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.oauthbearer.client.credentials.client.id": self.client_id,
            "sasl.oauthbearer.client.credentials.client.secret": self.client_secret,
        } | {name.replace("__", "."): value for name, value in more.items()}
