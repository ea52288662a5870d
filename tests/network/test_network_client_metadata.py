"""NetworkClient asks for metadata, and starts again from bootstrap.servers."""

from __future__ import annotations

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import (
    ErrorCode,
    UnsupportedVersionError,
)
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.request import ApiKey
from tests.network.network_client_harness import NODE, NODES, NetworkClientHarness
from tests.network.simulated import (
    Ask,
    metadata_body,
)


def test_all_known_nodes_gone_brings_a_rebootstrap() -> None:
    """NetworkClientTest#testRebootstrap."""
    world = NetworkClientHarness(NODES[:2], due=True)
    world.net.refused = {"10.0.0.1": "Connection refused", "10.0.0.2": "Connection refused"}
    for _ in range(6):
        world.metadata.wait_ms = 0
        world.poll(10)
    assert world.metadata.rebootstraps == 1  # and not again from bootstrap servers to the same
    assert {a[0] for a in world.net.attempts} >= {1, 2, -1}


def test_unavailable_metadata_leads_to_a_rebootstrap() -> None:
    """NetworkClientTest#testRebootstrap."""
    world = NetworkClientHarness(
        NODES[:2], due=True, metadata_recovery_rebootstrap_trigger_ms=2500, request_timeout_ms=1000
    )
    world.metadata.backoff_ms = 0
    start = world.now
    world.make_ready(NODES[1])
    world.ask_and_write(NODES[1])
    while not world.metadata.rebootstraps:
        world.poll(NEVER)
    assert world.now - start == 2501
    assert set(world.net.closed) == {1, 2}  # also the healthy ones, with what is in flight
    assert world.client.in_flight_request_count() == 0
    assert len(world.responses) == 1


def test_a_broker_can_ask_for_a_rebootstrap() -> None:
    """NetworkClientTest#testRebootstrap: error 129."""
    world = NetworkClientHarness(due=True)
    world.net.ranges = {**world.net.ranges, ApiKey.METADATA: (0, 13)}
    while not world.net.count_sent(ApiKey.METADATA):
        world.poll(10)
    world.poll()
    required = metadata_body(13, (), error=ErrorCode.REBOOTSTRAP_REQUIRED.value)
    world.net.answer(world.net.sent[-1], required)
    world.poll()
    assert world.metadata.rebootstraps == 1
    assert world.net.closed == [1]


def test_time_without_a_metadata_request_does_not_count() -> None:
    world = NetworkClientHarness(due=True, metadata_recovery_rebootstrap_trigger_ms=1000)
    world.net.connects = False
    world.poll(10)
    world.metadata.wait_ms = NEVER
    world.poll(10)
    world.clock.advance(5000)
    world.metadata.wait_ms = 0
    world.poll(10)
    assert world.metadata.rebootstraps == 0


def test_metadata_waits_for_a_pending_connection() -> None:
    world = NetworkClientHarness(NODES, due=True, socket_connection_setup_timeout_ms=500)
    world.net.connects = False
    for _ in range(5):
        world.poll(20)
    assert len(world.net.attempts) == 1
    while len(world.net.attempts) < 2:
        world.metadata.wait_ms = 0
        world.poll(NEVER)
    assert world.net.attempts[0][0] != world.net.attempts[1][0]


def test_recovery_strategy_none_never_rebootstraps() -> None:
    world = NetworkClientHarness(due=True, metadata_recovery_rebootstrap_trigger_ms=10)
    world.metadata.rebootstrap_enabled = False
    world.net.refused = {"10.0.0.1": "Connection refused"}
    for _ in range(20):
        world.metadata.wait_ms = 0
        world.poll(50)
    assert world.metadata.rebootstraps == 0


def test_no_common_version_fails_without_a_byte_on_the_wire() -> None:
    """NetworkClientTest#testUnsupportedVersionDuringInternalMetadataRequest."""
    world = NetworkClientHarness()
    world.net.ranges = {ApiKey.PRODUCE: (0, 2)}
    world.make_ready()
    sent = len(world.net.sent)
    request = world.client.new_client_request(1, Ask(), world.now, callback=world.responses.append)
    world.client.send(request, world.now)
    assert len(world.net.sent) == sent
    assert world.responses == []  # it comes from the next poll, like every answer
    (response,) = world.poll(NEVER)
    assert world.responses == [response]
    assert isinstance(response.error, UnsupportedVersionError)
    assert not response.disconnected


# ---- metadata ----


def test_metadata_is_requested_from_one_node_and_stored() -> None:
    world = NetworkClientHarness(NODES, due=True)
    for _ in range(8):
        world.poll(10)
    assert len(world.net.attempts) == 1
    assert world.net.count_sent(ApiKey.METADATA) == 1
    frame = world.net.last_sent(ApiKey.METADATA)
    assert frame.version == 4
    world.net.answer(frame, metadata_body(4, NODES[1:]))
    assert world.poll() == []
    ((token, response),) = world.metadata.updates
    assert token == 7
    assert tuple(response.brokers.values()) == NODES[1:]


def test_a_connection_to_a_moved_node_is_closed() -> None:
    """Two brokers change places. Each goes on to answer, for the other: NOT_LEADER for ever, if the
    connections stay (as Java's do; librdkafka and franz-go connect again).
    """
    world = NetworkClientHarness(NODES)
    for node in NODES:
        world.make_ready(node)
    frame = world.ask_and_write(NODES[1])
    world.metadata.wait_ms = 0
    while not world.net.count_sent(ApiKey.METADATA):
        world.poll()
    world.poll()
    moved = (NODES[0], Node(2, "10.0.0.3", 9092), Node(3, "10.0.0.2", 9092))
    world.net.answer(world.net.last_sent(ApiKey.METADATA), metadata_body(4, moved))
    world.poll()
    assert sorted(world.net.closed) == [2, 3]
    (lost,) = world.responses
    assert lost.disconnected
    assert lost.request.correlation_id == frame.correlation_id
    assert world.metadata.failures == []
    assert world.client.can_send_request(NODES[0].id, world.now)
    world.clock.advance(1000)
    for node in moved:
        world.make_ready(node)
    assert world.net.attempts[3:] == [(2, "10.0.0.3", 9092), (3, "10.0.0.2", 9092)]


def test_a_connection_to_an_unmoved_node_stays_open() -> None:
    world = NetworkClientHarness.ready(NODES[:2])
    world.metadata.wait_ms = 0
    while not world.net.count_sent(ApiKey.METADATA):
        world.poll()
    world.poll()
    told = (NODE, Node(2, "elsewhere", 9092), NODES[2])  # 2 was never connected to
    world.net.answer(world.net.last_sent(ApiKey.METADATA), metadata_body(4, told))
    world.poll()
    assert world.net.closed == []


def test_an_answer_without_brokers_is_a_failed_update() -> None:
    world = NetworkClientHarness(due=True)
    while not world.net.count_sent(ApiKey.METADATA):
        world.poll(10)
    world.poll()
    world.net.answer(world.net.sent[-1], metadata_body(4, ()))
    world.poll()
    assert world.metadata.failures == [None]
    assert world.metadata.updates == []


def test_a_lost_metadata_request_is_one_failure_and_is_resent() -> None:
    world = NetworkClientHarness(due=True)
    while not world.net.count_sent(ApiKey.METADATA):
        world.poll(10)
    world.poll()
    world.net.drop(1)
    world.poll()
    assert world.metadata.failures == [None]
    world.metadata.wait_ms = 0
    while world.net.count_sent(ApiKey.METADATA) < 2:
        world.poll(10)


def test_a_refused_connection_for_metadata_is_a_failed_update() -> None:
    world = NetworkClientHarness(due=True)
    world.metadata.rebootstrap_enabled = False
    world.net.refused = {"10.0.0.1": "Connection refused"}
    world.poll(10)
    assert world.metadata.failures == [None]
    assert world.metadata.requested == 1
    assert world.client.connection_failures() == {"10.0.0.1:9092": "Connection refused"}
