"""NetworkClient over a simulated network (Java: NetworkClientTest)."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    DisconnectError,
    RemoteProtocolError,
    UnsupportedVersionError,
    coded,
)
from spark_kafka_sink.network.channel.selectable import ChannelStateKind
from spark_kafka_sink.network.client.client_request import ClientResponse
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.frames import MIN_RESERVED_CORRELATION_ID
from spark_kafka_sink.protocol.request import ApiKey
from tests.network.network_client_harness import NODE, OK, NetworkClientHarness
from tests.network.simulated import (
    Answer,
    Ask,
)


def test_a_request_is_answered_through_its_callback() -> None:
    world = NetworkClientHarness()
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


def test_a_request_without_a_callback_is_answered_all_the_same() -> None:
    world = NetworkClientHarness.ready()
    request = world.client.new_client_request(NODE.id, Ask(), world.now)
    world.client.send(request, world.now)
    world.poll()
    world.net.answer(world.net.sent[-1], OK)
    (response,) = world.poll()
    assert (response.request, response.body) == (request, Answer(b"ok"))


def test_metadata_without_a_common_version_fails_its_waiters() -> None:
    world = NetworkClientHarness(due=True)
    world.net.ranges = {ApiKey.PRODUCE: (0, 12)}
    while not world.metadata.failures:
        world.poll(10)
    assert isinstance(world.metadata.failures[0], UnsupportedVersionError)


def test_correlation_ids_stay_below_the_range_of_sasl() -> None:
    """NetworkClientTest#testCorrelationId."""
    world = NetworkClientHarness()
    world.client._correlation_id = MIN_RESERVED_CORRELATION_ID - 2
    ids = [world.client.new_client_request(1, Ask(), 0).correlation_id for _ in range(4)]
    assert ids == [MIN_RESERVED_CORRELATION_ID - 2, MIN_RESERVED_CORRELATION_ID - 1, 0, 1]


# ---- sends and answers ----


def test_a_request_without_answer_completes_when_it_is_written() -> None:
    world = NetworkClientHarness.ready()
    world.net.sends_complete = False
    world.ask(expect_response=False)
    assert world.poll() == []
    world.net.sends_complete = True
    (response,) = world.poll()
    assert response.body is None
    assert response.error is None
    assert not response.disconnected
    assert world.client.in_flight_request_count(1) == 0


def test_a_disconnection_fails_requests_in_order() -> None:
    world = NetworkClientHarness.ready()
    frames = [world.ask_and_write() for _ in range(2)]
    world.net.drop(1)
    responses = world.poll()
    assert [r.request.correlation_id for r in responses] == [f.correlation_id for f in frames]
    assert all(r.disconnected and not r.timed_out for r in responses)
    assert world.metadata.requested == 1
    assert world.client.api_versions(1) is None
    assert world.client.poll_delay_ms(NODE, world.now) == 50


def test_an_expired_idle_connection_is_no_failure() -> None:
    world = NetworkClientHarness.ready()
    world.net.drop(1, ChannelStateKind.EXPIRED, None)
    world.poll()
    assert world.metadata.requested == 0
    assert world.client.connection_failures() == {}


def test_an_unrequested_answer_poisons_the_connection() -> None:
    world = NetworkClientHarness.ready()
    world.net.deliver(1, b"\0\0\0\0\0")
    assert world.poll() == []
    assert world.net.closed == [1]
    assert world.client.connection_failures() == {
        "10.0.0.1:9092": "the broker sent a response without a request"
    }


def test_an_answer_to_a_silent_request_poisons_the_connection() -> None:
    world = NetworkClientHarness.ready()
    world.net.sends_complete = False
    frame = world.ask(expect_response=False)
    world.net.answer(frame, OK)
    (response,) = world.poll()
    assert isinstance(response.error, RemoteProtocolError)


@given(garbage=st.binary(max_size=40))
def test_garbage_instead_of_api_versions_never_hangs(garbage: bytes) -> None:
    world = NetworkClientHarness()
    world.net.answers_api_versions = False
    world.client.ready(NODE, world.now)
    world.poll()
    world.poll()
    world.net.deliver(1, garbage)
    world.poll()
    assert world.client.connection_failed(NODE)


def test_a_raising_callback_does_not_stop_the_others() -> None:
    world = NetworkClientHarness.ready()

    def fail(response: ClientResponse) -> None:
        raise ValueError("mine")

    world.client.send(world.client.new_client_request(1, Ask(), 0, callback=fail), world.now)
    world.poll()
    world.ask_and_write()
    world.net.drop(1)
    with pytest.raises(ValueError, match="mine"):
        world.poll()
    assert len(world.responses) == 1


# ---- sleeping ----


def test_a_poll_without_work_may_sleep_without_a_limit() -> None:
    world = NetworkClientHarness.ready()
    with pytest.raises(AssertionError, match="asleep for good"):
        world.poll(NEVER)
    assert world.net.timeouts[-1] == NEVER


def test_a_poll_sleeps_until_the_first_request_may_time_out() -> None:
    world = NetworkClientHarness.ready(request_timeout_ms=1000)
    world.ask_and_write()
    world.clock.advance(400)
    world.poll(NEVER)
    assert world.net.timeouts[-1] == 601


def test_a_poll_sleeps_no_longer_than_metadata_allows() -> None:
    world = NetworkClientHarness.ready()
    world.metadata.wait_ms = 123
    world.poll(NEVER)
    assert world.net.timeouts[-1] == 123


# ---- closing ----


def test_a_closed_client_refuses_to_poll_or_send() -> None:
    world = NetworkClientHarness.ready()
    request = world.client.new_client_request(1, Ask(), world.now)
    world.client.close()
    world.client.close()
    assert world.net.is_closed
    for call in (world.poll, lambda: world.client.send(request, world.now)):
        with pytest.raises(DisconnectError, match="closed"):
            call()


def test_the_same_connection_failure_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "spark_kafka_sink.network")
    world = NetworkClientHarness()
    world.net.refused = {"10.0.0.1": "Connection refused"}
    for _ in range(5):
        world.client.ready(NODE, world.now)
        world.clock.advance(2000)
    assert len(world.net.attempts) == 5
    assert [r.getMessage() for r in caplog.records] == [
        coded(Kind.NOT_CONNECTED, "node 1 at 10.0.0.1:9092: Connection refused")
    ]


def test_a_bootstrap_server_is_named_by_its_address_not_an_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = NetworkClientHarness()
    world.net.refused = {"10.0.0.1": "Connection refused"}
    world.client.ready(Node(-1, NODE.host, NODE.port), world.now)
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert record.getMessage().startswith(
        "[KP0311] bootstrap server 10.0.0.1:9092: Connection refused ("
    )


def test_a_node_that_answers_is_no_longer_among_the_failures() -> None:
    world = NetworkClientHarness()
    world.net.refused = {"10.0.0.1": "Connection refused"}
    world.client.ready(NODE, world.now)
    assert world.client.connection_failures()
    world.net.refused = {}
    world.clock.advance(2000)
    world.make_ready()
    assert world.client.connection_failures() == {}


def test_an_unresolvable_host_is_a_failure_with_its_reason() -> None:
    def resolve(host: str) -> list[str]:
        raise OSError(-2, "Name or service not known")

    world = NetworkClientHarness(resolve=resolve)
    world.client.ready(Node(1, "no.such.host", 9092), world.now)
    assert world.client.connection_failures() == {"no.such.host:9092": "Name or service not known"}
