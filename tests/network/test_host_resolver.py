"""Names to addresses, with the machine's own resolver and names that need no network."""

from __future__ import annotations

import pytest

from spark_kafka_sink.network.host_resolver import canonical_bootstrap_servers, resolve_host

#: No resolver is asked for a label of more than 63 letters.
NO_NAME = "a" * 64 + ".example"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_an_address_resolves_to_itself(address: str) -> None:
    assert resolve_host(address) == [address]


def test_localhost_is_tried_over_ipv4_first() -> None:
    addresses = resolve_host("localhost")
    assert addresses[0] == "127.0.0.1"
    assert len(set(addresses)) == len(addresses)


def test_a_name_that_is_none_is_an_os_error() -> None:
    with pytest.raises(OSError, match="not a host name"):
        resolve_host(NO_NAME)


def test_canonical_bootstrap_servers_name_each_address_once() -> None:
    servers = canonical_bootstrap_servers([("127.0.0.1", 9092), ("127.0.0.1", 9092), (NO_NAME, 1)])
    assert len(servers) == 1
    assert servers[0][1] == 9092


def test_no_resolvable_bootstrap_server_is_an_error() -> None:
    with pytest.raises(OSError, match=r"bootstrap\.servers"):
        canonical_bootstrap_servers([(NO_NAME, 1)])
