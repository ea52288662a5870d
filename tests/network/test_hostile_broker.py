"""A hostile or broken broker on a connection (facts of reliability, section 8): each violation ends
that connection with its reason, for a price that the bytes bound, and the next one is a new one.

What can be wrong inside an answer is in ``tests/protocol/test_hostile_answers.py``; streams that
are no broker's in ``test_lies_to_a_producer.py``; leaders that never settle in
``tests/producer/test_hostile_leaders.py``; SCRAM in ``tests/sasl``.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from spark_kafka_sink.base.errors import RemoteProtocolError
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.network.client.metadata import Metadata
from spark_kafka_sink.network.client.network_client import (
    MAX_THROTTLE_MS,
    NetworkClient,
)
from spark_kafka_sink.network.frame_reader import FrameReader
from spark_kafka_sink.protocol.metadata import MOST_BROKERS
from spark_kafka_sink.protocol.request import ApiKey
from tests.fakes.clock import FakeClock
from tests.network.loopback import Pieces
from tests.network.network_client_harness import NODE, OK, NetworkClientHarness, client_config
from tests.network.simulated import Ask, SimulatedSelectable
from tests.protocol import metadata_bytes
from tests.protocol.hostile import peak, work


def read(data: bytes, step: int) -> bytes | None:
    whole = memoryview(data)  # its pieces are no copies
    steps = (whole[at : at + step] for at in range(0, len(data), step))
    stream, reader, frame = Pieces(steps, pauses=True), FrameReader(), None
    while frame is None and not stream.over:
        frame = reader.read_from(stream)
    return None if frame is None else bytes(frame)


@pytest.mark.parametrize("size", [4, 1000, 200_000])
@pytest.mark.parametrize("announced", [0, 1, 300_000])
def test_a_slow_loris_costs_what_it_sent(size: int, announced: int) -> None:
    """One byte at a time, of a frame that is longer than what ever comes."""
    data = (size + announced).to_bytes(4, "big") + bytes(size)
    whole = read(data, 1 << 20)
    assert whole == (bytes(size) if announced == 0 else None)
    assert peak(lambda: read(data, 977)) <= 4 * len(data) + 64 * 1024
    assert work(lambda: read(data[:5000], 1)) <= 40 * 5000


def answered(world: NetworkClientHarness, body: bytes = OK, *, off_by: int = 0) -> None:
    frame = world.net.last_sent(ApiKey.PRODUCE)
    world.net.answer(frame, body, correlation_id=frame.correlation_id + off_by)


#: What the broker does with two requests on the way. Correlation ids: ApiVersions 0, then 1 and 2.
VIOLATIONS: dict[str, Callable[[NetworkClientHarness], None]] = {
    "the second before the first": answered,
    "an id that was never sent": lambda world: answered(world, off_by=1000),
    "a negative id": lambda world: answered(world, off_by=-1000),
    "the answer to ApiVersions once more": lambda world: world.net.deliver(1, bytes(200_000)),
    "an empty frame": lambda world: world.net.deliver(1, b""),
    "an id cut short": lambda world: world.net.deliver(1, b"\0\0\0"),
    "a header without its tags": lambda world: world.net.deliver(1, struct.pack(">i", 1)),
    "a bomb of tags in the header": lambda world: world.net.deliver(
        1, struct.pack(">i", 1) + b"\xff\xff\xff\xff\x0f" + bytes(100_000)
    ),
    "endless varint in the header": lambda world: world.net.deliver(
        1, struct.pack(">i", 1) + b"\xff" * 100_000
    ),
}


def violated(violation: str) -> NetworkClientHarness:
    world = NetworkClientHarness.ready()
    for _ in range(2):
        world.ask_and_write()
    VIOLATIONS[violation](world)
    return world


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_a_violation_closes_the_connection_and_a_new_one_follows(violation: str) -> None:
    violated(violation).poll()  # what the first one imports and caches is not its bytes' doing
    world = violated(violation)
    received = sum(len(receive.payload) for receive in world.net._next_receives)
    price = 0

    def poll() -> None:
        nonlocal price
        price = work(world.poll)

    assert peak(poll) <= 4 * received + 64 * 1024
    assert price < 1000 + received
    assert len(world.responses) == 2
    for response in world.responses:
        assert isinstance(response.error, RemoteProtocolError)
        assert "node 1 at 10.0.0.1:9092" in response.error.message
        assert not response.disconnected
    assert world.net.closed == [1]
    assert not world.client.can_send_request(NODE.id, world.now)
    world.clock.advance(world.client.poll_delay_ms(NODE, world.now))
    world.make_ready()


def test_a_repeated_answer_closes_the_connection() -> None:
    world = NetworkClientHarness.ready()
    world.ask_and_write()
    answered(world)
    answered(world)
    world.poll()
    assert world.responses[0].error is None
    world.ask_and_write()
    world.poll()
    assert isinstance(world.responses[1].error, RemoteProtocolError)
    assert world.net.closed == [1]


def test_a_negative_throttle_time_is_none() -> None:
    world = NetworkClientHarness.ready()
    world.ask_and_write()
    answered(world, struct.pack(">i", -(2**31)))
    world.poll()
    assert world.client.can_send_request(NODE.id, world.now)


def test_a_broker_that_always_throttles_causes_no_busy_loop() -> None:
    world = NetworkClientHarness.ready()
    for _ in range(20):
        frame = world.ask_and_write(ask=Ask())
        world.net.answer(frame, struct.pack(">i", 2**31 - 1))
        world.poll()
        before = world.now
        world.clock.advance(world.client.poll_delay_ms(NODE, world.now))
        assert world.now - before == MAX_THROTTLE_MS
    assert all(response.error is None for response in world.responses)


def partitions_of(version: int) -> bytes:
    numbers = random.Random(1).sample(range(20_000), 20_000)
    found = [metadata_bytes.partition(version, n, leader=1, error=5) for n in numbers]
    topic = metadata_bytes.topic(version, b"t", found)
    return metadata_bytes.answer(version, [metadata_bytes.broker(version, 1)], [topic])


def brokers_of(version: int) -> bytes:
    ids = random.Random(1).sample(range(MOST_BROKERS), MOST_BROKERS)
    return metadata_bytes.answer(version, [metadata_bytes.broker(version, n) for n in ids])


@pytest.mark.parametrize("version", [4, 13])
@pytest.mark.parametrize("answer", [partitions_of, brokers_of])
def test_a_huge_answer_costs_no_more_memory_than_its_frame(
    answer: Callable[[int], bytes], version: int
) -> None:
    """From the frame to the cluster that the writer looks at, and its successor."""
    clock = FakeClock()
    net = SimulatedSelectable(clock)
    net.ranges = {**net.ranges, ApiKey.METADATA: (0, version)}
    metadata = Metadata(parse_producer_config({"bootstrap.servers": "10.0.0.1:9092"}), clock)
    client = NetworkClient(
        client_config(),
        selector=net,
        metadata=metadata,
        clock=clock,
        resolve=lambda host: [host],
        random=lambda: 0.5,
    )
    metadata.add_topics(["t"], clock.now_ms())
    body = answer(version)
    for asked in (1, 2):
        metadata.request_update()
        while net.count_sent(ApiKey.METADATA) < asked:
            clock.advance(100)
            client.poll(0, clock.now_ms())
        frame = net.last_sent(ApiKey.METADATA)
        net.answer(frame, body)

        def polls() -> None:
            client.poll(0, clock.now_ms())
            client.poll(0, clock.now_ms())

        assert peak(polls) <= 4 * len(body) + 64 * 1024
        cluster = metadata.cluster
        assert len(cluster.nodes) == (MOST_BROKERS if answer is brokers_of else 1)
        assert len(cluster.topics.get("t", ())) == (0 if answer is brokers_of else 20_000)
