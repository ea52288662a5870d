"""An identity provider that never ends, says odd things, or stands behind a proxy."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import trustme

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.config.logins.oauth_settings import ClientCredentials
from spark_kafka_sink.network.auth.token_endpoint import request_token
from spark_kafka_sink.network.auth.token_sources import token_fetcher
from spark_kafka_sink.network.http import http_exchange
from spark_kafka_sink.network.http.http_proxy import Proxy, proxy_for
from tests.network.loopback import serving
from tests.sasl.identity_provider import IdentityProvider, settings_of
from tests.secure_kafka import key_file

SECRET = "the-client-secret"


def client(url: str, **more: object) -> ClientCredentials:
    made = ClientCredentials(url, "id", Password(SECRET), 30_000, 30_000)
    return replace(made, **more)


@contextlib.contextmanager
def server(handle):
    with serving(handle) as (host, port):
        yield f"http://{host}:{port}/token"


def drip(begin: bytes, again: bytes) -> Callable[[socket.socket, threading.Event], None]:
    """After its beginning a little now and then, each long before the read timeout."""

    def handle(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(begin)
        while not over.wait(0.02):
            connection.sendall(again)

    return handle


def hundred(connection: socket.socket, over: threading.Event) -> None:
    while not over.is_set():
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


@pytest.mark.timeout(30)  # without a bound, none of them ends
@pytest.mark.parametrize(
    "handle",
    [
        drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "),
        drip(b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        drip(b"", b""),
    ],
    ids=["a body", "a header", "100 Continue", "silence"],
)
def test_an_answer_that_never_ends_is_a_timeout_of_the_whole(handle):
    with server(handle) as url, pytest.raises(TimeoutError, match="300 ms to answer") as raised:
        request_token(client(url, read_timeout_ms=300))
    assert "sasl.login.read.timeout.ms" in str(raised.value)


@pytest.mark.timeout(30)
def test_an_endless_handshake_takes_no_longer_than_connecting():
    """The head of a TLS record of 16 KiB, and then a byte of it now and then."""
    with server(drip(b"\x16\x03\x03\x40\x00", b"\x02")) as url:
        given = client(url.replace("http:", "https:"), connect_timeout_ms=300)
        with pytest.raises(TimeoutError, match="300 ms to connect"):
            request_token(given)


@pytest.mark.timeout(30)
def test_endless_100_continue_is_bounded_in_bytes():
    with server(hundred) as url, pytest.raises(AuthenticationError, match="more than 1048576"):
        request_token(client(url, read_timeout_ms=20_000))


@pytest.mark.timeout(30)
def test_addresses_that_do_not_answer_share_the_time_to_connect(monkeypatch):
    """A name with many of them, each of which would have the whole time."""
    # Of TEST-NET-1, and a clock by which each attempt takes a second.
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{i}", 1)) for i in range(50)]
    monkeypatch.setattr(http_exchange.socket, "getaddrinfo", lambda *_, **__: found)
    tried, now = [], iter(range(1000))
    monkeypatch.setattr(http_exchange.time, "monotonic", lambda: next(now))

    class Refuses:
        def __init__(self, *_):
            self.timeout = None

        def settimeout(self, seconds):
            self.timeout = seconds

        def connect(self, target):
            tried.append((target, self.timeout))
            raise TimeoutError

        def close(self):
            pass

    monkeypatch.setattr(http_exchange.socket, "socket", Refuses)
    with pytest.raises(TimeoutError, match="4000 ms to connect"):
        request_token(client("http://127.0.0.1:1/", connect_timeout_ms=4000))
    assert [seconds for _, seconds in tried] == [2.0, 1.0], "the lookup has had one"


def fetch(answer: object) -> object:
    with IdentityProvider(
        client_id="id", client_secret=SECRET, answers=[(200, answer)]
    ) as provider:
        return token_fetcher(settings_of(client(provider.url)), SystemClock())("b")


@pytest.mark.parametrize("number", ["1e400", "NaN", "-1e400", "1" + "0" * 400, "9" * 20])
@pytest.mark.parametrize("where", ["expires_in", "exp"])
def test_an_impossible_lifetime_is_reported(number, where):
    if where == "exp":
        body = base64.urlsafe_b64encode(b'{"exp":%b}' % number.encode()).decode().rstrip("=")
        answer = json.dumps({"access_token": f"e30.{body}.x"}).encode()
    else:
        answer = b'{"access_token":"abc","expires_in":%b}' % number.encode()
    with pytest.raises(AuthenticationError, match=where) as raised:
        fetch(answer)
    assert "not a valid number of seconds" in raised.value.message
    assert "of http://127.0.0.1:" in raised.value.message, "whose"


@pytest.mark.parametrize("life", ['"3600"', "null", "true", "[1]", "{}"])
def test_what_is_no_number_says_nothing_of_a_tokens_life(life):
    found = fetch(b'{"access_token":"abc","expires_in":%b}' % life.encode())
    assert found.expires_after_ms is None


@pytest.mark.parametrize(
    "told", ["the-client-secret", "THE-CLIENT-SECRET", "the&#45;client-secret", "id9 is not known"]
)
def test_a_provider_that_echoes_its_request_is_not_trusted(told):
    answer = {"error": "invalid_client", "error_description": told}
    with IdentityProvider(answers=[(401, answer)]) as provider:
        given = client(provider.url, client_id=Password("id9", "${env:ID}"))
        with pytest.raises(AuthenticationError, match="answered 401: invalid_client") as raised:
            request_token(given)
    shown = str(raised.value).lower()
    assert SECRET not in shown
    assert "&#45;" not in shown
    assert "id9" not in shown


@pytest.mark.parametrize("host", ["x" * 70, "a..example"])
def test_an_impossible_host_name_is_reported(host):
    with pytest.raises(AuthenticationError, match="holds no name of a host"):
        request_token(client(f"http://{host}/token"))


# --- proxies --------------------------------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch):
    """No proxy but those that a test sets."""
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@contextlib.contextmanager
def proxy(target: tuple[str, int], status: bytes = b"200 OK"):
    """One that makes a tunnel to ``target``, whatever it is asked for; its requests as a list."""
    asked: list[bytes] = []

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    near, _ = listening.accept()
                    with near, contextlib.suppress(OSError):
                        asked.append(near.recv(65536))
                        near.sendall(b"HTTP/1.1 " + status + b"\r\n\r\n")
                        if status != b"200 OK":
                            continue
                        with socket.create_connection(target) as far:
                            back = threading.Thread(target=pump, args=(far, near), daemon=True)
                            back.start()
                            pump(near, far)
                            back.join(60)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", asked
        listening.shutdown(socket.SHUT_RDWR)


def test_https_uses_the_environments_proxy_and_is_verified(environment, tmp_path):
    ca = trustme.CA()
    key = key_file(tmp_path, "key", ca.issue_cert("idp.example", "localhost"))
    tls = (("ssl.truststore.certificates", Password(ca.cert_pem.bytes().decode())),)
    with IdentityProvider(client_id="id", client_secret=SECRET, key_file=key) as idp:
        address = ("127.0.0.1", idp.http.port)
        given = client(f"https://idp.example:{address[1]}/token", tls=tls, read_timeout_ms=10_000)
        with proxy(address) as (where, asked):
            environment.setenv("HTTPS_PROXY", f"http://alice:p%40w@{where}")
            assert request_token(given).token.value.count(".") == 2
            (request,) = asked
            assert request.startswith(f"CONNECT idp.example:{address[1]} HTTP/1.1\r\n".encode())
            assert base64.b64encode(b"alice:p@w") in request
            assert SECRET.encode() not in request
            assert base64.b64encode(f"id:{SECRET}".encode()) not in request
            # No proxy is asked for this machine.
            assert request_token(replace(given, url=f"https://localhost:{address[1]}/token"))
            assert len(asked) == 1
            # Another CA: the proxy can't vouch for the server.
            with pytest.raises(AuthenticationError, match="not trusted"):
                request_token(client(given.url))
        with proxy(address, b"407 no") as (where, asked):
            environment.setenv("HTTPS_PROXY", f"http://alice:p%40w@{where}")
            with pytest.raises(OSError, match=f"proxy {where} answered 407 to CONNECT") as raised:
                request_token(given)
            assert "p@w" not in str(raised.value)


def test_a_proxy_is_read_from_the_environment_as_curl_does(environment):
    assert proxy_for("idp.example") is None
    environment.setenv("https_proxy", "proxy.corp:3128")
    assert proxy_for("idp.example") == Proxy("proxy.corp", 3128)
    assert proxy_for("localhost") is proxy_for("127.0.0.1") is proxy_for("::1") is None
    environment.setenv("no_proxy", "internal,.corp")
    assert proxy_for("idp.internal") is proxy_for("idp.corp") is None
    assert proxy_for("idp.example") is not None
    environment.setenv("no_proxy", "*")
    assert proxy_for("idp.example") is None


@pytest.mark.parametrize("url", ["socks5://canary9:1080", "https://canary9", "http://canary9:x"])
def test_a_proxy_that_is_not_http_is_an_error_without_its_text(environment, url):
    environment.setenv("HTTPS_PROXY", url)
    with pytest.raises(ConfigError, match="HTTPS_PROXY") as raised:
        proxy_for("idp.example")
    assert "canary9" not in str(raised.value)
