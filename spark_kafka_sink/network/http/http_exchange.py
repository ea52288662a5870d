"""Sends one HTTP request and reads the response, with limits of time and size.

:func:`exchange` opens the connection, with a proxy and TLS if needed. It sends a request only once:
a retry is the caller's decision. Redirects are not followed, because requests contain secrets.

There are two time limits:

1. for the name lookup, the TCP connection and the TLS handshake together
2. for the request and the response together
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any
from urllib.parse import urlsplit

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.network.bounded_lookup import resolve_within
from spark_kafka_sink.network.http.http_proxy import Proxy, proxy_for
from spark_kafka_sink.network.tls.ssl_context import ssl_context
from spark_kafka_sink.network.tls.ssl_failures import explain


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One HTTP request. ``tls`` are the ``ssl.`` options for the connection. ``most_bytes`` is the
    maximum size of the response body.

    ``truststore`` is the name of the option with the CA of the server. The name is used in the
    hints of errors.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)
    tls: Mapping[str, object] = field(repr=False)
    connect_timeout_ms: int
    read_timeout_ms: int
    most_bytes: int
    truststore: str


#: OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_NAMES_ANOTHER_HOST = (62, 64)
#: The maximum number of bytes of the headers, including all "100 Continue" responses before the
#: headers.
_MOST_HEADERS = 1 << 18


class _AnswerTooLongError(Exception):
    """The response is longer than the limit."""


class FinalFailureError(KafkaError):
    """The server or the proxy has failed in a way for which a retry is useless."""


def exchange(request: HttpRequest) -> tuple[int, bytes]:
    """Sends an HTTP request. Returns the status code and the body of the response. Raises these
    errors:

    * TimeoutError, another OSError, or http.client.HTTPException: a retry may succeed.
    * FinalFailureError: a retry is useless.
    * UnicodeError: the host name is invalid.
    * ConfigError: the TLS options or HTTPS_PROXY are invalid.
    """
    try:
        return _exchange(request)
    except ssl.SSLCertVerificationError as error:
        # The table has the words and options of brokers.
        reason, hint = (text and text.replace("broker", "server") for text in explain(error))
        if error.verify_code in _NAMES_ANOTHER_HOST:
            hint = "it must carry the host of the URL in its subjectAltName"
        elif hint is None or "truststore" in hint:
            hint = f"another CA goes to {request.truststore}"
        raise FinalFailureError(f"can't be trusted: {reason}", hint=hint) from None
    except _AnswerTooLongError:
        said = f"answers with more than {request.most_bytes} bytes"
        raise FinalFailureError(said, hint="is it the URL?") from None


def _exchange(request: HttpRequest) -> tuple[int, bytes]:
    parts = urlsplit(request.url)
    assert parts.hostname is not None, "checked with the options"
    host, secure = parts.hostname, parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    context = ssl_context(dict(request.tls)) if secure else None
    proxy = proxy_for(host) if context is not None else None
    deadline = _Deadline(request.connect_timeout_ms)
    sock = _connected((host, port) if proxy is None else (proxy.host, proxy.port), deadline)
    try:
        if proxy is not None:
            _tunnel(sock, proxy, (host, port), deadline)
        if context is not None:
            sock.settimeout(deadline.left())
            # The time of a handshake limits all its reads together.
            sock = context.wrap_socket(sock, server_hostname=host)
        most = request.most_bytes + _MOST_HEADERS
        connection = http.client.HTTPConnection(host, port)
        if context is not None:
            connection.default_port = 443  # for the header Host
        # what http.client uses of a socket
        connection.sock = _BoundedSocket(sock, _Deadline(request.read_timeout_ms), most)
        connection.request(request.method, target, body=request.body, headers=dict(request.headers))
        response = connection.getresponse()
        answer = response.read(request.most_bytes + 1)
        if len(answer) > request.most_bytes:
            raise _AnswerTooLongError
        return response.status, answer
    finally:
        sock.close()


def _tunnel(
    sock: socket.socket, proxy: Proxy, address: tuple[str, int], deadline: _Deadline
) -> None:
    """Requests a connection to the server ``address`` from the proxy, by the HTTP method CONNECT
    (RFC 9110, 9.3.6). ``sock`` is connected to the proxy. After this call, bytes that are written
    to ``sock`` reach the server, because the proxy forwards them.
    """
    connection = http.client.HTTPConnection(proxy.host, proxy.port)
    connection.sock = _BoundedSocket(sock, deadline, _MOST_HEADERS)
    name, port = address
    authority = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
    connection.request("CONNECT", authority, headers={"Host": authority} | proxy.headers())
    status = connection.getresponse().status
    if status != 200:
        raise OSError(f"the proxy {proxy.host}:{proxy.port} answered {status} to CONNECT")


def _connected(address: tuple[str, int], deadline: _Deadline) -> socket.socket:
    """Opens a TCP connection to a host. Tries the addresses of the host one after the other, until
    ``deadline``.
    """
    failure: OSError = TimeoutError()
    host, port = address
    host.encode("idna")  # UnicodeError for what is no name: asking again would not help
    found = resolve_within(
        deadline.left(), host, lambda it: socket.getaddrinfo(it, port, type=socket.SOCK_STREAM)
    )
    for family, kind, protocol, _, target in found:
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


class _Deadline:
    """A deadline on the monotonic clock. Only one thread may use it."""

    __slots__ = ("_at",)

    def __init__(self, milliseconds: int) -> None:
        self._at = time.monotonic() + milliseconds / 1000

    def left(self) -> float:
        """The time in seconds until the deadline. Raises TimeoutError after the deadline."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class _BoundedSocket:
    """A socket for http.client, with one deadline and one size limit for the whole response. An
    ordinary socket would let a server keep the client busy without end:

    * The timeout of a Python socket begins again with each received byte.
    * http.client reads any number of "100 Continue" responses.
    """

    __slots__ = ("_deadline", "_most_bytes", "_sock")

    def __init__(self, sock: socket.socket, deadline: _Deadline, most_bytes: int) -> None:
        self._sock = sock
        self._deadline = deadline
        self._most_bytes = most_bytes

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._deadline.left())
        self._sock.sendall(data)

    def makefile(self, mode: str) -> IO[bytes]:
        del mode  # "rb" is all that is asked for
        return io.BufferedReader(_BoundedReader(self._sock, self._deadline, self._most_bytes))

    def close(self) -> None:
        """Does nothing. The function that has opened the socket closes it."""


class _BoundedReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: _Deadline, most_bytes: int) -> None:
        self._sock = sock
        self._deadline = deadline
        self._most_bytes = most_bytes
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - as io.RawIOBase declares it
        self._sock.settimeout(self._deadline.left())
        count = self._sock.recv_into(buffer)
        self._read += count
        if self._read > self._most_bytes:
            raise _AnswerTooLongError
        return count
