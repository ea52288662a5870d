"""Names to addresses, with the machine's own resolver and names that need no network."""

from __future__ import annotations

import socket

import pytest

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded
from spark_kafka_sink.network.client.host_resolver import (
    CANONICAL,
    bootstrap_addresses,
    resolve_host,
)

#: No resolver is asked for a label of more than 63 letters.
NO_NAME = "a" * 64 + ".example"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_an_address_resolves_to_itself(address: str) -> None:
    assert resolve_host(address) == [address]


def test_an_address_of_a_link_keeps_its_zone() -> None:
    number, name = socket.if_nameindex()[0]
    for zone in (name, str(number)):
        assert resolve_host(f"fe80::1%{zone}") == [f"fe80::1%{number}"]


def test_localhost_is_tried_over_ipv4_first() -> None:
    addresses = resolve_host("localhost")
    assert addresses[0] == "127.0.0.1"
    assert len(set(addresses)) == len(addresses)


def test_a_name_that_is_none_is_an_os_error() -> None:
    with pytest.raises(OSError, match="not a host name"):
        resolve_host(NO_NAME)


def test_a_name_with_addresses_of_another_kind_is_an_os_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **named: [])
    with pytest.raises(OSError, match=r"odd\.example has no IP address"):
        resolve_host("odd.example")


class Names:
    """A resolver and its reverse, out of two tables."""

    def __init__(self, addresses: dict[str, list[str]], canonical: dict[str, str]) -> None:
        self._addresses = addresses
        self._canonical = canonical
        self.asked: list[str] = []

    def resolve(self, host: str) -> list[str]:
        self.asked.append(host)
        if host not in self._addresses:
            raise OSError(-2, "Name or service not known")
        return self._addresses[host]

    def canonical_name(self, address: str) -> str:
        return self._canonical.get(address, address)


def begin_with(names: Names, lookup: str, *servers: tuple[str, int]) -> tuple[tuple[str, int], ...]:
    return bootstrap_addresses(
        servers, lookup, resolve=names.resolve, canonical_name=names.canonical_name
    )


USE_ALL = "use_all_dns_ips"


def test_canonical_bootstrap_servers_are_one_for_each_address() -> None:
    names = Names(
        {"kafka": ["10.0.0.1", "10.0.0.2", "10.0.0.3"], "b1.example": ["10.0.0.9", "10.0.0.1"]},
        {"10.0.0.1": "b1.example", "10.0.0.2": "gone.example"},
    )
    # One has a name; one a name that leads nowhere and one has none: these stay addresses.
    assert begin_with(names, CANONICAL, ("kafka", 9092), ("kafka", 9092), ("nobody", 1)) == (
        ("b1.example", 9092),
        ("10.0.0.2", 9092),
        ("10.0.0.3", 9092),
    )


def test_a_canonical_name_that_leads_elsewhere_is_not_believed() -> None:
    """The owner of the reverse zone chose the address and the name that TLS checks."""
    names = Names(
        {"kafka.corp": ["10.1.2.3"], "attacker.example": ["6.6.6.6"]},
        {"10.1.2.3": "attacker.example"},
    )
    assert begin_with(names, CANONICAL, ("kafka.corp", 9093)) == (("10.1.2.3", 9093),)


def test_canonical_names_come_from_the_machines_own_resolver() -> None:
    ((host, port),) = bootstrap_addresses([("127.0.0.1", 9092)], CANONICAL)
    assert resolve_host(host)
    assert port == 9092


def test_servers_stay_unchanged_when_one_of_them_resolves() -> None:
    names = Names({"b": ["10.0.0.2"]}, {})
    servers = (("a", 1), ("b", 2), ("c", 3))
    assert begin_with(names, USE_ALL, *servers) == servers
    assert names.asked == ["a", "b"]  # the first that is known is enough


@pytest.mark.parametrize("lookup", [USE_ALL, CANONICAL])
def test_an_error_lists_every_unresolvable_bootstrap_server(lookup: str) -> None:
    with pytest.raises(ConfigError, match=r"No resolvable bootstrap urls given in") as caught:
        bootstrap_addresses([(NO_NAME, 1), ("b" * 64 + ".example", 1)], lookup)
    assert caught.value.hint == f"{NO_NAME}: not a host name; {'b' * 64}.example: not a host name"


def test_a_server_that_is_unknown_now_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    begin_with(Names({"b": [""]}, {}), USE_ALL, ("a", 1), ("b", 2))
    assert caplog.messages == [
        coded(
            Kind.UNRESOLVED_ADDRESS,
            "bootstrap server a can't be resolved now: Name or service not known",
        )
    ]
