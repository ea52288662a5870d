"""States, backoff and addresses (Java: ClusterConnectionStatesTest)."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import AuthenticationError, IllegalStateError
from spark_kafka_sink.network.client.cluster_connection_states import (
    ClusterConnectionStates,
    ConnectionState,
)
from tests.network.network_client_harness import client_config

HOST = "broker.example"


class Hosts:
    """A resolver whose answers a test sets."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.lookups: list[str] = []

    def __call__(self, host: str) -> list[str]:
        self.lookups.append(host)
        return list(self.addresses)


def new_states(hosts: Hosts | None = None, random: float = 0.5) -> ClusterConnectionStates:
    return ClusterConnectionStates(
        client_config(
            reconnect_backoff_ms=100,
            reconnect_backoff_max_ms=1000,
            socket_connection_setup_timeout_ms=1000,
            socket_connection_setup_timeout_max_ms=4000,
        ),
        resolve=hosts or Hosts("10.0.0.1"),
        random=lambda: random,
    )


def attempt(states: ClusterConnectionStates, now: int = 0, host: str = HOST) -> str:
    states.connecting(1, now, host)
    return states.current_address(1)


def fail(states: ClusterConnectionStates, now: int = 0) -> None:
    states.disconnected(1, now)


def test_a_connection_passes_through_its_states() -> None:
    states = new_states()
    assert states.connection_state(1) is None
    assert states.can_connect(1, 0)
    assert states.connection_delay(1, 0) == 0
    attempt(states)
    assert states.is_connecting(1)
    assert states.is_preparing_connection(1)
    assert not states.can_connect(1, 10**9)
    assert states.connection_delay(1, 0) == 1000
    states.checking_api_versions(1)
    assert not states.is_connecting(1)
    assert states.is_preparing_connection(1)
    assert states.is_connected(1)
    assert not states.is_ready(1, 0)
    states.ready(1)
    assert states.connection_state(1) is ConnectionState.READY
    assert states.is_ready(1, 0)
    assert states.connection_delay(1, 0) == NEVER
    fail(states)
    assert states.is_disconnected(1)


def test_an_event_of_an_unknown_connection_is_an_error() -> None:
    with pytest.raises(IllegalStateError, match="no connection to node 7"):
        new_states().ready(7)


def test_reconnect_backoff_doubles_to_its_maximum_and_resets() -> None:
    """ClusterConnectionStatesTest#testExponentialReconnectBackoff."""
    states = new_states()
    waits = []
    for _ in range(6):
        attempt(states)
        fail(states)
        waits.append(states.connection_delay(1, 0))
    assert waits == [100, 200, 400, 800, 1000, 1000]
    assert not states.can_connect(1, 999)
    assert states.can_connect(1, 1000)
    attempt(states)
    states.checking_api_versions(1)
    fail(states)
    assert states.connection_delay(1, 0) == 1000  # connected is not ready
    attempt(states)
    states.ready(1)
    fail(states)
    assert states.connection_delay(1, 0) == 100


def test_the_setup_timeout_doubles_and_a_connection_resets_it() -> None:
    """ClusterConnectionStatesTest#testExponentialReconnectBackoff."""
    states = new_states()
    limits = []
    for _ in range(4):
        attempt(states)
        limits.append(states.connection_setup_timeout_ms(1))
        fail(states)
    assert limits == [1000, 2000, 4000, 4000]
    attempt(states)
    states.checking_api_versions(1)
    fail(states)
    attempt(states)
    assert states.connection_setup_timeout_ms(1) == 1000


def test_a_setup_times_out_when_its_limit_is_over() -> None:
    states = new_states()
    assert states.time_to_next_setup_timeout(0) == NEVER
    attempt(states, now=50)
    assert states.time_to_next_setup_timeout(50) == 1001
    assert states.nodes_with_connection_setup_timeout(1050) == []
    assert states.nodes_with_connection_setup_timeout(1051) == [1]
    states.checking_api_versions(1)
    assert states.nodes_with_connection_setup_timeout(10**6) == []
    assert states.time_to_next_setup_timeout(10**6) == NEVER


def test_addresses_are_tried_in_turn_then_resolved_again() -> None:
    """ClusterConnectionStatesTest#testMultipleIPs."""
    hosts = Hosts("10.0.0.1", "10.0.0.2", "10.0.0.3")
    states = new_states(hosts)
    tried = []
    for _ in range(3):
        tried.append(attempt(states))
        fail(states)
    assert tried == hosts.addresses
    assert len(hosts.lookups) == 1
    hosts.addresses = ["10.0.0.9"]
    assert attempt(states) == "10.0.0.9"
    assert len(hosts.lookups) == 2


def test_a_dropped_connection_resolves_again_and_skips_it() -> None:
    """ClusterConnectionStatesTest#testMultipleIPs."""
    hosts = Hosts("10.0.0.1", "10.0.0.2")
    states = new_states(hosts)
    assert attempt(states) == "10.0.0.1"
    states.checking_api_versions(1)
    states.ready(1)
    fail(states)
    assert attempt(states) == "10.0.0.2"
    assert len(hosts.lookups) == 2


def test_the_only_address_is_not_skipped() -> None:
    """113."""
    states = new_states(Hosts("10.0.0.1"))
    for _ in range(3):
        assert attempt(states) == "10.0.0.1"
        states.ready(1)
        fail(states)


def test_a_new_host_name_is_resolved_from_its_first_address() -> None:
    """ClusterConnectionStatesTest#testMultipleIPs."""
    hosts = Hosts("10.0.0.1")
    states = new_states(hosts)
    for _ in range(4):
        attempt(states)
        fail(states)
    attempt(states, host="other.example")
    assert hosts.lookups[-1] == "other.example"
    fail(states)
    assert states.connection_delay(1, 0) == 100


def test_a_throttle_time_never_moves_back() -> None:
    """NetworkClientTest#testConnectionThrottling."""
    states = new_states()
    states.throttle(1, 500)  # unknown: nothing to throttle
    attempt(states)
    states.ready(1)
    states.throttle(1, 500)
    states.throttle(1, 300)
    assert not states.is_ready(1, 499)
    assert states.is_ready(1, 500)
    assert states.poll_delay_ms(1, 200) == 300
    assert states.poll_delay_ms(1, 500) == NEVER
    fail(states, 200)
    assert states.poll_delay_ms(1, 200) == 100  # a lost connection waits for its backoff


def test_throttling_works_on_a_clock_that_starts_below_zero() -> None:
    states = new_states()
    attempt(states, now=-1000)
    states.ready(1)
    assert states.is_ready(1, -1000)
    states.throttle(1, -500)
    assert not states.is_ready(1, -501)


def test_an_authentication_failure_is_remembered_until_ready() -> None:
    """NetworkClientTest#testAuthenticationFailureWithInFlightMetadataRequest."""
    states = new_states()
    error = AuthenticationError("wrong password")
    attempt(states)
    states.checking_api_versions(1)
    states.disconnected(1, 0)
    states.authentication_failed(1, 0, error)
    assert states.authentication_error(1) is error
    assert states.is_disconnected(1)
    assert not states.can_connect(1, 100)
    assert states.can_connect(1, 200)
    attempt(states)
    assert states.authentication_error(1) is error
    states.ready(1)
    assert states.authentication_error(1) is None
