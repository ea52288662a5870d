"""TLS's own messages without end: one call takes a chunk, and such a connection is closed."""

from __future__ import annotations

import itertools
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest

from spark_kafka_sink.network.tls import ssl_transport_layer
from spark_kafka_sink.network.tls.ssl_transport_layer import SslTransportLayer
from tests.network.tls_messages import (
    HELLO_REQUEST,
    client_random,
    hello_requests,
    key_updates,
    server_random,
)
from tests.network.tls_peer import Server, shake, shaken, trusting

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


def test_a_handshake_reads_empty_messages_a_chunk_at_a_time(wide):
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

    with pytest.raises(ConnectionError, match="bytes of TLS messages without any data"):
        flood()


@pytest.mark.parametrize("beside", [b"", b"x"], ids=["nothing else", "a byte now and then"])
def test_a_flood_of_key_updates_closes_the_connection(wide, tmp_path, monkeypatch, beside):
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

    with pytest.raises(ConnectionError, match="TLS messages without any data"):
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

    with pytest.raises(ConnectionError, match="does not read our responses to its TLS messages"):
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
    client, server = shaken(wide)
    while client.write([os.urandom(1 << 20)]):
        pass
    server.to_send = b"an answer"
    server.answer()
    wide[1].send(server.unsent)
    assert client.read_into(memoryview(bytearray(100))) == 9
