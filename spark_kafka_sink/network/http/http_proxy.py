"""Chooses the proxy for https connections from environment variables.

The variables are HTTPS_PROXY and NO_PROXY, with the same meaning as for curl and Python.
``http_exchange.py`` opens the connection.
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
    """An HTTP proxy that supports CONNECT. ``credentials`` is ``"name:password"`` or None."""

    host: str
    port: int
    credentials: Password | None = field(default=None)

    def headers(self) -> dict[str, str]:
        """The HTTP headers of the CONNECT request, with the proxy's credentials."""
        if self.credentials is None:
            return {}
        basic = base64.b64encode(self.credentials.value.encode()).decode()
        return {"Proxy-Authorization": f"Basic {basic}"}


def proxy_for(host: str) -> Proxy | None:
    """Returns the proxy for a connection to ``host``. Returns None if no proxy is to be used, for
    example for a host on this machine.

    Raises ConfigError if HTTPS_PROXY does not name an HTTP proxy. The error does not contain the
    value of HTTPS_PROXY, which may have a password.
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
