"""Host names to addresses (Java's ``HostResolver`` and ``ClientUtils.resolve``).

Owns: the only name look-ups of the package. Never: which address is tried when
(``cluster_connection_states.py``). A look-up blocks the sender's thread, as it does in Java.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

#: A host name to its addresses, best first. Raises OSError when there are none.
HostResolver = Callable[[str], list[str]]


def resolve_host(host: str) -> list[str]:
    """Every address of ``host``, without doubles, IPv4 first.

    The order within a family is the resolver's. IPv4 goes first because the JVM's default does
    so (``java.net.preferIPv6Addresses=false``), and "localhost" is often an IPv4 listener only;
    unlike Java, the other family is tried after it. OSError when the name is none or is unknown.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError("not a host name") from None
    addresses = [
        str(info[4][0])
        for family in (socket.AF_INET, socket.AF_INET6)
        for info in found
        if info[0] == family
    ]
    if not addresses:
        raise OSError(f"{host} has no IP address")
    return list(dict.fromkeys(addresses))


def canonical_bootstrap_servers(
    servers: Iterable[tuple[str, int]],
) -> tuple[tuple[str, int], ...]:
    """``client.dns.lookup=resolve_canonical_bootstrap_servers_only``: one server for each address.

    Each is named by the canonical name of its address, or by the address where there is none. A
    server that can't be resolved is left out; OSError when none is left.
    """
    resolved: dict[tuple[str, int], None] = {}
    reason: OSError | None = None
    for host, port in servers:
        try:
            for address in resolve_host(host):
                resolved[(socket.getfqdn(address), port)] = None
        except OSError as error:
            reason = error
    if not resolved:
        raise OSError("no server of bootstrap.servers can be resolved") from reason
    return tuple(resolved)
