"""Names whose lookup takes long: nothing waits for the operating system's resolver."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, KafkaError
from spark_kafka_sink.network.bounded_lookup import resolve_within
from spark_kafka_sink.network.client.lookup_threads import LookupThreads
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.request import ApiKey
from tests.network.liar import TOPIC, Liar, framed
from tests.network.network_client_harness import NODE, NetworkClientHarness
from tests.protocol import metadata_bytes as m
from tests.real_kafka import AT_ONCE_S
from tests.waiting import wait_for, with_more_time

SLOW = Node(9, "slow.example", 9092)


def alive() -> int:
    return sum(thread.name == "kafka-name-lookup" for thread in threading.enumerate())


class SilentNames:
    """A name server that answers when ``answer`` is called."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._gate = threading.Event()
        self.found: dict[str, list[str] | OSError] = {}

    def answer(self, **found: list[str] | OSError) -> None:
        self.found |= found
        self._gate.set()

    def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        assert self._gate.wait(60)
        answer = self.found.get(host, OSError(-2, "Name or service not known"))
        if isinstance(answer, OSError):
            raise answer
        return answer


@pytest.fixture
def names() -> Iterator[SilentNames]:
    made = SilentNames()
    yield made
    made.answer()
    wait_for(lambda: alive() == 0, what="the end of the lookups")


def test_a_lookup_is_not_waited_for_and_its_answer_comes_later(names: SilentNames) -> None:
    woken = threading.Event()
    resolve = LookupThreads(woken.set, names)
    for _ in range(3):
        with pytest.raises(BlockingIOError):
            resolve("a")
    wait_for(lambda: names.asked, what="the lookup")
    assert (names.asked, alive(), woken.is_set()) == (["a"], 1, False)
    names.answer(a=["10.0.0.1"])
    assert woken.wait(60)
    assert resolve("a") == ["10.0.0.1"]
    with pytest.raises(BlockingIOError):
        resolve("a")  # the answer is kept by who asked, as before


def test_an_unknown_name_is_the_resolvers_error(names: SilentNames) -> None:
    woken = threading.Event()
    resolve = LookupThreads(woken.set, names)
    names.answer()
    with pytest.raises(BlockingIOError):
        resolve("a")
    assert woken.wait(60)
    with pytest.raises(OSError, match="Name or service not known") as raised:
        resolve("a")
    assert not isinstance(raised.value, BlockingIOError)


def test_lookups_are_four_threads_at_most(names: SilentNames) -> None:
    hosts = [f"h{i}" for i in range(20)]
    resolve = LookupThreads(lambda: None, names)

    def found(host: str) -> bool:
        try:
            return resolve(host) == ["10.0.0.1"]
        except BlockingIOError:
            return False

    for host in hosts * 3:
        assert not found(host)
    assert alive() == 4
    names.answer(**{host: ["10.0.0.1"] for host in hosts})
    left = set(hosts)

    def all_found() -> bool:
        left.difference_update([host for host in left if found(host)])
        return not left

    wait_for(all_found, what="each answer")
    assert sorted(names.asked) == sorted(hosts)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_an_address_needs_no_thread(address: str, names: SilentNames) -> None:
    """So that a simulated network, which has addresses only, is never another thread's."""
    assert LookupThreads(lambda: None, names)(address) == [address]
    assert names.asked == []


def test_a_deadline_ends_the_wait_for_a_lookup(names: SilentNames) -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.1 s"):
        resolve_within(0.1, "a", names)
    with pytest.raises(TimeoutError, match=r"within 0\.0 s"):
        resolve_within(-1, "b", names)
    wait_for(lambda: names.asked == ["a"], what="the lookup")
    names.answer(c=["10.0.0.1"])
    for seconds in (60, 2**63 / 1000):  # what max.block.ms may be
        assert resolve_within(seconds, "c", names) == ["10.0.0.1"]


# --- a network client -----------------------------------------------------------------------------


class Slow:
    """``slow.example`` is being looked up until ``found`` is set."""

    found: list[str] | None = None

    def __call__(self, host: str) -> list[str]:
        if host != SLOW.host:
            return [host]
        if self.found is None:
            raise BlockingIOError
        return self.found


def test_a_client_serves_others_while_a_host_is_looked_up() -> None:
    slow = Slow()
    world = NetworkClientHarness((NODE, SLOW), resolve=slow)
    assert not world.client.ready(SLOW, world.now)
    world.make_ready(NODE)
    world.ask(NODE)
    world.poll()
    assert [node for node, _, _ in world.net.attempts] == [NODE.id]
    slow.found = ["10.0.0.9"]
    world.make_ready(SLOW)
    assert world.net.attempts[-1] == (SLOW.id, "10.0.0.9", 9092)


def test_a_lookup_has_the_time_of_a_connections_setup() -> None:
    slow = Slow()
    world = NetworkClientHarness((SLOW,), resolve=slow, socket_connection_setup_timeout_ms=500)
    world.client.ready(SLOW, world.now)
    begun = world.now
    while not world.client.connection_failed(SLOW):
        world.poll(100)
    assert world.now - begun < 800, "with jitter"
    (reason,) = world.client.connection_failures().values()
    assert "no answer to the lookup of its name within" in reason
    assert "socket.connection.setup.timeout.ms" in reason
    slow.found = ["10.0.0.9"]
    world.clock.advance(1_000)
    world.make_ready(SLOW)


def test_a_host_that_turns_out_unknown_fails_its_connection() -> None:
    def unknown(host: str) -> list[str]:
        if not ended:
            raise BlockingIOError
        raise OSError(-2, "Name or service not known")

    ended: list[bool] = []
    world = NetworkClientHarness((SLOW,), resolve=unknown)
    world.client.ready(SLOW, world.now)
    world.poll(10)
    assert not world.client.connection_failed(SLOW)
    ended.append(True)
    world.poll(10)
    assert world.client.connection_failed(SLOW)
    assert "Name or service not known" in str(world.client.connection_failures())


# --- a whole producer -----------------------------------------------------------------------------


@contextmanager
def silent_resolver() -> Iterator[list[str]]:
    """This machine's resolver, that answers names of ``.example`` only when it is over."""
    real, gate, asked = socket.getaddrinfo, threading.Event(), list[str]()

    def getaddrinfo(host: object, *arguments: object, **options: object) -> object:
        flags = options.get("flags", 0)
        if isinstance(host, str) and host.endswith(".example") and not flags:
            asked.append(host)
            gate.wait(60)
            raise socket.gaierror(-3, "Temporary failure in name resolution")
        return real(host, *arguments, **options)  # type: ignore[call-overload]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        yield asked
        gate.set()
    wait_for(lambda: alive() == 0, what="the end of the lookups")


def took(work: Callable[[], object]) -> float:
    start = time.monotonic()
    with pytest.raises(KafkaError):
        work()
    return time.monotonic() - start


def test_a_constructor_waits_for_a_lookup_until_max_block_ms() -> None:
    def is_bounded(limit_ms: int) -> None:
        options = {"bootstrap.servers": "a.example:1,b.example:1", "max.block.ms": limit_ms}
        with silent_resolver() as asked:
            start = time.monotonic()
            with pytest.raises(ConfigError, match="No resolvable bootstrap urls") as raised:
                KafkaProducer(options)
            assert time.monotonic() - start < limit_ms / 1000 + AT_ONCE_S
            assert raised.value.kind is Kind.UNRESOLVED_ADDRESS
            # The lookup has the time that is left when it begins.
            told = re.search(
                r"a\.example: no answer to the lookup of its name within (\d\.\d) s",
                str(raised.value),
            )
            assert told is not None, raised.value
            assert 0 < float(told[1]) <= limit_ms / 1000
            # (A millisecond may be left for the next one.)
            wait_for(lambda: asked[:1] == ["a.example"], what="the lookup")

    with_more_time(is_bounded, 300)


def test_a_slow_lookup_does_not_extend_delivery_timeout_ms() -> None:
    """The leader's advertised name is one that no name server answers for."""
    topic = m.topic(8, TOPIC, [m.partition(8, 0, (1,), leader=1)])
    metadata = m.answer(8, [m.broker(8, 1, b"slow.example", 9092)], [topic])

    def is_bounded(limit_ms: int) -> None:
        limits = {"delivery.timeout.ms": limit_ms, "request.timeout.ms": limit_ms - 100}
        with (
            silent_resolver() as asked,
            Liar(ApiKey.METADATA, lambda _, number: framed(number, metadata), drips=False) as liar,
        ):
            host, port = liar.address
            where = {"bootstrap.servers": f"{host}:{port}", "linger.ms": 0}
            producer = KafkaProducer({**where, **limits})
            try:
                future = producer.send(ProducerRecord(TOPIC.decode(), value=b"v"))
                assert took(lambda: future.result(60)) < limit_ms / 1000 + AT_ONCE_S
                assert asked == ["slow.example"], "it ended before the lookup"
            finally:
                producer.close(0)

    with_more_time(is_bounded, 1_000)
