"""OAuth tokens: their format, their lifetime, and unsecured tokens for tests.

This module reads the expiry of a JWT, and computes when a new token is fetched (Java's
``ExpiringCredentialRefreshingLogin``). It also creates Kafka's unsecured tokens. It does not
validate the signature of a token: only the broker can do this.
"""

from __future__ import annotations

import base64
import json
import random as _random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_kafka_sink.base.errors import AuthenticationError, ErrorCode
from spark_kafka_sink.base.json_object import json_object
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.config.logins.oauth_settings import RefreshRule
from spark_kafka_sink.network.auth.login import FetchedCredential

#: RFC 6750's b64token: nothing that could end the field that it travels in.
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
#: The maximum number of characters of a token. No identity provider issues longer tokens, and no
#: broker accepts longer tokens.
_LONGEST = 256 * 1024
#: The latest accepted expiry, in seconds since the epoch. A float can still hold its milliseconds
#: exactly.
_LAST_SECOND = 2**43


@dataclass(frozen=True, slots=True)
class Token:
    """An OAuth token. ``extensions`` are pairs of name and value (KIP-342). The client sends the
    extensions together with the token.
    """

    value: Password
    extensions: tuple[tuple[str, str], ...] = ()


def checked_token(text: str, where: str) -> str:
    """Returns the token ``text`` without surrounding white space. Raises AuthenticationError if the
    text is too long for a token, or has characters that no token has. ``where`` names the source of
    the token in the error.
    """
    token = text.strip()
    if len(token) > _LONGEST or _TOKEN.fullmatch(token) is None:
        raise AuthenticationError(
            f"SASL OAUTHBEARER: {where} is not a token",
            hint="a token is letters, digits and - . _ ~ + / =, without blanks",
            code=ErrorCode.SASL_AUTHENTICATION_FAILED,
        )
    return token


def expiry_of(token: str, where: str) -> float | None:
    """Returns the expiry of a JWT (its claim ``exp``) in seconds since the epoch. Returns None if
    ``token`` is no JWT or does not have the claim. ``where`` names the source of the token in
    errors.
    """
    return seconds(_claims(token).get("exp"), f"exp of the token of {where}")


def seconds(value: object, what: str) -> float | None:
    """Converts a JSON value, such as an expiry, to a number of seconds. Returns None if the value
    is not a number.

    Raises AuthenticationError for NaN, infinity and numbers that are too large. ``what`` names the
    value in the error.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    if not abs(value) < _LAST_SECOND:
        raise AuthenticationError(
            f"SASL OAUTHBEARER: {what} is not a valid number of seconds",
            hint="the identity provider, or the code that gives the token, is at fault",
            code=ErrorCode.SASL_AUTHENTICATION_FAILED,
        )
    return float(value)


def _claims(token: str) -> Mapping[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
    except ValueError:
        return {}
    return json_object(payload) or {}


def fetched(
    token: Token,
    *,
    expires_at: float | None,
    wall_ms: int,
    rule: RefreshRule,
    where: str,
    random: Callable[[], float] = _random.random,
) -> FetchedCredential[Token]:
    """Returns ``token`` with its lifetime and with the time after which a new token must be
    fetched.

    * ``expires_at``: the expiry in seconds since the epoch. If it is None (unknown), the login uses
      the token for one second, and then fetches a new token.
    * ``wall_ms``: the current time in milliseconds since the epoch.
    * ``where``: names the source of the token in errors.

    Raises AuthenticationError if the token has expired.
    """
    if expires_at is None:
        return FetchedCredential(token, 0)
    life = min(int(expires_at * 1000) - wall_ms, 2**53)
    if life <= 0:
        raise AuthenticationError(
            f"SASL OAUTHBEARER: the token of {where} has expired",
            hint="is the token renewed? If so, the clocks of this machine and of the identity"
            " provider differ",
            code=ErrorCode.SASL_AUTHENTICATION_FAILED,
        )
    window = rule.window_factor + rule.window_jitter * random()
    refresh = int(life * min(window, 1.0))
    buffer, least = rule.buffer_seconds * 1000, rule.min_period_seconds * 1000
    if buffer + least < life:  # else only the window counts, as in Java
        refresh = max(least, min(refresh, life - buffer))
    return FetchedCredential(token, refresh, life)


def unsecured_token(claims: Mapping[str, object], wall_ms: int, life_s: int) -> str:
    """Creates a token without a signature (an unsecured JWS). Brokers accept it only with Kafka's
    example validator for unsecured tokens.

    ``wall_ms`` is the current time in milliseconds since the epoch. ``life_s`` is the lifetime in
    seconds. ``claims`` can replace the claims ``iat`` and ``exp``.
    """
    issued = wall_ms / 1000
    body = {"iat": issued, "exp": issued + life_s} | dict(claims)
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, body))
    return ".".join(base64.urlsafe_b64encode(p).decode().rstrip("=") for p in parts) + "."
