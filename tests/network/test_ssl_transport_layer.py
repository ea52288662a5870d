"""TLS over a pair of sockets. The far side is a TLS server on memory, pumped by the test."""

from __future__ import annotations

import itertools
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.network.tls import ssl_transport_layer
from spark_kafka_sink.network.tls.ssl_context import ssl_context
from spark_kafka_sink.network.tls.ssl_transport_layer import SslTransportLayer
from spark_kafka_sink.security.password import Password
from tests.network.tls_messages import (
    HELLO_REQUEST,
    client_random,
    hello_requests,
    key_updates,
    server_random,
)

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


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def shake(client: SslTransportLayer, server: Server, most: int = 1 << 20) -> None:
    for _ in range(20_000):
        client.handshake()
        if client.ready and server.done and not client.has_pending_writes:
            return
        server.pump(most)
    raise AssertionError("no handshake")


def shake_and_read(client: SslTransportLayer, server: Server) -> None:
    """TLS 1.3 tells of a refused client certificate at the first read."""
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


def test_bytes_arrive_as_they_are_in_both_directions(sockets):
    client = SslTransportLayer(sockets[0], trusting(), "broker.example", "broker:1")
    server = Server(sockets[1])
    shake(client, server)
    assert not client.has_bytes_buffered
    pieces = [os.urandom(n) for n in (1, 61, 16_383, 2, 70_000, 16_384, 0, 5)]
    sent, whole = 0, b"".join(pieces)
    while sent < len(whole):
        sent += client.write([memoryview(whole)[sent : sent + 40_000]])
        server.pump()
    while client.has_pending_writes:
        assert client.wants_write
        client.write([])
        server.pump()
    server.pump()
    assert bytes(server.received) == whole
    server.to_send = whole
    assert read_all(client, server, len(whole)) == whole
    assert client.read_into(memoryview(bytearray(1))) == 0


def test_many_small_buffers_share_records(sockets):
    client = SslTransportLayer(sockets[0], trusting(), "broker.example", "broker:1")
    server = Server(sockets[1])
    shake(client, server)
    assert client.write([b"0123456789"] * 500) == 5_000
    encrypted = sockets[1].recv(1 << 20, socket.MSG_PEEK)
    assert len(encrypted) < 5_000 + 100
    server.pump()
    assert bytes(server.received) == b"0123456789" * 500


def test_a_full_socket_takes_what_it_can_and_the_rest_waits(sockets):
    client = SslTransportLayer(sockets[0], trusting(), "broker.example", "broker:1")
    server = Server(sockets[1])
    shake(client, server)
    block = os.urandom(1 << 20)
    taken = client.write([block])
    assert 0 < taken < len(block)
    assert client.has_pending_writes
    assert client.write([block[taken:]]) == 0
    while taken < len(block):
        server.pump()
        taken += client.write([memoryview(block)[taken:]])
    while client.has_pending_writes:
        server.pump()
        client.write([])
    server.pump()
    assert bytes(server.received) == block


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 50), st.integers(1, 5_000))
def test_records_cut_at_any_byte_change_nothing(most, size):
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        client = SslTransportLayer(ours, trusting(), "broker.example", "broker:1")
        server = Server(theirs)
        shake(client, server, most)
        server.to_send = bytes(range(256)) * (size // 256 + 1)
        assert read_all(client, server, size, most) == server_bytes(size)


def server_bytes(size: int) -> bytes:
    return (bytes(range(256)) * (size // 256 + 1))[:size]


def test_what_is_decrypted_already_is_told_as_buffered(sockets):
    client = SslTransportLayer(sockets[0], trusting(), "broker.example", "broker:1")
    server = Server(sockets[1])
    shake(client, server)
    server.to_send = b"x" * 100
    server.pump()
    assert client.read_into(memoryview(bytearray(10))) == 10
    assert client.has_bytes_buffered
    assert client.read_into(memoryview(bytearray(100))) == 90
    assert client.read_into(memoryview(bytearray(10))) == 0
    assert not client.has_bytes_buffered


def test_a_cut_at_every_byte_of_the_handshake_is_a_connection_that_ended():
    def life(cut: int) -> int:
        """Bytes of the server's handshake; the connection is cut after ``cut`` of them."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with ours, theirs:
            client = SslTransportLayer(ours, trusting(), "broker.example", "broker:1")
            server = Server(theirs)
            sent = 0
            while True:
                client.handshake()
                if client.ready:
                    return sent
                server.take()
                server.answer()
                piece = server.unsent[: cut - sent]
                theirs.sendall(piece)
                server.unsent = server.unsent[len(piece) :]
                sent += len(piece)
                if sent == cut:
                    theirs.close()
                    with pytest.raises(ConnectionError, match=r"during the TLS|first byte of TLS"):
                        client.handshake()
                    return sent

    # ECDSA signatures differ in length by some bytes: below those, no handshake is whole.
    whole = life(1 << 20) - 16
    assert whole > 500
    for cut in (0, 1, 5, *range(6, whole, 97), whole):
        assert life(cut) == cut


def test_a_broker_that_is_gone_when_we_answer_is_a_connection_that_ended(sockets):
    client = SslTransportLayer(sockets[0], trusting(), "broker.example", "broker:1")
    server = Server(sockets[1])
    client.handshake()
    server.take()
    server.answer()
    sockets[1].sendall(server.unsent)
    sockets[1].close()
    with pytest.raises(ConnectionError, match="during the TLS handshake"):
        client.handshake()


def test_a_closed_connection_is_told_with_and_without_close_notify(sockets):
    client = SslTransportLayer(sockets[0], trusting(), "broker.example", "broker:1")
    server = Server(sockets[1])
    shake(client, server)
    server.to_send = b"last words"
    server.pump()
    sockets[1].close()
    assert read_all_closed(client) == b"last words"


def read_all_closed(client: SslTransportLayer) -> bytes:
    target = memoryview(bytearray(100))
    got = client.read_into(target)
    with pytest.raises(ConnectionError, match="closed the connection"):
        client.read_into(target)
    return bytes(target[:got])


@pytest.mark.parametrize(
    "breaks",
    [b"\x17\x03\x03\x00\x20" + bytes(32), b"not a record at all"],
    ids=["a damaged record", "no record"],
)
def test_a_session_that_breaks_once_it_has_carried_bytes_is_a_connection_that_ended(
    sockets, breaks
):
    """A damaged record says nothing of who we are: the next connection may be whole (as in Java,
    where only what comes before the first bytes is a refusal).
    """
    client = SslTransportLayer(sockets[0], trusting(), "broker.example", "broker:1")
    server = Server(sockets[1])
    shake(client, server)
    server.to_send = b"answer"
    assert read_all(client, server, 6) == b"answer"
    sockets[1].sendall(breaks)
    with pytest.raises(ConnectionError, match="TLS to broker:1 broke: "):
        client.read_into(memoryview(bytearray(10)))


def test_close_says_goodbye_to_the_broker(sockets):
    client = SslTransportLayer(sockets[0], trusting(), "broker.example", "broker:1")
    server = Server(sockets[1])
    shake(client, server)
    client.close()
    server.incoming.write(sockets[1].recv(1 << 16))
    assert server.session.read(1) == b"", "without close_notify it is an SSLWantReadError"


OTHER_CA = trustme.CA()


@pytest.mark.parametrize(
    ("context", "host", "server", "text"),
    [
        (trusting(OTHER_CA), "broker.example", {}, "a CA that is not trusted"),
        (trusting(), "other.example", {}, "does not name this host"),
        (trusting(), "127.0.0.1", {}, "does not name this address"),
        (trusting(), "broker.example", {"client_ca": CA}, "requires a client certificate"),
        (
            trusting(**{"ssl.enabled.protocols": ["TLSv1.3"]}),
            "broker.example",
            {"version": ssl.TLSVersion.TLSv1_2},
            "no TLS version in common",
        ),
        (
            trusting(
                **{
                    "ssl.enabled.protocols": ["TLSv1.2"],
                    "ssl.cipher.suites": ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
                }
            ),
            "broker.example",
            {"version": ssl.TLSVersion.TLSv1_3},
            "no TLS version in common",
        ),
    ],
)
def test_a_failed_handshake_says_why_and_where(sockets, context, host, server, text):
    client = SslTransportLayer(sockets[0], context, host, "broker:1 (127.0.0.1)")
    far = Server(sockets[1], **server)
    with pytest.raises(AuthenticationError, match=text) as raised:
        shake_and_read(client, far)
    assert "broker:1 (127.0.0.1)" in raised.value.message
    assert raised.value.hint


def test_a_port_without_tls_is_named_as_such(sockets):
    client = SslTransportLayer(sockets[0], trusting(), "broker.example", "broker:1")
    client.handshake()
    sockets[1].send(b"\x00\x00\x00\x1a a plaintext answer......")
    with pytest.raises(AuthenticationError, match="the port does not speak TLS"):
        client.handshake()


def test_a_port_that_hangs_up_on_tls_is_named_as_such(sockets):
    client = SslTransportLayer(sockets[0], trusting(), "broker.example", "broker:1")
    client.handshake()
    sockets[1].shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionError, match="is it a PLAINTEXT or SASL_PLAINTEXT port"):
        client.handshake()


def test_a_client_certificate_is_shown_and_an_unknown_one_is_refused(sockets):
    def context(certificate: trustme.LeafCert) -> ssl.SSLContext:
        return trusting(
            **{
                "ssl.keystore.key": Password(certificate.private_key_pem.bytes().decode()),
                "ssl.keystore.certificate.chain": Password(
                    "".join(pem.bytes().decode() for pem in certificate.cert_chain_pems)
                ),
            }
        )

    client = SslTransportLayer(sockets[0], context(CLIENT), "broker.example", "broker:1")
    server = Server(sockets[1], client_ca=CA)
    shake(client, server)
    assert server.session.getpeercert()["subjectAltName"] == (("DNS", "client.example"),)

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        stranger = OTHER_CA.issue_cert("client.example")
        client = SslTransportLayer(ours, context(stranger), "broker.example", "broker:1")
        server = Server(theirs, client_ca=CA)
        with pytest.raises(AuthenticationError, match="does not accept our client certificate"):
            shake_and_read(client, server)


# --- messages of TLS's own, without end

TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.fixture
def wide(sockets):
    """Sockets that hold more than one call may take."""
    for sock in sockets:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
    return sockets


def fill(sock: socket.socket, messages: Iterator[bytes]) -> int:
    """As many of them as the socket takes, the last one cut; how many bytes they are."""
    size = 0
    while True:
        piece = b"".join(itertools.islice(messages, 500))
        while piece:
            try:
                sent = sock.send(piece)
            except BlockingIOError:
                return size
            size, piece = size + sent, piece[sent:]


def flooded(sockets, keylog, version, beside=b"", every=1):
    """A client, its server, and what the server will send without end."""
    client = SslTransportLayer(sockets[0], trusting(), "broker.example", "broker:1")
    server = Server(sockets[1], version=version, keylog=keylog)
    shake(client, server)
    assert client.read_into(memoryview(bytearray(1))) == 0
    if version is TLS_1_3:
        return client, server, key_updates(keylog, beside, every)
    randoms = client_random(keylog), server_random(bytes(server.sent))
    return client, server, hello_requests(keylog, randoms)


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["hello requests", "key updates"])
def test_one_call_takes_a_chunk_of_messages_that_carry_nothing(wide, tmp_path, version):
    client, _, messages = flooded(wide, tmp_path / "keys", version)
    sent = fill(wide[1], messages)
    assert sent > 3 * 65_536
    assert client.read_into(memoryview(bytearray(100))) == 0
    left = len(wide[0].recv(1 << 24, socket.MSG_PEEK))
    assert left == sent - 65_536
    # The socket's event tells of the rest, and nothing waits above it.
    assert not client.has_bytes_buffered


def test_a_handshake_takes_a_chunk_at_a_time_of_messages_that_carry_nothing(wide):
    client = SslTransportLayer(wide[0], trusting(), "broker.example", "broker:1")
    client.handshake()
    wide[1].setblocking(False)
    sent = fill(wide[1], itertools.repeat(HELLO_REQUEST))
    client.handshake()
    assert len(wide[0].recv(1 << 24, socket.MSG_PEEK)) == sent - 65_536


def test_a_handshake_that_brings_nothing_is_ended(wide):
    client = SslTransportLayer(wide[0], trusting(), "broker.example", "broker:1")
    client.handshake()
    wide[1].setblocking(False)

    def flood():
        for _ in range(1000):
            fill(wide[1], itertools.repeat(HELLO_REQUEST))
            client.handshake()

    with pytest.raises(ConnectionError, match="bytes of TLS messages came with nothing in them"):
        flood()


@pytest.mark.parametrize("beside", [b"", b"x"], ids=["nothing else", "a byte now and then"])
def test_a_connection_that_brings_key_updates_and_little_else_is_ended(
    wide, tmp_path, monkeypatch, beside
):
    monkeypatch.setattr(ssl_transport_layer, "_MOST_IDLE", 200_000)
    client, server, messages = flooded(wide, tmp_path / "keys", TLS_1_3, beside, 100)
    got = bytearray()

    def flood():
        target, cut = memoryview(bytearray(100)), b""
        for _ in range(1000):
            cut += b"".join(itertools.islice(messages, 2000))
            with suppress(BlockingIOError):
                cut = cut[wide[1].send(cut) :]
            while count := client.read_into(target):
                got.extend(target[:count])
            server.sock.recv(1 << 20)  # it does read our answers

    with pytest.raises(ConnectionError, match="TLS messages came with nothing in them"):
        flood()
    assert bool(got) == bool(beside)


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["hello requests", "key updates"])
def test_a_broker_that_reads_no_answers_to_its_messages_is_left(wide, tmp_path, version):
    """What waits for the socket is the answers', and grew as long as the broker asked."""
    client, _, messages = flooded(wide, tmp_path / "keys", version)
    block = os.urandom(1 << 16)
    while client.write([block]):
        pass

    def flood():
        cut = b""
        for _ in range(1000):
            cut += b"".join(itertools.islice(messages, 500))
            with suppress(BlockingIOError):
                cut = cut[wide[1].send(cut) :]
            client.read_into(memoryview(bytearray(100)))

    with pytest.raises(ConnectionError, match="asks for answers to TLS messages"):
        flood()


def test_key_updates_beside_answers_change_nothing(wide, tmp_path):
    """A broker may renew its keys as often as RFC 8446 wants, and more often."""
    answer = os.urandom(1000)
    client, server, messages = flooded(wide, tmp_path / "keys", TLS_1_3, answer)
    target = memoryview(bytearray(2000))
    for message in itertools.islice(messages, 3000):
        wide[1].send(message)
        assert client.read_into(target) == len(answer)
        client.write([b"request"])
        server.take()
    server.answer()
    assert bytes(server.received) == b"request" * 3000


def test_unsent_bytes_of_ours_are_no_flood(wide):
    client = SslTransportLayer(wide[0], trusting(), "broker.example", "broker:1")
    server = Server(wide[1])
    shake(client, server)
    while client.write([os.urandom(1 << 20)]):
        pass
    server.to_send = b"an answer"
    server.answer()
    wide[1].send(server.unsent)
    assert client.read_into(memoryview(bytearray(100))) == 9
