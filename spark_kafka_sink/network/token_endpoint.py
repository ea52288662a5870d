"""An access token from an identity provider (RFC 6749, 4.4: client credentials; KIP-768).

Owns: the one HTTP request, over TLS with the provider verified, and what its answers mean. Never:
when to ask. It blocks, so only a login's own thread may call it. Redirects are not followed: the
request holds the client's secret. Nothing of an answer is shown but OAuth's own error fields.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

from spark_kafka_sink.errors import AuthenticationError, ErrorCode, safe_text
from spark_kafka_sink.network.ssl_context import ssl_context
from spark_kafka_sink.network.ssl_failures import explain
from spark_kafka_sink.oauth_settings import ClientCredentials
from spark_kafka_sink.secrets import Password, without_secrets

#: No provider's answer is longer.
_LONGEST_ANSWER: Final = 1 << 20
#: Statuses that another attempt does not change (Java's HttpJwtRetriever).
_FINAL: Final = frozenset(
    {400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505}
)


@dataclass(frozen=True, slots=True)
class Grant:
    """``expires_in`` is seconds; None when the answer does not tell."""

    token: Password
    expires_in: float | None


def request_token(client: ClientCredentials) -> Grant:
    """Ask once. AuthenticationError when asking again is of no use, OSError when it may be."""
    parts = urlsplit(client.url)
    port = f":{parts.port}" if parts.port else ""
    where = f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    assert parts.hostname is not None, "checked with the options"
    status, answer = _post(client, parts.scheme, parts.hostname, parts.port, target, where)
    fields = _json(answer)
    if status not in (200, 201):
        raise _refusal(status, fields, where, client)
    for name in ("access_token", "id_token"):
        token = fields.get(name)
        if isinstance(token, str) and token:
            life = fields.get("expires_in")
            known = isinstance(life, int | float) and not isinstance(life, bool)
            return Grant(Password(token), float(life) if known and life is not None else None)
    raise _error(f"{where} answered {status} without an access_token", "is it a token endpoint?")


def _post(
    client: ClientCredentials, scheme: str, host: str, port: int | None, target: str, where: str
) -> tuple[int, bytes]:
    connect_s, read_s = client.connect_timeout_ms / 1000, client.read_timeout_ms / 1000
    connection: http.client.HTTPConnection
    if scheme == "https":
        context = ssl_context(dict(client.tls))
        connection = http.client.HTTPSConnection(host, port, timeout=connect_s, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=connect_s)
    try:
        connection.connect()
        if connection.sock is not None:
            connection.sock.settimeout(read_s)
        connection.request("POST", target, body=_body(client), headers=_headers(client))
        response = connection.getresponse()
        answer = response.read(_LONGEST_ANSWER + 1)
    except ssl.SSLError as error:
        if isinstance(error, ssl.SSLCertVerificationError):
            what, _ = explain(error)
            # Its words are about brokers.
            what = what.replace("broker's", "server's")
            raise _error(
                f"TLS to {where} failed: {what}",
                "another CA goes to ssl.truststore.location within sasl.jaas.config",
            ) from None
        raise OSError(f"TLS to {where} failed: {error.reason or type(error).__name__}") from None
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
    finally:
        connection.close()
    if len(answer) > _LONGEST_ANSWER:
        raise _error(f"{where} answers with more than {_LONGEST_ANSWER} bytes", "is it the URL?")
    return response.status, answer


def _body(client: ClientCredentials) -> str:
    fields = {"grant_type": "client_credentials"}
    if client.scope:
        fields["scope"] = client.scope
    if client.audience:
        fields["audience"] = client.audience
    return urlencode(fields)


def _headers(client: ClientCredentials) -> dict[str, str]:
    # RFC 6749 wants them encoded, many providers don't: Java's option, and its default.
    name, secret = client.client_id, client.client_secret.value
    if client.urlencode:
        name, secret = quote_plus(name), quote_plus(secret)
    basic = base64.b64encode(f"{name}:{secret}".encode()).decode()
    return {
        "Accept": "application/json",
        "Authorization": f"Basic {basic}",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }


def _json(answer: bytes) -> Mapping[str, Any]:
    try:
        fields = json.loads(answer)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _refusal(
    status: int, fields: Mapping[str, Any], where: str, client: ClientCredentials
) -> Exception:
    said = []
    for name in ("error", "error_description", "errorCode", "errorSummary"):
        text = fields.get(name)
        if isinstance(text, str):
            said.append(safe_text(without_secrets(text, [client.client_secret.value])))
    what = f"{where} answered {status}{': ' + ' - '.join(said) if said else ''}"
    if status in _FINAL:
        return _error(what, "are client id, client secret and scope right, and the URL?")
    if 300 <= status < 400:
        return _error(what, "redirects are not followed; give the URL behind it")
    return OSError(what)


def _error(what: str, hint: str) -> AuthenticationError:
    return AuthenticationError(
        f"no token for SASL OAUTHBEARER: {what}",
        hint=hint,
        code=ErrorCode.SASL_AUTHENTICATION_FAILED,
    )
