"""What is kept and said of connections that ended."""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.network.channel.selectable import ChannelState, ChannelStateKind
from spark_kafka_sink.network.client.cluster_connection_states import ConnectionState
from spark_kafka_sink.network.client.connection_failures import SILENT_LISTENER, ConnectionFailures
from spark_kafka_sink.protocol.request import ApiKey

REMOTE = "b:9092"
RESET = "Connection reset by peer"


@pytest.mark.parametrize(
    ("kind", "detail", "said"),
    [
        (ChannelStateKind.AUTHENTICATE, RESET, f"{RESET} during the handshake ({SILENT_LISTENER})"),
        (ChannelStateKind.AUTHENTICATE, "TLS: what is wrong", "TLS: what is wrong"),
        (ChannelStateKind.NOT_CONNECTED, "Connection refused", "Connection refused"),
    ],
    ids=["the system's word", "a word of TLS", "no connection"],
)
def test_a_disconnect_is_explained_by_where_it_came(
    kind: ChannelStateKind, detail: str, said: str
) -> None:
    failures = ConnectionFailures()
    failures.connecting(1, "b", 9092)
    state = ChannelState(kind, REMOTE, detail)
    failures.record_disconnect(1, ConnectionState.CHECKING_API_VERSIONS, state)
    assert failures.by_node == {1: {REMOTE: said}}
    assert failures.take() == {1: f"{REMOTE}: {said}"}


def test_idleness_is_no_failure() -> None:
    failures = ConnectionFailures()
    state = ChannelState(ChannelStateKind.EXPIRED, REMOTE, None)
    failures.record_disconnect(1, ConnectionState.READY, state)
    assert failures.by_node == {}


def test_a_host_name_of_many_addresses_keeps_the_last_ones() -> None:
    """A load balancer has a new one with each lookup."""
    failures = ConnectionFailures()
    for number in range(100):
        failures.connecting(1, "b", 9092, f"10.0.0.{number}")
        failures.record(1, "Connection refused")
    addresses = list(failures.by_node[1])
    assert len(addresses) < 20
    assert addresses[-1] == "b:9092 (10.0.0.99)"
    failures.answered(1)
    assert failures.by_node == {}


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.levelno == logging.WARNING]


def test_a_node_that_only_answers_api_versions_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A PLAINTEXT client at a SASL port: it answers ApiVersions, and closes at Metadata."""
    failures = ConnectionFailures()
    failures.connecting(-1, "b", 9092)
    state = ChannelState(ChannelStateKind.READY, REMOTE, RESET)
    for _ in range(20):
        failures.connected(-1)
        assert failures.by_address() == {}
        failures.record_disconnect(-1, ConnectionState.READY, state, ApiKey.METADATA)
    (line,) = _warnings(caplog)
    assert "does it require SASL?" in line
    failures.answered(-1)
    failures.record_disconnect(-1, ConnectionState.READY, state, ApiKey.METADATA)
    assert len(_warnings(caplog)) == 2


def test_reasons_in_turn_and_other_times_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    failures = ConnectionFailures()
    failures.connecting(1, "b", 9092)
    for number in range(20):
        failures.record(1, "Connection refused")
        failures.record(1, f"no connection within {10_000 + number} ms")
    assert len(_warnings(caplog)) == 2
    assert failures.by_node[1][REMOTE].endswith("10019 ms")
