"""Resolves host names to IP addresses (Java's ``HostResolver`` and ``ClientUtils.resolve``).

A lookup blocks. A caller that must not block runs the lookup on another thread
(``lookup_threads.py``). In Java, the sender thread itself waits for the lookup.
``cluster_connection_states.py`` chooses the order in which addresses are tried.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, warn

_log = logging.getLogger(__name__)

#: The value of client.dns.lookup with which canonical names are used.
CANONICAL: Final = "resolve_canonical_bootstrap_servers_only"

#: A function that returns the addresses of a host name, the best address first. It raises
#: BlockingIOError if the addresses are not known yet, and another OSError if the host name has no
#: address.
HostResolver = Callable[[str], list[str]]


def numeric(host: str) -> list[str]:
    """Returns ``[host]`` if ``host`` is an IP address, which needs no lookup. Returns an empty list
    if ``host`` is a name.
    """
    try:
        return resolve_host(host, socket.AI_NUMERICHOST)
    except OSError:
        return []


def resolve_host(host: str, flags: int = 0) -> list[str]:
    """All IP addresses of ``host``, without duplicates. IPv4 addresses come first. Within IPv4 and
    IPv6, the order is that of the operating system.

    A link-local address contains its zone as a number (``fe80::1%2``, RFC 4007). Raises OSError for
    an invalid or unknown name.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError:
        raise OSError("not a host name") from None
    # IPv4 comes first as in Java (java.net.preferIPv6Addresses=false), because a broker on
    # "localhost" often listens on IPv4 only. Java's default client uses no IPv6 address if there is
    # an IPv4 address. Here both kinds of addresses are tried.
    addresses = [
        _with_zone(info[4])
        for family in (socket.AF_INET, socket.AF_INET6)
        for info in found
        if info[0] == family
    ]
    if not addresses:
        raise OSError(f"{host} has no IP address")
    return list(dict.fromkeys(addresses))


def _with_zone(address: tuple[object, ...]) -> str:
    """The IP address of ``address``, a result of ``socket.getaddrinfo``, as a text. For an IPv6
    address with a zone, the text contains the zone.
    """
    zone = address[3] if len(address) > 3 else 0
    return f"{address[0]}%{zone}" if zone else str(address[0])


def bootstrap_addresses(
    servers: Iterable[tuple[str, int]],
    lookup: str,
    *,
    resolve: HostResolver = resolve_host,
    canonical_name: Callable[[str], str] = socket.getfqdn,
) -> tuple[tuple[str, int], ...]:
    """The bootstrap servers to which a client connects (Java's
    ``ClientUtils.parseAndValidateAddresses``). They depend on ``lookup``, the value of
    client.dns.lookup:

    * ``use_all_dns_ips``: the servers are returned unchanged. The client resolves their names when
      it connects. A name that is unknown now may be known then.
    * ``resolve_canonical_bootstrap_servers_only``: each IP address of a host becomes one server.
      Its name is the canonical name of the address, as Kerberos needs it. If this name does not
      resolve to the address, the server has the IP address as its name. A host that can't be
      resolved is left out.

    Hosts that can't be resolved are logged as warnings. Raises ConfigError if no server can be
    resolved. The error's hint has the reason for each host.
    """
    servers = tuple(servers)
    failures: dict[str, str] = {}
    if lookup == CANONICAL:
        found = tuple(_canonical_servers(servers, resolve, canonical_name, failures))
    else:
        # One is enough: more lookups would only make the constructor slower.
        found = servers if any(_resolves(host, resolve, failures) for host, _ in servers) else ()
    if not found:
        raise ConfigError(
            "No resolvable bootstrap urls given in bootstrap.servers",
            hint="; ".join(f"{host}: {reason}" for host, reason in failures.items()),
            kind=Kind.UNRESOLVED_ADDRESS,
        )
    for host, reason in failures.items():
        warn(
            _log,
            Kind.UNRESOLVED_ADDRESS,
            "bootstrap server %s can't be resolved now: %s",
            host,
            reason,
        )
    return found


def _canonical_servers(
    servers: tuple[tuple[str, int], ...],
    resolve: HostResolver,
    canonical_name: Callable[[str], str],
    failures: dict[str, str],
) -> dict[tuple[str, int], None]:
    found: dict[tuple[str, int], None] = {}
    for host, port in servers:
        try:
            addresses = resolve(host)
        except OSError as error:
            failures[host] = _reason(error)
            continue
        for address in addresses:
            found[_confirmed(canonical_name(address), address, resolve), port] = None
    return found


def _confirmed(name: str, address: str, resolve: HostResolver) -> str:
    """Returns ``name`` if it resolves to the IP address ``address``. Otherwise returns
    ``address``.
    """
    try:
        # A canonical name comes from the reverse DNS zone. The owner of this zone could enter any
        # name, and TLS would then verify the wrong name. InetAddress.getCanonicalHostName also
        # checks the name.
        return name if address in resolve(name) else address
    except OSError:
        return address


def _resolves(host: str, resolve: HostResolver, failures: dict[str, str]) -> bool:
    try:
        resolve(host)
    except OSError as error:
        failures[host] = _reason(error)
        return False
    return True


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
