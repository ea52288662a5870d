"""Requests an access token from an identity provider with client credentials (RFC 6749, 4.4;
KIP-768).

This module creates the HTTP request and checks the response. Error messages contain only OAuth's
error fields of a response.

A request blocks. So only the thread of a login and the client of a schema registry send requests.
Two limits apply to the time. For a login, these options set the limits:

* ``sasl.login.connect.timeout.ms``: the time for the name lookup, the TCP connection and the TLS
  handshake together.
* ``sasl.login.read.timeout.ms``: the time for the request and the response together.
"""

from __future__ import annotations

import base64
import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

from spark_kafka_sink.base.errors import AuthenticationError, ErrorCode, safe_text
from spark_kafka_sink.base.json_object import json_object
from spark_kafka_sink.base.security.password import Password, looked_up, text_of, without_secrets
from spark_kafka_sink.config.logins.oauth_settings import ClientCredentials
from spark_kafka_sink.network.auth.oauth_token import seconds
from spark_kafka_sink.network.http.http_exchange import FinalFailureError, HttpRequest, exchange

_TRUSTSTORE: Final = "ssl.truststore.location within sasl.jaas.config"
#: No provider's response is longer.
_LONGEST_ANSWER: Final = 1 << 20
#: Statuses that another attempt does not change (Java's HttpJwtRetriever).
_FINAL: Final = frozenset(
    {400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505}
)


@dataclass(frozen=True, slots=True)
class Grant:
    """The token of an identity provider's response. ``expires_in`` is the lifetime in seconds, or
    None if the response does not contain it. ``where`` names the endpoint in errors.
    """

    token: Password
    expires_in: float | None
    where: str


def request_token(client: ClientCredentials, truststore: str = _TRUSTSTORE) -> Grant:
    """Sends one request for a token, and returns the token. Raises OSError if a retry may succeed,
    and AuthenticationError otherwise.

    ``truststore`` is the name of the option with the CA of the endpoint. The name is used in the
    hints of errors.
    """
    where = _shown(client)
    status, answer = _post(client, where, truststore)
    fields = json_object(answer) or {}
    if status not in (200, 201):
        raise _refusal(status, fields, where, client)
    for name in ("access_token", "id_token"):
        token = fields.get(name)
        if isinstance(token, str) and token:
            life = seconds(fields.get("expires_in"), f"expires_in of {where}")
            return Grant(Password(token), life, where)
    raise _error(f"{where} answered {status} without an access_token", "is it a token endpoint?")


def _shown(client: ClientCredentials) -> str:
    """A text for error messages that names the endpoint: its URL without the query. If the URL
    comes from a secret, the text is the reference to the secret.
    """
    parts = urlsplit(text_of(client.url))
    port = f":{parts.port}" if parts.port else ""
    shown = f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
    return safe_text(f"{client.url}" if isinstance(client.url, Password) else shown)


def _post(client: ClientCredentials, where: str, truststore: str) -> tuple[int, bytes]:
    try:
        return exchange(
            HttpRequest(
                method="POST",
                url=text_of(client.url),
                headers=_headers(client),
                body=_body(client).encode(),
                tls=dict(client.tls),
                connect_timeout_ms=client.connect_timeout_ms,
                read_timeout_ms=client.read_timeout_ms,
                most_bytes=_LONGEST_ANSWER,
                truststore=truststore,
            )
        )
    except FinalFailureError as error:
        # OpenSSL's words may hold the host's name.
        what = without_secrets(error.message, _hidden_host(client))
        raise _error(f"{where} {what}", error.hint) from None
    except TimeoutError:
        raise TimeoutError(
            f"{where} did not answer within {client.connect_timeout_ms} ms to connect"
            f" (sasl.login.connect.timeout.ms) and {client.read_timeout_ms} ms to answer"
            " (sasl.login.read.timeout.ms)"
        ) from None
    except http.client.HTTPException as error:
        raise OSError(f"{where} does not speak HTTP ({type(error).__name__})") from None
    except OSError as error:
        raise OSError(f"{where} can't be reached: {error.strerror or error}") from None
    except UnicodeError:
        # The resolver raises it for a label of more than 63 characters, or without one.
        raise _error(f"{where} holds no name of a host", "is it the URL?") from None


def _hidden_host(client: ClientCredentials) -> tuple[str, ...]:
    host = urlsplit(text_of(client.url)).hostname or ""
    return (host,) if isinstance(client.url, Password) else ()


def _body(client: ClientCredentials) -> str:
    fields = {"grant_type": "client_credentials"}
    if client.scope:
        fields["scope"] = text_of(client.scope)
    if client.audience:
        fields["audience"] = text_of(client.audience)
    return urlencode(fields)


def _headers(client: ClientCredentials) -> dict[str, str]:
    # RFC 6749 requires them encoded, many providers don't: Java's option, and its default.
    name, secret = text_of(client.client_id), client.client_secret.value
    if client.urlencode:
        name, secret = quote_plus(name), quote_plus(secret)
    basic = base64.b64encode(f"{name}:{secret}".encode()).decode()
    return {
        "Accept": "application/json",
        "Authorization": f"Basic {basic}",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }


def _refusal(
    status: int, fields: Mapping[str, Any], where: str, client: ClientCredentials
) -> Exception:
    resolved = looked_up(client.client_id, client.scope, client.audience, client.url)
    reasons = []
    for name in ("error", "error_description", "errorCode", "errorSummary"):
        text = fields.get(name)
        if isinstance(text, str):
            hidden = [client.client_secret.value, *resolved]
            reasons.append(safe_text(without_secrets(text, hidden)))
    what = f"{where} answered {status}{': ' + ' - '.join(reasons) if reasons else ''}"
    if status in _FINAL:
        return _error(what, "are client id, client secret and scope right, and the URL?")
    if 300 <= status < 400:
        return _error(what, "redirects are not followed; give the final URL")
    return OSError(what)


def _error(what: str, hint: str | None) -> AuthenticationError:
    return AuthenticationError(
        f"no token for SASL OAUTHBEARER: {what}",
        hint=hint,
        code=ErrorCode.SASL_AUTHENTICATION_FAILED,
    )
