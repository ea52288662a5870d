"""The Selector over real sockets on the loopback (Java: SelectorTest)."""

from __future__ import annotations

import errno
import gc
import random
import select
import socket
import threading
import time
from pathlib import Path

import pytest

from spark_kafka_sink.base.clock import NEVER, SystemClock
from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.network.channel.channel_builder import ChannelBuilder
from spark_kafka_sink.network.channel.selectable import ChannelStateKind, NetworkSend
from spark_kafka_sink.network.channel.selector import Selector
from spark_kafka_sink.network.transport_layer import IOV_MAX
from tests.fakes.clock import FakeClock
from tests.network.loopback import (
    PATIENCE,
    Background,
    Driver,
    LoopbackServer,
    connected,
    framed,
    read_exactly,
    read_frame,
    reset,
    send_of,
)
from tests.real_kafka import AT_ONCE_S


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def reset_and_await(driver: Driver, node_id: int, peer: socket.socket) -> None:
    """Close ``peer`` with RST, which is in our socket then."""
    watch = select.poll()
    watch.register(driver.selector._channels[node_id].transport.socket, 0)  # errors always show
    reset(peer)
    assert watch.poll(PATIENCE * 1000)


def test_a_frame_goes_out_and_another_comes_back() -> None:
    with connected() as (driver, peer):
        assert driver.selector.is_channel_ready(1)
        driver.selector.send(send_of(1, b"ab", memoryview(b"cd")))
        driver.poll()
        assert len(driver.sends) == 1  # in the first poll, before any event
        assert read_frame(peer) == b"abcd"
        peer.sendall(framed(b"answer"))
        driver.poll_until(lambda: driver.receives)
        assert driver.payloads() == [b"answer"]
        assert driver.receives[0].source == 1


def test_the_socket_has_no_delay_keep_alive_and_its_buffers() -> None:
    with LoopbackServer() as server, Driver() as driver:
        driver.connect(1, server.address, buffers=40_000)
        sock = driver.selector._channels[1].transport.socket
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            assert sock.getsockopt(socket.SOL_SOCKET, option) in (40_000, 80_000)
        assert not sock.getblocking()


def test_only_one_send_at_a_time_for_each_channel() -> None:
    """SelectorTest#testCantSendWithInProgress."""
    with connected() as (driver, peer):
        driver.selector.send(send_of(1, b"one"))
        with pytest.raises(IllegalStateError, match="another one is in progress"):
            driver.selector.send(send_of(1, b"two"))
        driver.poll()
        driver.selector.send(send_of(1, b"three"))
        driver.poll()
        assert [read_frame(peer), read_frame(peer)] == [b"one", b"three"]


def test_a_send_of_ten_times_the_buffers_arrives_whole() -> None:
    """SelectorTest#testSendLargeRequest."""
    rng = random.Random(7)
    pieces = [rng.randbytes(rng.choice([1, 100, 70_001, 256_000])) for _ in range(40)]
    pieces[3:3] = [b"", b""]
    pieces.append(b"")
    received: list[bytes] = []
    with connected(buffers=64 * 1024) as (driver, peer):
        assert sum(map(len, pieces)) > 10 * 64 * 1024
        with Background(lambda: received.append(read_frame(peer))):
            driver.selector.send(send_of(1, *map(memoryview, pieces)))
            driver.poll_until(lambda: driver.sends)
    assert received == [b"".join(pieces)]


def test_a_send_of_more_buffers_than_one_system_call_takes() -> None:
    pieces = [bytes([i % 256]) * (i % 7) for i in range(3 * IOV_MAX + 5)]
    received: list[bytes] = []
    with connected() as (driver, peer), Background(lambda: received.append(read_frame(peer))):
        driver.selector.send(send_of(1, *pieces))
        driver.poll_until(lambda: driver.sends)
    assert received == [b"".join(pieces)]


def test_a_run_of_empty_buffers_does_not_end_a_send() -> None:
    with connected() as (driver, peer):
        driver.selector.send(send_of(1, b"a", *[b""] * (2 * IOV_MAX), b"z"))
        driver.poll_until(lambda: driver.sends)
        assert read_frame(peer) == b"az"


def test_empty_buffers_complete_and_a_wrong_size_is_an_error() -> None:
    """SelectorTest#testEmptyRequest."""
    with LoopbackServer() as server, Driver() as driver:
        driver.connect(1, server.address)
        driver.selector.send(NetworkSend(1, [b"", b""], 0))
        driver.poll()
        assert len(driver.sends) == 1
        for size in (3, 5):
            with pytest.raises(IllegalStateError, match=f"of {size} bytes has 4"):
                driver.selector.send(NetworkSend(1, [b"abcd"], size))


def test_two_channels_are_served_in_the_same_poll() -> None:
    """SelectorTest#testCantSendWithInProgress. Driver.poll checks that each has one answer."""
    with LoopbackServer() as server, Driver() as driver:
        driver.connect(1, server.address)
        first = server.accept()
        driver.connect(2, server.address)
        second = server.accept()
        first.sendall(framed(b"1111") * 20)
        second.sendall(framed(b"2222") * 20)
        driver.poll_until(lambda: len(driver.receives) == 40)
        assert {r.source for r in driver.receives[:6]} == {1, 2}


def test_a_poll_ends_in_time_though_bytes_keep_trickling_in() -> None:
    stop = threading.Event()
    with connected() as (driver, peer):

        def trickle() -> None:
            peer.sendall((100_000).to_bytes(4, "big"))
            while not stop.wait(0.01):
                peer.sendall(b"x")

        with Background(trickle):
            start = time.monotonic()
            driver.poll(150)
            lasted = time.monotonic() - start
            stop.set()
        assert 0.14 < lasted < AT_ONCE_S
        assert driver.receives == []


def test_idle_connections_expire_oldest_first() -> None:
    """SelectorTest#testCloseOldestConnection."""
    clock = FakeClock()
    with LoopbackServer() as server, Driver(connections_max_idle_ms=1000, clock=clock) as driver:
        driver.connect(1, server.address)
        clock.advance(100)
        driver.connect(2, server.address)
        clock.advance(400)
        driver.selector.send(send_of(1, b"used"))
        driver.poll(0)
        clock.advance(600)
        driver.poll(0)
        assert driver.disconnected == {}
        clock.advance(1)
        driver.poll(0)
        assert list(driver.disconnected) == [2]
        clock.advance(400)
        driver.poll(0)
        assert list(driver.disconnected) == [2, 1]
        assert {s.kind for s in driver.disconnected.values()} == {ChannelStateKind.EXPIRED}
        assert not driver.selector.is_channel_ready(1)


def test_answers_before_the_peer_closed_are_delivered_first() -> None:
    """SelectorTest#testServerDisconnect."""
    with LoopbackServer() as server, Driver() as driver:
        driver.connect(1, server.address)
        peer = server.accept()
        peer.sendall(framed(b"1111") + framed(b"2222") + framed(b"3333"))
        peer.close()
        driver.poll_until(lambda: driver.disconnected)
        assert driver.payloads() == [b"1111", b"2222", b"3333"]
        state = driver.disconnected[1]
        assert state.kind is ChannelStateKind.READY
        assert state.detail == "the broker closed the connection"
        assert state.remote == f"127.0.0.1:{server.address[1]}"


def test_answers_before_a_failed_write_are_delivered_first() -> None:
    """123: they may be acknowledgements of what would be sent again otherwise."""
    with connected(buffers=64 * 1024) as (driver, peer):
        driver.selector.send(send_of(1, bytes(4_000_000)))
        driver.poll(0)
        assert driver.sends == []
        peer.sendall(framed(b"1111") + framed(b"2222"))
        reset_and_await(driver, 1, peer)
        driver.poll_until(lambda: driver.disconnected)
        assert driver.payloads() == [b"1111", b"2222"]
        assert driver.disconnected[1].detail in ("Connection reset by peer", "Broken pipe")


def test_a_send_to_a_closing_connection_ends_it() -> None:
    """SelectorTest#testServerDisconnect."""
    with connected(buffers=64 * 1024) as (driver, peer):
        driver.selector.send(send_of(1, bytes(4_000_000)))
        driver.poll(0)
        peer.sendall(framed(b"1111") + framed(b"2222") + framed(b"3333"))
        reset_and_await(driver, 1, peer)
        driver.poll_until(lambda: not driver.selector.is_channel_ready(1))
        assert driver.payloads() == [b"1111"]
        driver.selector.send(send_of(1, b"too late"))
        driver.poll()
        assert list(driver.disconnected) == [1]
        assert driver.payloads() == [b"1111"]


def test_a_send_without_a_connection_is_an_error() -> None:
    """SelectorTest#testServerDisconnect."""
    with Driver() as driver, pytest.raises(IllegalStateError, match="no connection to node 1"):
        driver.selector.send(send_of(1, b"x"))


def test_a_refused_connection_says_who_refused_and_why() -> None:
    """SelectorTest#testConnectionRefused."""
    with LoopbackServer() as server:
        address = server.address
    with Driver() as driver:
        driver.selector.connect(1, "broker.example", address, -1, -1)
        driver.poll_until(lambda: driver.disconnected)
        state = driver.disconnected[1]
        assert state.kind is ChannelStateKind.NOT_CONNECTED
        assert state.detail == "Connection refused"
        assert state.remote == f"broker.example:{address[1]} (127.0.0.1)"
        assert driver.connected == []
        # And the node's id is free again.
        driver.selector.connect(1, "broker.example", address, -1, -1)


def test_an_instant_connection_is_reported_by_the_next_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some systems connect to themselves without a wait; no event reports it then."""

    class AtOnce(socket.socket):
        def connect_ex(self, address: object, /) -> int:
            self.settimeout(10)
            self.connect(address)  # type: ignore[arg-type]
            self.settimeout(0)
            return 0

    with LoopbackServer() as server, Driver() as driver:
        monkeypatch.setattr(socket, "socket", AtOnce)
        driver.connect(1, server.address)
        monkeypatch.undo()
        peer = server.accept()
        driver.poll()
        assert driver.connected == [1]
        driver.selector.send(send_of(1, b"at once"))
        driver.poll_until(lambda: driver.sends)
        assert read_frame(peer) == b"at once"


def test_a_second_connection_to_a_node_is_refused() -> None:
    """SelectorTest#testExistingConnectionId."""
    with LoopbackServer() as server, Driver() as driver:
        driver.connect(1, server.address)
        with pytest.raises(IllegalStateError, match="already a connection to node 1"):
            driver.selector.connect(1, "127.0.0.1", server.address, -1, -1)


def test_a_peer_that_closes_at_once_is_a_disconnection() -> None:
    with LoopbackServer() as server, Driver() as driver:
        driver.selector.connect(1, "127.0.0.1", server.address, -1, -1)
        reset(server.accept())
        driver.poll_until(lambda: driver.disconnected)
        assert driver.disconnected[1].detail is not None


def test_a_peer_that_never_reads_blocks_its_own_channel_only() -> None:
    with LoopbackServer() as server, Driver() as driver:
        driver.connect(1, server.address, buffers=16 * 1024)
        server.accept()
        driver.connect(2, server.address)
        peer = server.accept()
        driver.selector.send(send_of(1, bytes(50_000_000)))
        driver.selector.send(send_of(2, b"fine"))
        driver.poll()
        assert [s.destination for s in driver.sends] == [2]
        assert read_frame(peer) == b"fine"
        before = time.thread_time()
        driver.poll(200)
        assert time.thread_time() - before < 0.1  # asleep
        driver.selector.close_channel(1)
        driver.poll(0)
        assert driver.disconnected == {}


def test_frames_before_a_violation_are_handed_out() -> None:
    with connected() as (driver, peer):
        peer.sendall(framed(b"good") + b"\xff\xff\xff\xff")
        driver.poll_until(lambda: driver.disconnected)
        assert driver.payloads() == [b"good"]
        assert driver.disconnected[1].kind is ChannelStateKind.PROTOCOL_ERROR


# ---- wakeup ----


def test_a_wakeup_ends_a_poll_that_would_sleep_for_good() -> None:
    with Driver() as driver:
        waker = threading.Timer(0.05, driver.selector.wakeup)
        waker.start()
        driver.poll(NEVER)
        waker.join()


def test_a_wakeup_before_a_poll_ends_that_poll_and_no_other() -> None:
    with Driver() as driver:
        for _ in range(1000):
            driver.selector.wakeup()
        driver.poll(NEVER)
        start = time.monotonic()
        driver.poll(60)
        assert time.monotonic() - start >= 0.059


def test_no_wakeup_is_lost_between_threads() -> None:
    """Each waker publishes, wakes, and waits until the poller has seen it."""
    rounds, wakers = 300, 3
    published = [0] * wakers
    seen = [threading.Semaphore(0) for _ in range(wakers)]
    with Driver() as driver:

        def wake(index: int) -> None:
            for _ in range(rounds):
                published[index] += 1
                driver.selector.wakeup()
                assert seen[index].acquire(timeout=60), "a wakeup was lost"

        threads = [Background(lambda i=i: wake(i)) for i in range(wakers)]  # type: ignore[misc]
        for thread in threads:
            thread.start()
        noted = [0] * wakers
        while sum(noted) < rounds * wakers:
            driver.poll(5000)
            for index, count in enumerate(published):
                if count > noted[index]:
                    noted[index] = count
                    seen[index].release()
        for thread in threads:
            thread.join(60)
            assert thread.error is None


def test_a_wakeup_and_a_close_after_close_are_harmless() -> None:
    driver = Driver()
    driver.selector.close()
    driver.selector.wakeup()
    driver.selector.close()


def test_close_leaves_no_descriptor_open() -> None:
    with LoopbackServer() as server:
        gc.collect()
        before = open_descriptors()
        driver = Driver()
        driver.connect(1, server.address)
        driver.connect(2, server.address)
        driver.selector.close()
        assert open_descriptors() == before


def test_a_connection_that_can_not_start_leaves_nothing_behind() -> None:
    selector = Selector(ChannelBuilder(), SystemClock())
    try:
        before = open_descriptors()
        with pytest.raises(OSError):  # broadcast is for datagrams
            selector.connect(1, "x", ("255.255.255.255", 1), -1, -1)
        with pytest.raises(OverflowError):
            selector.connect(1, "x", ("127.0.0.1", 70_000), -1, -1)
        assert open_descriptors() == before
        assert not selector.is_channel_ready(1)
    finally:
        selector.close()


def test_an_address_of_a_link_is_connected_to_in_its_zone() -> None:
    """Without the zone the system can't know the link, and refuses the address as invalid."""
    selector, code = Selector(ChannelBuilder(), SystemClock()), None
    try:
        zone, _ = socket.if_nameindex()[0]
        selector.connect(1, "x", (f"fe80::1%{zone}", 1), -1, -1)
    except OSError as error:  # there is no such peer
        code = error.errno
    finally:
        selector.close()
    assert code != errno.EINVAL


def test_a_negative_timeout_is_an_error() -> None:
    with Driver() as driver, pytest.raises(IllegalStateError):
        driver.poll(-1)


def test_a_frame_is_read_exactly_once_from_each_side_under_load() -> None:
    """Pipelined requests and answers with small socket buffers, both directions at once."""
    rng = random.Random(3)
    requests = [rng.randbytes(rng.choice([10, 5_000, 200_000])) for _ in range(60)]
    with connected(buffers=64 * 1024) as (driver, peer):

        def echo() -> None:
            for _ in requests:
                (size,) = (int.from_bytes(read_exactly(peer, 4), "big"),)
                peer.sendall(framed(read_exactly(peer, size)))

        with Background(echo):
            for request in requests:
                sent = len(driver.sends)
                driver.selector.send(send_of(1, request))
                driver.poll_until(lambda sent=sent: len(driver.sends) > sent)  # type: ignore[misc]
            driver.poll_until(lambda: len(driver.receives) == len(requests))
        assert driver.payloads() == requests
