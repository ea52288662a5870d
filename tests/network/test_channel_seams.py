"""What a transport may ask of selector and channel: small stand-ins over sockets bring at once what
TLS does seldom.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.network.auth.authenticator import PlaintextAuthenticator
from spark_kafka_sink.network.channel.channel_builder import ChannelBuilder
from spark_kafka_sink.network.channel.kafka_channel import KafkaChannel
from spark_kafka_sink.network.frame_reader import FrameReader
from spark_kafka_sink.network.tls.ssl_transport_layer import SslTransportLayer
from spark_kafka_sink.network.transport_layer import PlaintextTransportLayer, TransportLayer
from spark_kafka_sink.protocol.request import Buffer
from tests.network.loopback import (
    Driver,
    LoopbackServer,
    connected,
    framed,
    read_frame,
    send_of,
)


class Builder(ChannelBuilder):
    """A ChannelBuilder of a transport that the test gives."""

    def __init__(self, transport: Callable[[socket.socket], TransportLayer]) -> None:
        super().__init__()
        self.transport = transport

    def build_channel(
        self, node_id: int, host: str, remote: str, sock: socket.socket
    ) -> KafkaChannel:
        transport = self.transport(sock)
        return KafkaChannel(node_id, remote, transport, PlaintextAuthenticator(), FrameReader())


class PendingTransport(PlaintextTransportLayer):
    """Has bytes that it still has to write."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.pending = b""

    @property
    def has_pending_writes(self) -> bool:  # type: ignore[override]
        return len(self.pending) > 0

    def write_pending(self) -> None:
        self.pending = self.pending[super().write([self.pending]) :]


class LazyTransport(PendingTransport):
    """Takes one buffer whole, and writes it with the next call: bytes are pending in between."""

    def write(self, buffers: Sequence[Buffer]) -> int:
        if self.pending:
            self.write_pending()
            return 0
        if not buffers:
            return 0
        self.pending = bytes(buffers[0])
        return len(self.pending)


class AnsweringTransport(PendingTransport):
    """What it reads it must answer by itself, as TLS does a key update; the socket is full then."""

    wants_write = PendingTransport.has_pending_writes  # type: ignore[assignment]

    def read_into(self, target: memoryview) -> int:
        count = super().read_into(target)
        if b"update" in bytes(target[:count]):
            self.pending = framed(b"updated")
        return count

    def write(self, buffers: Sequence[Buffer]) -> int:
        if self.pending:
            self.write_pending()
            if self.pending:
                return 0
        return super().write(buffers) if buffers else 0


def test_a_send_is_complete_only_when_nothing_is_pending_below() -> None:
    with connected(builder=Builder(LazyTransport)) as (driver, peer):
        driver.selector.send(send_of(1, b"one", b"two"))
        driver.poll_until(lambda: driver.sends)
        assert read_frame(peer) == b"onetwo"


def test_bytes_to_write_after_a_read_go_out_without_a_send() -> None:
    """Else the socket is writable for ever, and every poll ends at once, until the next send."""
    with connected(builder=Builder(AnsweringTransport)) as (driver, peer):
        peer.settimeout(5)
        peer.sendall(framed(b"update"))
        driver.poll_until(lambda: driver.receives)
        driver.poll(20)
        assert read_frame(peer) == b"updated"


def channel_of(protocol: str, options: dict[str, object]) -> KafkaChannel:
    with socket.socket() as sock:
        return ChannelBuilder.of(protocol, options).build_channel(1, "localhost", "", sock)


def test_a_protocol_gets_its_channel_and_never_another_ones() -> None:
    sasl: dict[str, object] = {
        "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"
    }  # fmt: skip
    for protocol, options, encrypted, complete in (
        ("PLAINTEXT", {}, False, True),
        ("SSL", {}, True, True),
        ("SASL_SSL", sasl, True, False),
        ("SASL_PLAINTEXT", sasl, False, False),
    ):
        channel = channel_of(protocol, options)
        assert isinstance(channel.transport, SslTransportLayer) == encrypted
        assert channel._authenticator.complete == complete
    for protocol in ("SASL_SSL", "SASL_PLAINTEXT"):
        with pytest.raises(ConfigError, match=r"sasl\.mechanism"):
            ChannelBuilder.of(protocol, {})


def test_closing_one_nodes_connection_leaves_the_others_alone() -> None:
    """NetworkClientTest#testClose: its closer knows, so it is not reported as lost."""
    with LoopbackServer() as server, Driver() as driver:
        driver.connect(1, server.address)
        first = server.accept()
        driver.connect(2, server.address)
        second = server.accept()
        driver.selector.close_channel(1)
        driver.selector.close_channel(1)  # there is none any more
        assert not driver.selector.is_channel_ready(1)
        assert first.recv(1) == b""
        driver.selector.send(send_of(2, b"fine"))
        driver.poll_until(lambda: driver.sends)
        assert read_frame(second) == b"fine"
        assert driver.disconnected == {}
