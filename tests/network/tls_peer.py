"""A TLS server on memory at the far side of a pair of sockets, pumped by the test."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

import trustme

from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.network.tls.ssl_context import ssl_context
from spark_kafka_sink.network.tls.ssl_transport_layer import SslTransportLayer

CA = trustme.CA()
SERVER = CA.issue_cert("broker.example")
CLIENT = CA.issue_cert("client.example")


def trusting(ca: trustme.CA = CA, **more: object) -> ssl.SSLContext:
    pem = ca.cert_pem.bytes().decode()
    options: dict[str, object] = {"ssl.truststore.certificates": Password(pem)}
    return ssl_context(options | more)


class Server:
    """A TLS server over a socket, without a thread: :meth:`pump` moves what there is."""

    def __init__(
        self, sock: socket.socket, certificate=SERVER, *, client_ca=None, version=None, keylog=None
    ):
        self.sock = sock
        sock.setblocking(False)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        if keylog is not None:
            context.keylog_filename = str(keylog)
            context.num_tickets = 0
            context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256")
        if version is not None:
            context.minimum_version = context.maximum_version = version
        if client_ca is not None:
            client_ca.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.unsent = b""
        self.sent = bytearray()
        self.received = bytearray()
        self.to_send = b""
        self.done = False
        self.error: ssl.SSLError | None = None

    def pump(self, most: int = 1 << 20) -> None:
        """Read at most ``most`` encrypted bytes, answer, send at most ``most``."""
        self.take(most)
        self.answer()
        if self.unsent:
            with suppress(BlockingIOError):
                sent = self.sock.send(self.unsent[:most])
                self.sent += self.unsent[:sent]
                self.unsent = self.unsent[sent:]

    def take(self, most: int = 1 << 20) -> None:
        with suppress(BlockingIOError):
            data = self.sock.recv(most)
            self.incoming.write(data) if data else self.incoming.write_eof()

    def answer(self) -> None:
        try:
            if not self.done:
                self.session.do_handshake()
                self.done = True
            if self.to_send:
                self.session.write(self.to_send)
                self.to_send = b""
            while True:
                piece = self.session.read(1 << 16)
                if not piece:
                    break
                self.received += piece
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        except ssl.SSLError as error:
            self.error = error
        self.unsent += self.outgoing.read()


def shake(client: SslTransportLayer, server: Server, most: int = 1 << 20) -> None:
    for _ in range(20_000):
        client.handshake()
        if client.ready and server.done and not client.has_pending_writes:
            return
        server.pump(most)
    raise AssertionError("no handshake")


def shaken(sockets: tuple[socket.socket, socket.socket]) -> tuple[SslTransportLayer, Server]:
    """A client and its server, behind their handshake."""
    client = SslTransportLayer(sockets[0], trusting(), "broker.example", "broker:1")
    server = Server(sockets[1])
    shake(client, server)
    return client, server


def shake_and_read(client: SslTransportLayer, server: Server) -> None:
    """TLS 1.3 reports a refused client certificate at the first read."""
    for _ in range(20):
        client.handshake()
        server.pump()
        if client.ready:
            client.read_into(memoryview(bytearray(1)))


def read_all(client: SslTransportLayer, server: Server, size: int, most: int = 1 << 20) -> bytes:
    target, got = memoryview(bytearray(size)), 0
    for _ in range(100_000):
        if got == size:
            return bytes(target)
        server.pump(most)
        got += client.read_into(target[got:])
    raise AssertionError(f"{got} of {size} bytes")
