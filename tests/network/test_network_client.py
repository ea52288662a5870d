"""NetworkClient over a simulated network (Java: NetworkClientTest)."""

from __future__ import annotations

import logging
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import (
    AuthenticationError,
    DisconnectError,
    ErrorCode,
    IllegalStateError,
    RemoteProtocolError,
    UnsupportedVersionError,
    coded,
)
from spark_kafka_sink.network.channel.selectable import ChannelStateKind
from spark_kafka_sink.network.client.client_request import ClientResponse
from spark_kafka_sink.network.client.host_resolver import HostResolver
from spark_kafka_sink.network.client.network_client import (
    MAX_THROTTLE_MS,
    MIN_RESERVED_CORRELATION_ID,
    NetworkClient,
    NetworkClientConfig,
)
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from tests.fakes.clock import FakeClock
from tests.network.simulated import (
    Answer,
    Ask,
    FixedMetadata,
    Frame,
    SimulatedSelectable,
    api_versions_body,
    metadata_body_v4,
    metadata_body_v13,
)

NODES = (Node(1, "10.0.0.1", 9092), Node(2, "10.0.0.2", 9092), Node(3, "10.0.0.3", 9092))
NODE = NODES[0]
OK = struct.pack(">i", 0) + b"ok"


class World:
    """A client, its simulated network and its metadata, on a clock that jumps."""

    def __init__(
        self,
        nodes: tuple[Node, ...] = (NODE,),
        *,
        due: bool = False,
        resolve: HostResolver = lambda host: [host],
        **config: int,
    ):
        self.clock = FakeClock()
        self.net = SimulatedSelectable(self.clock)
        self.metadata = FixedMetadata(nodes, due=due)
        self.client = NetworkClient(
            NetworkClientConfig("me", **config),
            selector=self.net,
            metadata=self.metadata,
            clock=self.clock,
            resolve=resolve,
            random=lambda: 0.5,
        )
        self.responses: list[ClientResponse] = []

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def poll(self, timeout_ms: int = 0) -> list[ClientResponse]:
        return list(self.client.poll(timeout_ms, self.now))

    def make_ready(self, node: Node = NODE) -> None:
        for _ in range(8):
            if self.client.ready(node, self.now):
                return
            self.poll()
        raise AssertionError("the node does not get ready")

    def ask(self, node: Node = NODE, *, ask: Ask | None = None, **how: object) -> Frame:
        request = self.client.new_client_request(
            node.id, ask or Ask(), self.now, callback=self.responses.append, **how
        )
        self.client.send(request, self.now)
        return self.net.sent[-1]

    def ask_and_write(self, node: Node = NODE, **how: object) -> Frame:
        frame = self.ask(node, **how)
        self.poll()
        return frame


def test_a_request_is_answered_through_its_callback() -> None:
    world = World()
    assert not world.client.ready(NODE, world.now)
    world.make_ready()
    assert world.net.attempts == [(1, "10.0.0.1", 9092)]
    frame = world.ask_and_write()
    assert (frame.api_key, frame.version) == (ApiKey.PRODUCE, 12)
    world.net.answer(frame, OK)
    world.clock.advance(40)
    (response,) = world.poll()
    assert world.responses == [response]
    assert response.body == Answer(b"ok")
    assert (response.version, response.latency_ms, response.disconnected) == (12, 40, False)
    assert world.client.in_flight_request_count() == 0


def test_no_node_is_ready_while_a_metadata_update_is_due() -> None:
    """NetworkClientTest#testSendToUnreadyNode."""
    world = World()
    world.make_ready()
    world.metadata.wait_ms = 0
    assert not world.client.is_ready(NODE, world.now)
    world.poll()  # the metadata request is in flight now
    assert world.net.last_sent(ApiKey.METADATA).node_id == 1
    world.poll()
    assert world.client.is_ready(NODE, world.now)


@pytest.mark.parametrize("reason", ["channel", "throttled", "unsent", "limit", "unknown"])
def test_a_node_that_is_not_ready_takes_no_request(reason: str) -> None:
    """NetworkClientTest#testSendToUnreadyNode."""
    world = World(max_in_flight_requests_per_connection=2)
    node = NODE
    if reason == "unknown":
        node = NODES[1]
    else:
        world.make_ready()
    if reason == "channel":
        world.net.channels_ready = False
    elif reason == "throttled":
        world.net.answer(world.ask_and_write(), struct.pack(">i", 100))
        world.poll()
    elif reason == "unsent":
        world.net.sends_complete = False
        world.ask_and_write()
    elif reason == "limit":
        world.ask_and_write()
        world.ask_and_write()
    assert not world.client.is_ready(node, world.now)
    with pytest.raises(IllegalStateError, match=f"node {node.id} is not ready"):
        world.ask(node)


def test_a_second_request_may_go_when_the_first_has_left_but_has_no_answer() -> None:
    world = World()
    world.make_ready()
    world.net.sends_complete = False
    world.ask_and_write()
    assert not world.client.is_ready(NODE, world.now)
    world.net.sends_complete = True
    world.poll()
    assert world.client.is_ready(NODE, world.now)


def test_api_versions_is_asked_in_the_highest_version_first() -> None:
    """NetworkClientTest#testApiVersionsRequest."""
    world = World()
    world.make_ready()
    assert [(f.api_key, f.version) for f in world.net.sent] == [(ApiKey.API_VERSIONS, 4)]
    versions = world.client.api_versions(1)
    assert versions is not None
    assert versions.api_versions[ApiKey.PRODUCE] == VersionRange(0, 12)


@pytest.mark.parametrize(
    ("offered", "second"),
    [({ApiKey.API_VERSIONS: (0, 3)}, 3), ({}, 0), ({ApiKey.API_VERSIONS: (0, 4)}, 0)],
    ids=["a lower version", "nothing", "the version it refused"],
)
def test_a_refused_api_versions_request_is_sent_again_lower(
    offered: dict[int, tuple[int, int]], second: int
) -> None:
    """NetworkClientTest#testApiVersionsRequest."""
    world = World()
    world.net.answers_api_versions = False
    world.client.ready(NODE, world.now)
    world.poll()
    world.poll()
    world.net.answer(world.net.sent[-1], api_versions_body(0, offered, error=35))
    world.poll()
    world.poll()
    assert [f.version for f in world.net.sent] == [4, second]
    world.net.answer(world.net.sent[-1], api_versions_body(second, {ApiKey.PRODUCE: (0, 8)}))
    world.poll()
    assert world.client.is_ready(NODE, world.now)
    assert world.ask_and_write().version == 8


def test_another_error_to_api_versions_disconnects() -> None:
    """NetworkClientTest#testApiVersionsRequest."""
    world = World()
    world.net.answers_api_versions = False
    world.client.ready(NODE, world.now)
    world.poll()
    world.poll()
    world.net.answer(world.net.sent[-1], api_versions_body(4, {}, error=42))
    world.poll()
    assert world.net.closed == [1]
    assert world.client.connection_failed(NODE)
    assert world.client.connection_failures() == {
        "10.0.0.1:9092": "refused ApiVersions: INVALID_REQUEST"
    }


def test_a_channel_that_never_gets_ready_times_out() -> None:
    """NetworkClientTest#testConnectionDoesNotRemainStuckInCheckingApiVersionsStateIfChannelNeverBecomesReady.

    108: the state stays CONNECTING until ApiVersions can be sent, so the setup limit holds.
    """
    world = World(socket_connection_setup_timeout_ms=500)
    world.net.channels_ready = False
    world.client.ready(NODE, world.now)
    world.poll(NEVER)
    assert world.net.sent == []
    for _ in range(3):
        if world.client.connection_failed(NODE):
            break
        world.poll(NEVER)
    assert world.client.connection_failed(NODE)
    (reason,) = world.client.connection_failures().values()
    assert "no connection within 500 ms (socket.connection.setup.timeout.ms)" in reason


def test_a_broker_that_never_answers_api_versions_is_dropped_after_the_request_timeout() -> None:
    """NetworkClientTest#testConnectionDoesNotRemainStuckInCheckingApiVersionsStateIfChannelNeverBecomesReady."""
    world = World(request_timeout_ms=700)
    world.net.answers_api_versions = False
    world.client.ready(NODE, world.now)
    start = world.now
    while not world.client.connection_failed(NODE):
        world.poll(NEVER)
    assert world.now - start == 701
    (reason,) = world.client.connection_failures().values()
    assert reason == (
        "no answer to API_VERSIONS within 700 ms (request.timeout.ms); "
        "is it a TLS or SASL listener, or not Kafka?"
    )


def test_a_request_timeout_fails_all_requests_of_the_connection_in_send_order() -> None:
    """NetworkClientTest#testRequestTimeout."""
    world = World(request_timeout_ms=1000)
    world.make_ready()
    frames = [world.ask_and_write() for _ in range(3)]
    world.clock.advance(1000)
    assert world.poll() == []
    assert world.net.closed == []
    world.clock.advance(1)
    responses = world.poll()
    assert [r.request.correlation_id for r in responses] == [f.correlation_id for f in frames]
    assert all(r.disconnected and r.timed_out and r.error is None for r in responses)
    assert world.responses == responses
    assert world.net.closed == [1]
    assert world.metadata.requested == 1
    assert world.client.connection_failed(NODE)
    assert world.client.in_flight_request_count() == 0


def test_a_request_of_its_own_timeout_ends_before_the_others() -> None:
    world = World(request_timeout_ms=1000)
    world.make_ready()
    world.ask_and_write()
    world.ask_and_write(request_timeout_ms=300)
    start = world.now
    while not world.responses:
        world.poll(NEVER)
    assert world.now - start == 301


def test_throttling_does_not_count_against_a_request_in_flight() -> None:
    world = World(request_timeout_ms=1000)
    world.make_ready()
    first = world.ask_and_write()
    world.ask_and_write()
    world.net.answer(first, struct.pack(">i", 600))
    world.poll()
    world.clock.advance(1600)
    assert world.poll() == []
    world.clock.advance(1)
    assert [r.timed_out for r in world.poll()] == [True]


def test_a_throttled_node_is_left_alone_until_the_time_is_over() -> None:
    """NetworkClientTest#testConnectionThrottling."""
    world = World()
    world.make_ready()
    world.net.answer(world.ask_and_write(), struct.pack(">i", 100))
    world.poll()
    assert not world.client.is_ready(NODE, world.now)
    assert world.client.least_loaded_node(world.now) is None
    assert world.client.poll_delay_ms(NODE, world.now) == 100
    assert world.client.is_ready(NODE, world.clock.advance(100))
    assert world.client.poll_delay_ms(NODE, world.now) == NEVER


def test_a_throttle_time_never_moves_back_and_adds_up_in_the_count() -> None:
    """NetworkClientTest#testConnectionThrottling."""
    world = World()
    world.make_ready()
    first, second = world.ask_and_write(), world.ask_and_write()
    world.net.answer(first, struct.pack(">i", 500))
    world.net.answer(second, struct.pack(">i", 10))
    world.poll()
    world.poll()
    assert world.client.poll_delay_ms(NODE, world.now) == 500


def test_an_absurd_throttle_time_is_clamped() -> None:
    world = World()
    world.make_ready()
    world.net.answer(world.ask_and_write(), struct.pack(">i", 2**31 - 1))
    world.poll()
    assert world.client.poll_delay_ms(NODE, world.now) == MAX_THROTTLE_MS


def test_a_throttled_only_node_does_not_bring_a_rebootstrap() -> None:
    world = World()
    world.make_ready()
    world.net.answer(world.ask_and_write(), struct.pack(">i", 100))
    world.poll()
    world.metadata.wait_ms = 0
    world.poll()
    assert world.metadata.rebootstraps == 0


def test_the_least_loaded_node_is_idle_else_least_busy_else_connecting_else_untried() -> None:
    """NetworkClientTest#testLeastLoadedNode."""
    world = World(NODES)
    client, net = world.client, world.net
    # Nothing tried yet: any of them.
    assert client.least_loaded_node(world.now) in NODES
    # Connecting beats connectable.
    net.connects = False
    client.ready(NODES[2], world.now)
    assert client.least_loaded_node(world.now) == NODES[2]
    net.connects = True
    net.finish_connect(3)
    world.make_ready(NODES[2])
    # Ready and idle beats all.
    assert client.least_loaded_node(world.now) == NODES[2]
    world.make_ready(NODES[0])
    world.ask_and_write(NODES[2])
    assert client.least_loaded_node(world.now) == NODES[0]
    # Fewest in flight.
    world.ask_and_write(NODES[0])
    world.ask_and_write(NODES[0])
    assert client.least_loaded_node(world.now) == NODES[2]


def test_the_least_loaded_node_among_failed_ones_is_the_one_tried_longest_ago() -> None:
    """NetworkClientTest#testLeastLoadedNode."""
    world = World(NODES)
    for node in (NODES[1], NODES[2], NODES[0]):
        world.make_ready(node)
        world.net.drop(node.id)
        world.poll()
        world.clock.advance(5)
    assert world.client.least_loaded_node(world.now) is None  # all of them back off
    world.clock.advance(100)
    assert world.client.least_loaded_node(world.now) == NODES[1]


def test_without_nodes_none_is_least_loaded() -> None:
    """NetworkClientTest#testLeastLoadedNode."""
    assert World(()).client.least_loaded_node(0) is None


def test_an_authentication_failure_is_remembered_and_handed_to_all() -> None:
    """NetworkClientTest#testAuthenticationFailureWithInFlightMetadataRequest."""
    world = World()
    error = AuthenticationError("wrong password", code=ErrorCode.SASL_AUTHENTICATION_FAILED)
    world.client.ready(NODE, world.now)
    world.poll()
    world.net.drop(1, ChannelStateKind.AUTHENTICATION_FAILED, error.message, error)
    world.poll()
    assert world.client.authentication_error(NODE) is error
    assert world.client.connection_failed(NODE)
    assert world.metadata.failures == [error]
    assert not world.client.ready(NODE, world.now)
    assert len(world.net.attempts) == 1  # it backs off
    world.clock.advance(1000)
    world.make_ready()
    assert world.client.authentication_error(NODE) is None


def test_requests_of_a_connection_that_fails_authentication_carry_that_error() -> None:
    world = World()
    world.make_ready()
    world.ask_and_write()
    error = AuthenticationError("expired")
    world.net.drop(1, ChannelStateKind.AUTHENTICATION_FAILED, error.message, error)
    (response,) = world.poll()
    assert response.error is error
    assert not response.disconnected


def test_all_known_nodes_gone_brings_a_rebootstrap() -> None:
    """NetworkClientTest#testRebootstrap."""
    world = World(NODES[:2], due=True)
    world.net.refused = {"10.0.0.1": "Connection refused", "10.0.0.2": "Connection refused"}
    for _ in range(6):
        world.metadata.wait_ms = 0
        world.poll(10)
    assert world.metadata.rebootstraps == 1  # and not again from bootstrap servers to the same
    assert {a[0] for a in world.net.attempts} >= {1, 2, -1}


def test_metadata_wanted_in_vain_for_the_trigger_time_brings_a_rebootstrap() -> None:
    """NetworkClientTest#testRebootstrap."""
    world = World(
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
    world = World(due=True)
    world.net.ranges = {**world.net.ranges, ApiKey.METADATA: (0, 13)}
    while not world.net.count_sent(ApiKey.METADATA):
        world.poll(10)
    world.poll()
    world.net.answer(
        world.net.sent[-1],
        metadata_body_v13((), error=ErrorCode.REBOOTSTRAP_REQUIRED.value),
    )
    world.poll()
    assert world.metadata.rebootstraps == 1
    assert world.net.closed == [1]


def test_time_in_which_nobody_wants_metadata_does_not_count_for_the_trigger() -> None:
    world = World(due=True, metadata_recovery_rebootstrap_trigger_ms=1000)
    world.net.connects = False
    world.poll(10)
    world.metadata.wait_ms = NEVER
    world.poll(10)
    world.clock.advance(5000)
    world.metadata.wait_ms = 0
    world.poll(10)
    assert world.metadata.rebootstraps == 0


def test_metadata_waits_for_a_connection_under_way_and_tries_no_second_one() -> None:
    world = World(NODES, due=True, socket_connection_setup_timeout_ms=500)
    world.net.connects = False
    for _ in range(5):
        world.poll(20)
    assert len(world.net.attempts) == 1
    while len(world.net.attempts) < 2:
        world.metadata.wait_ms = 0
        world.poll(NEVER)
    assert world.net.attempts[0][0] != world.net.attempts[1][0]


def test_with_recovery_strategy_none_nothing_brings_a_rebootstrap() -> None:
    world = World(due=True, metadata_recovery_rebootstrap_trigger_ms=10)
    world.metadata.rebootstrap_enabled = False
    world.net.refused = {"10.0.0.1": "Connection refused"}
    for _ in range(20):
        world.metadata.wait_ms = 0
        world.poll(50)
    assert world.metadata.rebootstraps == 0


def test_no_common_version_fails_without_a_byte_on_the_wire() -> None:
    """NetworkClientTest#testUnsupportedVersionDuringInternalMetadataRequest."""
    world = World()
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


def test_metadata_without_a_common_version_is_fatal_to_those_who_wait() -> None:
    world = World(due=True)
    world.net.ranges = {ApiKey.PRODUCE: (0, 12)}
    while not world.metadata.failures:
        world.poll(10)
    assert isinstance(world.metadata.failures[0], UnsupportedVersionError)


def test_correlation_ids_stay_below_the_range_of_sasl() -> None:
    """NetworkClientTest#testUnsupportedVersionDuringInternalMetadataRequest."""
    world = World()
    world.client._correlation_id = MIN_RESERVED_CORRELATION_ID - 2
    ids = [world.client.new_client_request(1, Ask(), 0).correlation_id for _ in range(4)]
    assert ids == [MIN_RESERVED_CORRELATION_ID - 2, MIN_RESERVED_CORRELATION_ID - 1, 0, 1]


# ---- sends and answers ----


def test_a_request_without_answer_completes_when_it_is_written() -> None:
    world = World()
    world.make_ready()
    world.net.sends_complete = False
    world.ask(expect_response=False)
    assert world.poll() == []
    world.net.sends_complete = True
    (response,) = world.poll()
    assert response.body is None
    assert response.error is None
    assert not response.disconnected
    assert world.client.in_flight_request_count(1) == 0


def test_a_disconnection_fails_requests_in_order_and_asks_for_metadata() -> None:
    world = World()
    world.make_ready()
    frames = [world.ask_and_write() for _ in range(2)]
    world.net.drop(1)
    responses = world.poll()
    assert [r.request.correlation_id for r in responses] == [f.correlation_id for f in frames]
    assert all(r.disconnected and not r.timed_out for r in responses)
    assert world.metadata.requested == 1
    assert world.client.api_versions(1) is None
    assert world.client.poll_delay_ms(NODE, world.now) == 50


def test_an_expired_idle_connection_is_no_failure() -> None:
    world = World()
    world.make_ready()
    world.net.drop(1, ChannelStateKind.EXPIRED, None)
    world.poll()
    assert world.metadata.requested == 0
    assert world.client.connection_failures() == {}


def test_a_wrong_correlation_id_poisons_the_connection() -> None:
    world = World()
    world.make_ready()
    first = world.ask_and_write()
    world.ask_and_write()
    world.net.answer(first, OK, correlation_id=first.correlation_id + 1)
    responses = world.poll()
    assert len(responses) == 2
    for response in responses:
        assert isinstance(response.error, RemoteProtocolError)
        assert "node 1 at 10.0.0.1:9092" in response.error.message
        assert not response.disconnected
    assert world.net.closed == [1]
    # And then life goes on, with backoff.
    assert world.client.poll_delay_ms(NODE, world.now) == 50
    world.clock.advance(50)
    world.make_ready()


def test_an_answer_that_nobody_asked_for_poisons_the_connection() -> None:
    world = World()
    world.make_ready()
    world.net.deliver(1, b"\0\0\0\0\0")
    assert world.poll() == []
    assert world.net.closed == [1]
    assert world.client.connection_failures() == {
        "10.0.0.1:9092": "the broker answered without having been asked"
    }


def test_an_answer_to_a_request_that_expects_none_poisons_the_connection() -> None:
    world = World()
    world.make_ready()
    world.net.sends_complete = False
    frame = world.ask(expect_response=False)
    world.net.answer(frame, OK)
    (response,) = world.poll()
    assert isinstance(response.error, RemoteProtocolError)


@given(garbage=st.binary(max_size=40))
def test_garbage_instead_of_api_versions_never_hangs(garbage: bytes) -> None:
    world = World()
    world.net.answers_api_versions = False
    world.client.ready(NODE, world.now)
    world.poll()
    world.poll()
    world.net.deliver(1, garbage)
    world.poll()
    assert world.client.connection_failed(NODE)


def test_a_callback_that_raises_does_not_keep_the_others_from_theirs() -> None:
    world = World()
    world.make_ready()

    def fail(response: ClientResponse) -> None:
        raise ValueError("mine")

    world.client.send(world.client.new_client_request(1, Ask(), 0, callback=fail), world.now)
    world.poll()
    world.ask_and_write()
    world.net.drop(1)
    with pytest.raises(ValueError, match="mine"):
        world.poll()
    assert len(world.responses) == 1


# ---- metadata ----


def test_metadata_is_asked_of_one_node_at_a_time_and_its_answer_stored() -> None:
    world = World(NODES, due=True)
    for _ in range(8):
        world.poll(10)
    assert len(world.net.attempts) == 1
    assert world.net.count_sent(ApiKey.METADATA) == 1
    frame = world.net.last_sent(ApiKey.METADATA)
    assert frame.version == 4
    world.net.answer(frame, metadata_body_v4(NODES[1:]))
    assert world.poll() == []
    ((token, response),) = world.metadata.updates
    assert token == 7
    assert tuple(response.brokers.values()) == NODES[1:]


def test_a_connection_that_leads_where_its_node_lives_no_more_is_closed() -> None:
    """Two brokers change places. Each goes on to answer, for the other: NOT_LEADER for ever, if the
    connections stay (as Java's do; librdkafka and franz-go connect anew).
    """
    world = World(NODES)
    for node in NODES:
        world.make_ready(node)
    frame = world.ask_and_write(NODES[1])
    world.metadata.wait_ms = 0
    while not world.net.count_sent(ApiKey.METADATA):
        world.poll()
    world.poll()
    moved = (NODES[0], Node(2, "10.0.0.3", 9092), Node(3, "10.0.0.2", 9092))
    world.net.answer(world.net.last_sent(ApiKey.METADATA), metadata_body_v4(moved))
    world.poll()
    assert sorted(world.net.closed) == [2, 3]
    (lost,) = world.responses
    assert lost.disconnected
    assert lost.request.correlation_id == frame.correlation_id
    assert world.metadata.failures == []
    assert world.client.is_ready(NODES[0], world.now)
    world.clock.advance(1000)
    for node in moved:
        world.make_ready(node)
    assert world.net.attempts[3:] == [(2, "10.0.0.3", 9092), (3, "10.0.0.2", 9092)]


def test_a_connection_to_a_node_that_stays_is_left_alone_whatever_else_is_told() -> None:
    world = World(NODES[:2])
    world.make_ready()
    world.metadata.wait_ms = 0
    while not world.net.count_sent(ApiKey.METADATA):
        world.poll()
    world.poll()
    told = (NODE, Node(2, "elsewhere", 9092), NODES[2])  # 2 was never connected to
    world.net.answer(world.net.last_sent(ApiKey.METADATA), metadata_body_v4(told))
    world.poll()
    assert world.net.closed == []


def test_an_answer_without_brokers_is_a_failed_update() -> None:
    world = World(due=True)
    while not world.net.count_sent(ApiKey.METADATA):
        world.poll(10)
    world.poll()
    world.net.answer(world.net.sent[-1], metadata_body_v4(()))
    world.poll()
    assert world.metadata.failures == [None]
    assert world.metadata.updates == []


def test_a_lost_metadata_request_is_one_failed_update_and_is_asked_again() -> None:
    world = World(due=True)
    while not world.net.count_sent(ApiKey.METADATA):
        world.poll(10)
    world.poll()
    world.net.drop(1)
    world.poll()
    assert world.metadata.failures == [None]
    world.metadata.wait_ms = 0
    while world.net.count_sent(ApiKey.METADATA) < 2:
        world.poll(10)


def test_a_refused_connection_while_metadata_is_due_is_a_failed_update() -> None:
    world = World(due=True)
    world.metadata.rebootstrap_enabled = False
    world.net.refused = {"10.0.0.1": "Connection refused"}
    world.poll(10)
    assert world.metadata.failures == [None]
    assert world.metadata.requested == 1
    assert world.client.connection_failures() == {"10.0.0.1:9092": "Connection refused"}


# ---- sleeping ----


def test_with_nothing_wanted_and_nothing_in_flight_a_poll_may_sleep_for_good() -> None:
    world = World()
    world.make_ready()
    with pytest.raises(AssertionError, match="asleep for good"):
        world.poll(NEVER)
    assert world.net.timeouts[-1] == NEVER


def test_a_poll_sleeps_until_the_first_request_may_time_out() -> None:
    world = World(request_timeout_ms=1000)
    world.make_ready()
    world.ask_and_write()
    world.clock.advance(400)
    world.poll(NEVER)
    assert world.net.timeouts[-1] == 601


def test_a_poll_sleeps_no_longer_than_metadata_allows() -> None:
    world = World()
    world.make_ready()
    world.metadata.wait_ms = 123
    world.poll(NEVER)
    assert world.net.timeouts[-1] == 123


# ---- closing ----


def test_a_closed_client_refuses_to_poll_or_send() -> None:
    world = World()
    world.make_ready()
    request = world.client.new_client_request(1, Ask(), world.now)
    world.client.close()
    world.client.close()
    assert world.net.is_closed
    for call in (world.poll, lambda: world.client.send(request, world.now)):
        with pytest.raises(DisconnectError, match="closed"):
            call()


def test_the_same_connection_failure_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "spark_kafka_sink.network")
    world = World()
    world.net.refused = {"10.0.0.1": "Connection refused"}
    for _ in range(5):
        world.client.ready(NODE, world.now)
        world.clock.advance(2000)
    assert len(world.net.attempts) == 5
    assert [r.getMessage() for r in caplog.records] == [
        coded(Kind.NOT_CONNECTED, "node 1 at 10.0.0.1:9092: Connection refused")
    ]


def test_a_bootstrap_server_is_not_called_by_an_id_that_nobody_gave_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.net.refused = {"10.0.0.1": "Connection refused"}
    world.client.ready(Node(-1, NODE.host, NODE.port), world.now)
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert record.getMessage().startswith(
        "[KP0311] bootstrap server 10.0.0.1:9092: Connection refused ("
    )


def test_a_node_that_answers_is_no_longer_among_the_failures() -> None:
    world = World()
    world.net.refused = {"10.0.0.1": "Connection refused"}
    world.client.ready(NODE, world.now)
    assert world.client.connection_failures()
    world.net.refused = {}
    world.clock.advance(2000)
    world.make_ready()
    assert world.client.connection_failures() == {}


def test_a_host_that_does_not_resolve_is_a_failure_with_its_reason() -> None:
    def resolve(host: str) -> list[str]:
        raise OSError(-2, "Name or service not known")

    world = World(resolve=resolve)
    world.client.ready(Node(1, "no.such.host", 9092), world.now)
    assert world.client.connection_failures() == {"no.such.host:9092": "Name or service not known"}
