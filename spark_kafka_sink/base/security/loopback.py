"""Which hosts are this machine. Owns: :func:`is_loopback`. Never: a look-up of a name."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether ``host`` (a lower-case name or an address without brackets) is this machine without
    DNS: what is sent there can't be read on a network, and needs no proxy.
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
