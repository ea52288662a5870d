"""Reading stops where memory ends, and goes on when it is back: nothing is lost, nobody starves."""

from __future__ import annotations

import random
import threading

import pytest

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.errors import AuthenticationError, IllegalStateError
from spark_kafka_sink.network.channel.selectable import ChannelStateKind, NetworkReceive
from spark_kafka_sink.network.memory_pool import SimpleMemoryPool
from tests.fakes.clock import FakeClock
from tests.network.loopback import Driver, LoopbackServer, framed, read_exactly, send_of
from tests.network.test_channel_seams import (
    Builder,
    GreetingTransport,
    Password,
    ReadAheadTransport,
)
from tests.network.test_network_client import NODE, OK, World


def test_any_memory_that_is_left_lets_one_frame_in() -> None:
    pool = SimpleMemoryPool(100)
    assert pool.try_allocate(60)
    assert pool.try_allocate(90)
    assert (pool.available, pool.out_of_memory) == (-50, True)
    assert not pool.try_allocate(1)
    pool.release(60)
    assert (pool.available, pool.out_of_memory) == (10, False)


def test_a_strict_pool_lets_in_what_fits_and_alone_what_never_would() -> None:
    pool = SimpleMemoryPool(100, strict=True)
    assert pool.try_allocate(60)
    assert not pool.try_allocate(41)
    assert pool.try_allocate(40)
    pool.release(60)
    pool.release(40)
    assert pool.try_allocate(1000)
    assert not pool.try_allocate(1)


def test_who_was_refused_is_woken_once_when_there_is_memory() -> None:
    pool, woken = SimpleMemoryPool(100), []
    pool.attach(lambda: woken.append(pool.available))
    assert pool.try_allocate(50)
    pool.release(50)
    assert woken == []
    assert pool.try_allocate(50)
    assert pool.try_allocate(150)
    assert not pool.try_allocate(1)
    pool.release(50)  # still 50 too many
    assert woken == []
    pool.release(150)
    assert woken == [100]


def test_a_pool_that_lets_nothing_in_or_gets_too_much_back_is_an_error() -> None:
    with pytest.raises(IllegalStateError):
        SimpleMemoryPool(0)
    with pytest.raises(IllegalStateError, match="more than was taken"):
        SimpleMemoryPool(10).release(1)


def give_back(receives: list[NetworkReceive]) -> None:
    for receive in receives:
        receive.close()


def test_a_frame_is_not_read_before_there_is_memory_for_it() -> None:
    pool = SimpleMemoryPool(1000)
    with LoopbackServer() as server, Driver(memory_pool=pool) as driver:
        for node_id in (1, 2):
            driver.connect(node_id, server.address)
        one, two = server.accept(), server.accept()
        one.sendall(framed(b"1" * 1000))
        driver.poll_until(lambda: driver.receives)
        assert pool.out_of_memory
        two.sendall(framed(b"2" * 1000))
        driver.poll(30)
        assert len(driver.receives) == 1
        driver.poll(30)
        assert len(driver.receives) == 1
        give_back(driver.receives)
        driver.poll_until(lambda: len(driver.receives) == 2)
        assert driver.payloads()[1] == b"2" * 1000
        give_back(driver.receives[1:])
    assert pool.available == 1000
    assert pool._wakeups == []  # a closed selector is woken no more


def test_a_selector_that_sleeps_is_woken_by_whoever_gives_memory_back() -> None:
    pool = SimpleMemoryPool(10)
    with LoopbackServer() as server, Driver(memory_pool=pool) as driver:
        driver.connect(1, server.address)
        assert pool.try_allocate(10)
        server.accept().sendall(framed(b"1111"))
        driver.poll(30)
        assert driver.receives == []
        giver = threading.Timer(0.05, pool.release, (10,))
        giver.start()
        driver.poll(NEVER)  # nothing but the wake-up ends it
        giver.join()
        driver.poll_until(lambda: driver.receives)
        assert driver.payloads() == [b"1111"]


def test_writes_go_on_without_memory_and_a_muted_channel_stays_muted_with_it() -> None:
    pool = SimpleMemoryPool(10)
    with LoopbackServer() as server, Driver(memory_pool=pool) as driver:
        driver.connect(1, server.address)
        peer = server.accept()
        assert pool.try_allocate(10)
        peer.sendall(framed(b"1111"))
        driver.poll(30)
        driver.selector.send(send_of(1, b"question"))
        driver.poll_until(lambda: driver.sends)
        driver.selector.mute(1)
        pool.release(10)
        driver.poll(30)
        assert driver.receives == []
        driver.selector.unmute(1)
        driver.poll_until(lambda: driver.receives)


def test_bytes_above_the_socket_wait_for_memory_without_a_loop() -> None:
    pool = SimpleMemoryPool(10)
    builder = Builder(ReadAheadTransport)
    with LoopbackServer() as server, Driver(builder=builder, memory_pool=pool) as driver:
        driver.connect(1, server.address)
        server.accept().sendall(framed(b"1111") + framed(b"2222"))
        driver.poll_until(lambda: driver.receives)
        assert pool.try_allocate(10)  # by others
        driver.poll(0)
        assert driver.payloads() == [b"1111"]
        clock = driver.selector._clock
        before = clock.now_ms()
        driver.poll(60)  # would be over at once if those bytes counted as something to do
        assert clock.now_ms() - before >= 50
        pool.release(10)
        driver.poll_until(lambda: len(driver.receives) == 2)
        assert driver.payloads() == [b"1111", b"2222"]


def test_an_answer_that_waits_for_memory_outlives_its_connection() -> None:
    pool = SimpleMemoryPool(10)
    with LoopbackServer() as server, Driver(memory_pool=pool) as driver:
        driver.connect(1, server.address)
        peer = server.accept()
        assert pool.try_allocate(10)
        peer.sendall(framed(b"acknowledged"))
        peer.close()
        driver.poll(30)
        driver.selector.send(send_of(1, b"x" * 100_000))
        driver.poll(30)
        driver.poll(30)
        assert driver.disconnected == {}
        pool.release(10)
        driver.poll_until(lambda: driver.disconnected)
        assert driver.payloads() == [b"acknowledged"]


def test_a_connection_that_ends_in_the_middle_of_a_frame_gives_its_memory_back() -> None:
    pool = SimpleMemoryPool(1000)
    with LoopbackServer() as server, Driver(memory_pool=pool) as driver:
        driver.connect(1, server.address)
        peer = server.accept()
        peer.sendall(framed(b"1" * 500)[:100])
        driver.poll(30)
        assert pool.available == 500
        peer.close()
        driver.poll_until(lambda: driver.disconnected)
        assert pool.available == 1000


class Reversed(random.Random):
    """Shuffles by turning around, and counts."""

    shuffles = 0

    def shuffle(self, x: list[object]) -> None:  # type: ignore[override]
        self.shuffles += 1
        x.reverse()


@pytest.mark.parametrize("low", [True, False])
def test_channels_are_served_in_any_order_while_memory_is_low(low: bool) -> None:
    pool, rng = SimpleMemoryPool(1000), Reversed()
    with LoopbackServer() as server, Driver(memory_pool=pool, rng=rng) as driver:
        peers = []
        for node_id in (1, 2):
            driver.connect(node_id, server.address)
            peers.append(server.accept())
        for peer in peers:
            peer.sendall(framed(b"1111"))
        driver.poll_until(lambda: len(driver.receives) == 2)
        give_back(driver.receives)
        rng.shuffles = 0
        taken = 901 if low else 900
        assert pool.try_allocate(taken)
        for peer in peers:
            peer.sendall(framed(b"2222"))
        driver.poll_until(lambda: len(driver.receives) == 4)
        assert bool(rng.shuffles) == low
        pool.release(taken)


def test_the_client_gives_an_answers_memory_back_when_it_is_decoded() -> None:
    world, pool = World(), SimpleMemoryPool(1000)
    world.make_ready()
    for violation in (False, True):
        frame = world.ask_and_write()
        world.net.answer(frame, OK, correlation_id=None if not violation else 4711)
        (receive,) = world.net._next_receives
        assert pool.try_allocate(len(receive.payload))
        world.net._next_receives = [NetworkReceive(NODE.id, receive.payload, pool)]
        world.poll()
        assert pool.available == 1000
    assert [response.error is None for response in world.responses] == [True, False]


def test_a_refusal_is_told_and_its_connection_closed_after_the_delay() -> None:
    """Java's brokers wait so (connection.failed.authentication.delay.ms); its clients take 0."""
    clock = FakeClock()
    builder = Builder(GreetingTransport, Password)
    options = {"failed_authentication_delay_ms": 100, "clock": clock}
    with LoopbackServer() as server, Driver(builder=builder, **options) as driver:
        driver.connect(1, server.address)
        peer = server.accept()
        driver.poll(0)
        assert read_exactly(peer, 5) == b"hello"
        peer.sendall(b"welcome")
        driver.poll(0)
        assert read_exactly(peer, 1) == b"p"
        peer.sendall(b"n")
        while not driver.selector._delayed_closes:
            driver.poll(0)
        assert driver.disconnected == {}
        assert not driver.selector.is_channel_ready(1)
        clock.advance(99)
        driver.poll(0)
        assert driver.disconnected == {}
        clock.advance(1)
        driver.poll(0)
        state = driver.disconnected[1]
        assert state.kind is ChannelStateKind.AUTHENTICATION_FAILED
        assert isinstance(state.error, AuthenticationError)
        assert peer.recv(64) == b""
