"""The proxy that the environment names for https.

Owns: the variables HTTPS_PROXY and NO_PROXY, which have the same meaning as for curl and Python.
Never: a connection.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security.addresses import is_loopback
from spark_kafka_sink.base.security.password import Password


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy that supports tunnels (CONNECT). ``credentials`` are ``name:password``."""

    host: str
    port: int
    credentials: Password | None = field(default=None)

    def headers(self) -> dict[str, str]:
        """The headers of the CONNECT request."""
        if self.credentials is None:
            return {}
        basic = base64.b64encode(self.credentials.value.encode()).decode()
        return {"Proxy-Authorization": f"Basic {basic}"}


def proxy_for(host: str) -> Proxy | None:
    """The proxy for requests to ``host``. None if the connection is to be direct, for example to
    this machine.

    Raises ConfigError for a proxy that is not an HTTP proxy. The error shows no part of the
    environment variable.
    """
    url = getproxies_environment().get("https", "")
    if not url or is_loopback(host) or proxy_bypass(host):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port:
        raise ConfigError(
            "HTTPS_PROXY, in the environment of this process, names no HTTP proxy",
            hint="a proxy's address looks like http://host:3128; the connection through the proxy"
            " is encrypted nevertheless. NO_PROXY lists the hosts that need no proxy",
            kind=Kind.TOKEN_SOURCE,
        )
    credentials = None
    if parts.username is not None:
        credentials = Password(f"{unquote(parts.username)}:{unquote(parts.password or '')}")
    return Proxy(parts.hostname, port, credentials)
