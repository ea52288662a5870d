"""NetworkClient: when a node may be sent to, time-outs, throttling, the least loaded one."""

from __future__ import annotations

import struct

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ErrorCode,
    IllegalStateError,
)
from spark_kafka_sink.network.channel.selectable import ChannelStateKind
from spark_kafka_sink.protocol.messages.api_versions import ApiVersionsRequest
from spark_kafka_sink.protocol.request import ApiKey
from tests.network.network_client_harness import NODE, NODES, NetworkClientHarness
from tests.network.simulated import (
    api_versions_body,
)


def test_no_node_is_ready_while_a_metadata_update_is_due() -> None:
    """NetworkClientTest#testSendToUnreadyNode."""
    world = NetworkClientHarness.ready()
    world.metadata.wait_ms = 0
    assert not world.client.ready(NODE, world.now)
    world.poll()  # the metadata request is in flight now
    assert world.net.last_sent(ApiKey.METADATA).node_id == 1
    world.poll()
    assert world.client.ready(NODE, world.now)


@pytest.mark.parametrize("reason", ["channel", "throttled", "unsent", "limit", "unknown"])
def test_a_node_that_is_not_ready_takes_no_request(reason: str) -> None:
    """NetworkClientTest#testSendToUnreadyNode."""
    world = NetworkClientHarness(max_in_flight_requests_per_connection=2)
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
    assert not world.client.can_send_request(node.id, world.now)
    with pytest.raises(IllegalStateError, match=f"node {node.id} is not ready"):
        world.ask(node)


def test_a_second_request_may_follow_an_unanswered_first() -> None:
    world = NetworkClientHarness.ready()
    world.net.sends_complete = False
    world.ask_and_write()
    assert not world.client.can_send_request(NODE.id, world.now)
    world.net.sends_complete = True
    world.poll()
    assert world.client.can_send_request(NODE.id, world.now)


@pytest.mark.parametrize(
    ("offered", "second"),
    [({ApiKey.API_VERSIONS: (0, 3)}, 3), ({}, 0), ({ApiKey.API_VERSIONS: (0, 4)}, 0)],
    ids=["a lower version", "nothing", "the version it refused"],
)
def test_a_refused_api_versions_request_is_sent_again_lower(
    offered: dict[int, tuple[int, int]], second: int
) -> None:
    """NetworkClientTest#testApiVersionsRequest."""
    world = NetworkClientHarness()
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
    assert world.client.can_send_request(NODE.id, world.now)
    assert world.ask_and_write().version == 8


def test_a_reset_in_place_of_api_versions_lowers_its_version() -> None:
    """Azure Event Hubs closed connections at version 4; librdkafka falls back, too."""
    world = NetworkClientHarness()
    world.net.answers_api_versions = False
    asked = []
    for _ in range(6):
        world.clock.advance(60_000)
        while world.net.count_sent(ApiKey.API_VERSIONS) == len(asked):
            world.client.ready(NODE, world.now)
            world.poll()
        asked.append(world.net.last_sent(ApiKey.API_VERSIONS).version)
        world.net.drop(NODE.id)
        world.poll()
    assert asked == [4, 4, 3, 3, 0, 0]
    world.net.answers_api_versions = True
    world.clock.advance(60_000)
    world.make_ready()
    assert world.net.last_sent(ApiKey.API_VERSIONS).version == 0
    world.net.drop(NODE.id)
    world.poll()
    world.clock.advance(60_000)
    world.make_ready()
    assert world.net.last_sent(ApiKey.API_VERSIONS).version == 3, "features are asked for again"


def test_a_later_api_versions_request_has_the_answered_version() -> None:
    """The driver asks a connected node for its features; the node closes at version 4 each time."""
    world = NetworkClientHarness()
    world.net.answers_api_versions = False
    for _ in range(2):
        world.clock.advance(60_000)
        while not world.net.count_sent(ApiKey.API_VERSIONS):
            world.client.ready(NODE, world.now)
            world.poll()
        world.net.sent.clear()
        world.net.drop(NODE.id)
        world.poll()
    world.net.answers_api_versions = True
    world.clock.advance(60_000)
    world.make_ready()
    again = world.client.new_client_request(NODE.id, ApiVersionsRequest(), world.now)
    world.client.send(again, world.now)
    world.poll()
    assert [frame.version for frame in world.net.sent] == [3, 3]


def test_another_error_to_api_versions_disconnects() -> None:
    """NetworkClientTest#testApiVersionsRequest."""
    world = NetworkClientHarness()
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
    world = NetworkClientHarness(socket_connection_setup_timeout_ms=500)
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


def test_a_broker_silent_to_api_versions_is_dropped_in_time() -> None:
    """NetworkClientTest#testConnectionDoesNotRemainStuckInCheckingApiVersionsStateIfChannelNeverBecomesReady."""
    world = NetworkClientHarness(request_timeout_ms=700)
    world.net.answers_api_versions = False
    world.client.ready(NODE, world.now)
    start = world.now
    while not world.client.connection_failed(NODE):
        world.poll(NEVER)
    assert world.now - start == 701
    (reason,) = world.client.connection_failures().values()
    assert reason == (
        "no response to API_VERSIONS within 700 ms; "
        "is it stopped or overloaded, a TLS or SASL listener, or not Kafka?"
    )


def test_a_request_timeout_fails_all_requests_in_send_order() -> None:
    """NetworkClientTest#testRequestTimeout."""
    world = NetworkClientHarness.ready(request_timeout_ms=1000)
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
    world = NetworkClientHarness.ready(request_timeout_ms=1000)
    world.ask_and_write()
    world.ask_and_write(request_timeout_ms=300)
    start = world.now
    while not world.responses:
        world.poll(NEVER)
    assert world.now - start == 301


def test_throttling_does_not_count_against_a_request_in_flight() -> None:
    world = NetworkClientHarness.ready(request_timeout_ms=1000)
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
    world = NetworkClientHarness.ready()
    world.net.answer(world.ask_and_write(), struct.pack(">i", 100))
    world.poll()
    assert not world.client.can_send_request(NODE.id, world.now)
    assert world.client.least_loaded_node(world.now) is None
    assert world.client.poll_delay_ms(NODE, world.now) == 100
    assert world.client.can_send_request(NODE.id, world.clock.advance(100))
    assert world.client.poll_delay_ms(NODE, world.now) == NEVER


def test_a_throttled_only_node_does_not_bring_a_rebootstrap() -> None:
    world = NetworkClientHarness.ready()
    world.net.answer(world.ask_and_write(), struct.pack(">i", 100))
    world.poll()
    world.metadata.wait_ms = 0
    world.poll()
    assert world.metadata.rebootstraps == 0


def test_the_least_loaded_node_is_idle_then_least_busy() -> None:
    """NetworkClientTest#testLeastLoadedNode."""
    world = NetworkClientHarness(NODES)
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


def test_of_failed_nodes_the_one_tried_longest_ago_is_chosen() -> None:
    """NetworkClientTest#testLeastLoadedNode."""
    world = NetworkClientHarness(NODES)
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
    assert NetworkClientHarness(()).client.least_loaded_node(0) is None


def test_an_authentication_failure_is_kept_and_given_to_all() -> None:
    """NetworkClientTest#testAuthenticationFailureWithInFlightMetadataRequest."""
    world = NetworkClientHarness()
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


def test_a_failed_authentication_fails_its_requests_with_it() -> None:
    world = NetworkClientHarness.ready()
    world.ask_and_write()
    error = AuthenticationError("expired")
    world.net.drop(1, ChannelStateKind.AUTHENTICATION_FAILED, error.message, error)
    (response,) = world.poll()
    assert response.error is error
    assert not response.disconnected
