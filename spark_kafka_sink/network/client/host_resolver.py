"""Resolves host names to addresses (Java's ``HostResolver`` and ``ClientUtils.resolve``).

Owns: the name lookups of clients. Lookups block; callers that must not block use a thread
(``lookup_threads.py``), unlike Java, whose sender waits for the resolver. Never: the order in which
addresses are tried (``cluster_connection_states.py``).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, warn

_log = logging.getLogger(__name__)

#: The value of client.dns.lookup that asks for canonical names.
CANONICAL: Final = "resolve_canonical_bootstrap_servers_only"

#: A host name to its addresses, best first. Raises OSError when there are none, of which
#: BlockingIOError is for now only.
HostResolver = Callable[[str], list[str]]


def numeric(host: str) -> list[str]:
    """A list with ``host`` if it is a numeric address, which needs no lookup. Empty if it is a
    name.
    """
    try:
        return resolve_host(host, socket.AI_NUMERICHOST)
    except OSError:
        return []


def resolve_host(host: str, flags: int = 0) -> list[str]:
    """Every address of ``host``, without duplicates, IPv4 first.

    The order within a family is the resolver's. IPv4 comes first, as in a JVM by default
    (``java.net.preferIPv6Addresses=false``), because a broker on "localhost" often listens on IPv4
    only. Unlike Java, IPv6 addresses are also tried. A link-local address has its zone as a number
    (``fe80::1%2``, RFC 4007). Raises OSError for an invalid or unknown name.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError:
        raise OSError("not a host name") from None
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
    """The address as text with its zone. (Python returns the zone of an IPv6 address
    separately.)
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
    """The bootstrap servers of a client (Java's ``ClientUtils.parseAndValidateAddresses``).

    ``lookup`` is client.dns.lookup. With ``use_all_dns_ips`` the servers are returned unchanged.
    Their addresses are resolved when a connection is made, so a name that is unknown now may be
    known later.

    With ``resolve_canonical_bootstrap_servers_only`` each address of a host becomes a separate
    server. The name of this server is the canonical name, which Kerberos tickets use. If the
    canonical name does not resolve back to the address, it is the IP
    (``InetAddress.getCanonicalHostName``). Otherwise the owner of the reverse zone could choose the
    name that TLS verifies. Unresolvable hosts are skipped with a warning.

    Raises ConfigError if no server can be resolved. Its hint has the reason for each host.
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
    """``name`` if it resolves to ``address``, otherwise ``address``."""
    try:
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
