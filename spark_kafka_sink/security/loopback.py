"""Which hosts are this machine. Owns: :func:`is_loopback`. Never: a look-up of a name."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """``host`` (a lower-cased name or an address without brackets) is this machine by itself,
    whatever DNS says: nobody on the way reads what is sent there, and no proxy is asked for it.
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
