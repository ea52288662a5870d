"""TLS over a pair of sockets. The far side is a TLS server on memory, pumped by the test."""

from __future__ import annotations

import os
import socket
import ssl

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import AuthenticationError
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.network.tls.ssl_transport_layer import SslTransportLayer
from tests.network.tls_peer import (
    CA,
    CLIENT,
    Server,
    read_all,
    shake,
    shake_and_read,
    shaken,
    trusting,
)


def test_bytes_arrive_as_they_are_in_both_directions(sockets):
    client, server = shaken(sockets)
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
    client, server = shaken(sockets)
    assert client.write([b"0123456789"] * 500) == 5_000
    encrypted = sockets[1].recv(1 << 20, socket.MSG_PEEK)
    assert len(encrypted) < 5_000 + 100
    server.pump()
    assert bytes(server.received) == b"0123456789" * 500


def test_a_full_socket_takes_what_it_can_and_the_rest_waits(sockets):
    client, server = shaken(sockets)
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


def test_decrypted_bytes_are_reported_as_buffered(sockets):
    client, server = shaken(sockets)
    server.to_send = b"x" * 100
    server.pump()
    assert client.read_into(memoryview(bytearray(10))) == 10
    assert client.has_bytes_buffered
    assert client.read_into(memoryview(bytearray(100))) == 90
    assert client.read_into(memoryview(bytearray(10))) == 0
    assert not client.has_bytes_buffered


def test_a_cut_at_any_byte_of_the_handshake_is_a_disconnection():
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


def test_a_broker_gone_before_our_answer_is_a_disconnection(sockets):
    client = SslTransportLayer(sockets[0], trusting(), "broker.example", "broker:1")
    server = Server(sockets[1])
    client.handshake()
    server.take()
    server.answer()
    sockets[1].sendall(server.unsent)
    sockets[1].close()
    with pytest.raises(ConnectionError, match="during the TLS handshake"):
        client.handshake()


def test_a_close_is_seen_with_and_without_close_notify(sockets):
    client, server = shaken(sockets)
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
def test_a_session_broken_after_first_bytes_is_a_disconnection(sockets, breaks):
    """A damaged record says nothing of who we are: the next connection may be whole (as in Java,
    where only what comes before the first bytes is a refusal).
    """
    client, server = shaken(sockets)
    server.to_send = b"answer"
    assert read_all(client, server, 6) == b"answer"
    sockets[1].sendall(breaks)
    with pytest.raises(ConnectionError, match="TLS to broker:1 broke: "):
        client.read_into(memoryview(bytearray(10)))


def test_close_says_goodbye_to_the_broker(sockets):
    client, server = shaken(sockets)
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


def test_a_client_certificate_is_sent_and_an_unknown_one_refused(sockets):
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
