"""TLS answers: what a server really says, changed at random, cut, and in the middle of a session.

OpenSSL draws its own random numbers, so a seed repeats what is changed and not every byte; a
failure carries the last bytes that the client was sent.
"""

from __future__ import annotations

import random
import socket
import ssl
from contextlib import suppress
from functools import cache

import trustme

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.network.tls.ssl_context import ssl_context
from spark_kafka_sink.network.tls.ssl_transport_layer import SslTransportLayer
from tests.fuzz.mutate import mutated, refusal
from tests.network.tls_messages import HELLO_REQUEST

_VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
#: More may not wait for a broker that reads nothing.
_MOST_UNSENT = 512 * 1024
_CALLS = 40
_ENDS = (ConnectionError, ConnectionResetError, BrokenPipeError)
_STRANGE = (
    HELLO_REQUEST * 50,
    b"\x15\x03\x03\0\2\1\0" * 3,  # alerts: close_notify as a warning
    b"\x15\x03\x03\0\2\2\x28",
    b"\x14\x03\x03\0\1\1" * 40,  # ChangeCipherSpec
    b"\x16\x03\x03\0\0" * 40,  # empty records
    b"\x17\x03\x03\x40\0" + bytes(16384),
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
)


@cache
def _contexts() -> tuple[ssl.SSLContext, dict[ssl.TLSVersion, ssl.SSLContext]]:
    ca = trustme.CA()
    certificate = ca.issue_cert("broker.example")
    servers = {}
    for version in _VERSIONS:
        server = servers[version] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.minimum_version = server.maximum_version = version
        certificate.configure_cert(server)
    pem = Password(ca.cert_pem.bytes().decode())
    return ssl_context({"ssl.truststore.certificates": pem}), servers


def answers(rng: random.Random) -> str:
    """AuthenticationError or ConnectionError, no other; and nothing grows."""
    client_context, servers = _contexts()
    ours, theirs = socket.socketpair()
    told = bytearray()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        client = SslTransportLayer(ours, client_context, "broker.example", "broker:1")
        server = _Server(rng, servers[rng.choice(_VERSIONS)], theirs, told)
        try:
            error = refusal(lambda: _talk(rng, client, server), AuthenticationError, OSError)
            if isinstance(error, AuthenticationError):
                assert "\n" not in error.message
            else:  # (an SSLError is an OSError, too)
                assert error is None or type(error) in _ENDS, repr(error)
        except BaseException as failure:
            failure.add_note(f"after {len(told)} bytes, the last of them {told[-100:].hex()}")
            raise
        finally:
            client.close()
        stage = "a session" if client.ready else "a handshake"
        return f"{stage}: {type(error).__name__ if error else 'no error'}"


def _talk(rng: random.Random, client: SslTransportLayer, server: _Server) -> None:
    target = memoryview(bytearray(30_000))
    for _ in range(_CALLS):
        if not client.ready:
            client.handshake()
        elif rng.random() < 0.5:
            client.read_into(target)
        else:
            client.write([rng.randbytes(rng.randrange(1, 40_000))])
        waiting = len(client._encrypted) + client._outgoing.pending
        assert waiting <= _MOST_UNSENT, f"{waiting} bytes wait"
        server.go_on()


class _Server:
    """Means well, over a wire that doesn't."""

    def __init__(
        self, rng: random.Random, context: ssl.SSLContext, sock: socket.socket, told: bytearray
    ) -> None:
        self._rng = rng
        self._sock = sock
        self._told = told
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._done = False

    def go_on(self) -> None:
        rng = self._rng
        with suppress(BlockingIOError, ConnectionError):
            if rng.random() < 0.9:
                self._incoming.write(self._sock.recv(1 << 20))
        with suppress(ssl.SSLError):
            if not self._done:
                self._session.do_handshake()
                self._done = True
            elif rng.random() < 0.5:
                self._session.write(rng.randbytes(rng.randrange(1, 40_000)))
            else:
                self._session.read(1 << 20)
        out = self._outgoing.read()
        if rng.random() < 0.1:
            out += rng.choice(_STRANGE)
        if rng.random() < 0.15:
            out = mutated(rng, out)
        with suppress(BlockingIOError, ConnectionError):
            self._told += out[: self._sock.send(out)]
        if rng.random() < 0.02:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)
