"""What TLS and SASL will need of selector and channel, shown with small stand-ins over sockets."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

import pytest

from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.network.auth.authenticator import Authenticator, PlaintextAuthenticator
from spark_kafka_sink.network.channel.channel_builder import ChannelBuilder
from spark_kafka_sink.network.channel.kafka_channel import KafkaChannel
from spark_kafka_sink.network.channel.selectable import ChannelStateKind
from spark_kafka_sink.network.frame_reader import FrameReader
from spark_kafka_sink.network.tls.ssl_transport_layer import SslTransportLayer
from spark_kafka_sink.network.transport_layer import PlaintextTransportLayer, TransportLayer
from spark_kafka_sink.protocol.request import Buffer
from tests.network.loopback import (
    Driver,
    LoopbackServer,
    connected,
    framed,
    read_exactly,
    read_frame,
    send_of,
)


class Builder(ChannelBuilder):
    """A ChannelBuilder of a transport and an authenticator that the test gives."""

    def __init__(
        self,
        transport: Callable[[socket.socket], TransportLayer],
        authenticator: Callable[[TransportLayer], Authenticator] = lambda _: (
            PlaintextAuthenticator()
        ),
    ) -> None:
        super().__init__()
        self.transport = transport
        self.authenticator = authenticator
        self.closed = False

    def build_channel(
        self, node_id: int, host: str, remote: str, sock: socket.socket
    ) -> KafkaChannel:
        transport = self.transport(sock)
        return KafkaChannel(
            node_id, remote, transport, self.authenticator(transport), FrameReader()
        )

    def attach(self, wakeup: Callable[[], None]) -> None:
        self.wakeup = wakeup

    def close(self) -> None:
        self.closed = True


class GreetingTransport(PlaintextTransportLayer):
    """Ready after "hello" went out and "welcome" came in, which may take many events."""

    ready = False
    wants_write = True

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.awaited = b"welcome"

    def handshake(self) -> None:
        if self.wants_write:
            self.wants_write = self.write([b"hello"]) == 0
        data = bytearray(len(self.awaited))
        count = self.read_into(memoryview(data))
        assert self.awaited.startswith(data[:count])
        self.awaited = self.awaited[count:]
        self.ready = not self.awaited


class ReadAheadTransport(PlaintextTransportLayer):
    """Takes all that the socket has, and hands it out piece by piece, as TLS records do."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.buffered = bytearray()

    @property
    def has_bytes_buffered(self) -> bool:  # type: ignore[override]
        return bool(self.buffered)

    def read_into(self, target: memoryview) -> int:
        if not self.buffered:
            ahead = bytearray(65536)
            self.buffered += ahead[: super().read_into(memoryview(ahead))]
        count = min(len(target), len(self.buffered))
        target[:count] = self.buffered[:count]
        del self.buffered[:count]
        return count


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


class Password:
    """Sends one byte, and gets yes or no."""

    complete = False
    wants_write = True
    waiting = False
    reauthenticate_at = None

    def __init__(self, transport: TransportLayer) -> None:
        self.transport = transport

    def authenticate(self, now: int) -> None:
        if self.wants_write:
            self.wants_write = self.transport.write([b"p"]) == 0
        answer = bytearray(1)
        if self.transport.read_into(memoryview(answer)):
            if answer != b"y":
                raise AuthenticationError("the broker does not know us")
            self.complete = True

    def begin_reauthentication(self) -> None: ...

    def receive(self, payload: memoryview, now: int) -> None: ...

    def close(self) -> None: ...


def test_a_handshake_may_take_many_events_before_it_is_ready() -> None:
    with connected(builder=Builder(GreetingTransport)) as (driver, peer):
        assert not driver.selector.is_channel_ready(1)
        driver.poll(20)
        assert read_exactly(peer, 5) == b"hello"
        for part in (b"wel", b"co"):
            peer.sendall(part)
            driver.poll(20)
            assert not driver.selector.is_channel_ready(1)
        peer.sendall(b"me")
        driver.poll(60_000)  # ends, because the caller can send now
        assert driver.selector.is_channel_ready(1)
        peer.sendall(framed(b"first"))
        driver.poll_until(lambda: driver.receives)
        assert driver.payloads() == [b"first"]


def test_a_connection_lost_in_the_handshake_has_its_own_state() -> None:
    with connected(builder=Builder(GreetingTransport)) as (driver, peer):
        peer.close()
        driver.poll_until(lambda: driver.disconnected)
        assert driver.disconnected[1].kind is ChannelStateKind.AUTHENTICATE


def test_authentication_follows_the_handshake_and_may_fail() -> None:
    builder = Builder(GreetingTransport, Password)
    with LoopbackServer() as server, Driver(builder=builder) as driver:
        for node_id, answer in ((1, b"y"), (2, b"n")):
            driver.connect(node_id, server.address)
            peer = server.accept()
            driver.poll(20)
            peer.sendall(b"welcome")
            driver.poll(20)
            assert read_exactly(peer, 6) == b"hellop"
            peer.sendall(answer)
            driver.poll(20)
        assert driver.selector.is_channel_ready(1)
        assert list(driver.disconnected) == [2]
        state = driver.disconnected[2]
        assert state.kind is ChannelStateKind.AUTHENTICATION_FAILED
        assert isinstance(state.error, AuthenticationError)
    assert builder.closed


def test_buffered_bytes_are_read_without_a_new_event() -> None:
    with connected(builder=Builder(ReadAheadTransport)) as (driver, peer):
        peer.sendall(framed(b"1111") + framed(b"2222") + framed(b"3333"))
        driver.poll_until(lambda: driver.receives)
        driver.poll(60_000)
        driver.poll(60_000)
        assert driver.payloads() == [b"1111", b"2222", b"3333"]


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
