"""An access token from an identity provider (RFC 6749, 4.4: client credentials; KIP-768).

Owns: the one HTTP request, over TLS with the provider verified, and the meaning of its responses.
Never: when it is sent. It blocks, so only a login's thread may call it: for at most
``sasl.login.connect.timeout.ms`` until TLS is established (after name resolution) and
``sasl.login.read.timeout.ms`` from then to the last byte of the response. Redirects are not
followed: the request contains the client's secret. Nothing of a response is shown but OAuth's
error fields.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

from spark_kafka_sink.config.oauth_settings import ClientCredentials
from spark_kafka_sink.errors import AuthenticationError, ErrorCode, safe_text
from spark_kafka_sink.network.auth.http_proxy import Proxy, proxy_for
from spark_kafka_sink.network.auth.oauth_token import seconds
from spark_kafka_sink.network.tls.ssl_context import ssl_context
from spark_kafka_sink.network.tls.ssl_failures import explain
from spark_kafka_sink.security.password import Password, looked_up, text_of, without_secrets

#: No provider's response is longer.
_LONGEST_ANSWER: Final = 1 << 20
#: With its headers, and every "100 Continue" before it.
_MOST_BYTES: Final = _LONGEST_ANSWER + (1 << 18)
#: Statuses that another attempt does not change (Java's HttpJwtRetriever).
_FINAL: Final = frozenset(
    {400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505}
)


@dataclass(frozen=True, slots=True)
class Grant:
    """``expires_in`` is seconds; None when the response omits it. ``where`` names the endpoint."""

    token: Password
    expires_in: float | None
    where: str


@dataclass(frozen=True, slots=True)
class _Place:
    """A URL taken apart. ``shown`` is how messages name it: by its reference, if it has one."""

    scheme: str
    host: str
    port: int
    target: str
    shown: str


def request_token(client: ClientCredentials) -> Grant:
    """Ask once. AuthenticationError when asking again is of no use, OSError when it may be."""
    place = _place(client)
    status, answer = _post(client, place)
    fields = _json(answer)
    if status not in (200, 201):
        raise _refusal(status, fields, place.shown, client)
    for name in ("access_token", "id_token"):
        token = fields.get(name)
        if isinstance(token, str) and token:
            life = seconds(fields.get("expires_in"), f"expires_in of {place.shown}")
            return Grant(Password(token), life, place.shown)
    raise _error(
        f"{place.shown} answered {status} without an access_token", "is it a token endpoint?"
    )


def _place(client: ClientCredentials) -> _Place:
    parts = urlsplit(text_of(client.url))
    assert parts.hostname is not None, "checked with the options"
    port = f":{parts.port}" if parts.port else ""
    shown = f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
    return _Place(
        parts.scheme,
        parts.hostname,
        parts.port or (443 if parts.scheme == "https" else 80),
        (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        safe_text(f"{client.url}" if isinstance(client.url, Password) else shown),
    )


def _post(client: ClientCredentials, place: _Place) -> tuple[int, bytes]:
    where = place.shown
    try:
        return _exchange(client, place)
    except ssl.SSLError as error:
        if isinstance(error, ssl.SSLCertVerificationError):
            # A text that is not in the table may hold the host's name. Its words are about brokers.
            what = without_secrets(explain(error)[0], _hidden_host(client, place))
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
    except _TooLongError:
        raise _error(
            f"{where} answers with more than {_LONGEST_ANSWER} bytes", "is it the URL?"
        ) from None
    except http.client.HTTPException as error:
        raise OSError(f"{where} does not speak HTTP ({type(error).__name__})") from None
    except OSError as error:
        raise OSError(f"{where} can't be reached: {error.strerror or error}") from None
    except UnicodeError:
        # Of the resolver: a label of more than 63 characters, or none.
        raise _error(f"{where} holds no name of a host", "is it the URL?") from None


def _exchange(client: ClientCredentials, place: _Place) -> tuple[int, bytes]:
    context = ssl_context(dict(client.tls)) if place.scheme == "https" else None
    proxy = proxy_for(place.host) if context is not None else None
    deadline = _Deadline(client.connect_timeout_ms)
    address = (place.host, place.port) if proxy is None else (proxy.host, proxy.port)
    sock = _connected(address, deadline)
    try:
        if proxy is not None:
            _tunnel(sock, proxy, place, deadline)
        if context is not None:
            sock.settimeout(deadline.left())
            # The time of a handshake is that of all its reads together.
            sock = context.wrap_socket(sock, server_hostname=place.host)
        stream = _BoundedSocket(sock, _Deadline(client.read_timeout_ms))
        connection = http.client.HTTPConnection(place.host, place.port)
        if context is not None:
            connection.default_port = 443  # for the header Host
        connection.sock = stream  # what http.client uses of a socket
        connection.request("POST", place.target, body=_body(client), headers=_headers(client))
        response = connection.getresponse()
        answer = response.read(_LONGEST_ANSWER + 1)
        if len(answer) > _LONGEST_ANSWER:
            raise _TooLongError
        return response.status, answer
    finally:
        sock.close()


def _tunnel(sock: socket.socket, proxy: Proxy, place: _Place, deadline: _Deadline) -> None:
    """CONNECT (RFC 9110, 9.3.6): from here on the bytes are the endpoint's."""
    connection = http.client.HTTPConnection(proxy.host, proxy.port)
    connection.sock = _BoundedSocket(sock, deadline)
    host = f"[{place.host}]" if ":" in place.host else place.host
    authority = f"{host}:{place.port}"
    connection.request("CONNECT", authority, headers={"Host": authority} | proxy.headers())
    status = connection.getresponse().status
    if status != 200:
        raise OSError(f"the proxy {proxy.host}:{proxy.port} answered {status} to CONNECT")


def _connected(address: tuple[str, int], deadline: _Deadline) -> socket.socket:
    """A TCP connection to one of the addresses, tried in turn, all of them before ``deadline``."""
    failure: OSError = TimeoutError()
    for family, kind, protocol, _, target in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(deadline.left())
            sock.connect(target)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure


class _TooLongError(Exception):
    """More bytes than any response has."""


class _Deadline:
    """An instant of the machine's clock; this thread is the only one that waits here."""

    __slots__ = ("_at",)

    def __init__(self, milliseconds: int) -> None:
        self._at = time.monotonic() + milliseconds / 1000

    def left(self) -> float:
        """Seconds until then. TimeoutError when there are none."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class _BoundedSocket:
    """The part of a socket that http.client uses, with one deadline and one size for all of it.

    A socket's own timeout restarts with every byte, and http.client reads "100 Continue" for as
    long as it comes.
    """

    __slots__ = ("_deadline", "_sock")

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._deadline.left())
        self._sock.sendall(data)

    def makefile(self, mode: str) -> IO[bytes]:
        del mode  # "rb" is all that is asked for
        return io.BufferedReader(_BoundedReader(self._sock, self._deadline))

    def close(self) -> None:
        """Does nothing: the opener of the socket closes it."""


class _BoundedReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock = sock
        self._deadline = deadline
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - as io.RawIOBase declares it
        self._sock.settimeout(self._deadline.left())
        count = self._sock.recv_into(buffer)
        self._read += count
        if self._read > _MOST_BYTES:
            raise _TooLongError
        return count


def _hidden_host(client: ClientCredentials, place: _Place) -> tuple[str, ...]:
    return (place.host,) if isinstance(client.url, Password) else ()


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


def _json(answer: bytes) -> Mapping[str, Any]:
    try:
        fields = json.loads(answer)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _refusal(
    status: int, fields: Mapping[str, Any], where: str, client: ClientCredentials
) -> Exception:
    resolved = looked_up(client.client_id, client.scope, client.audience, client.url)
    said = []
    for name in ("error", "error_description", "errorCode", "errorSummary"):
        text = fields.get(name)
        if isinstance(text, str):
            said.append(safe_text(without_secrets(text, [client.client_secret.value, *resolved])))
    what = f"{where} answered {status}{': ' + ' - '.join(said) if said else ''}"
    if status in _FINAL:
        return _error(what, "are client id, client secret and scope right, and the URL?")
    if 300 <= status < 400:
        return _error(what, "redirects are not followed; give the final URL")
    return OSError(what)


def _error(what: str, hint: str) -> AuthenticationError:
    return AuthenticationError(
        f"no token for SASL OAUTHBEARER: {what}",
        hint=hint,
        code=ErrorCode.SASL_AUTHENTICATION_FAILED,
    )
