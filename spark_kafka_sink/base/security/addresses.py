"""Parses the addresses in options: addresses of brokers, of a schema registry, and of a token
endpoint.

This module also checks whether a host is this machine. It does not look up names or open
connections.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.base.security.password import REPLACE_IT, Password, Text, text_of


def is_loopback(host: str) -> bool:
    """True if ``host`` is this machine, such as ``localhost`` or ``127.0.0.1``. ``host`` is in
    lower case and without brackets. No DNS lookup is made.

    Data that is sent to this host does not leave the machine, and needs no proxy.
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def url_parts(text: str) -> SplitResult | None:
    """Splits a URL into its parts. Returns None if ``text`` is not a URL or has characters that are
    not ASCII.
    """
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return None
    return parts if all("!" <= c <= "~" for c in text) else None


def is_in_the_clear(parts: SplitResult) -> bool:
    """True if data for this URL is sent over a network without encryption."""
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def http_address(
    option: str,
    given: Text,
    hint: str,
    credentials: str,
    *,
    gets: str = "the client's secret",
    kind: Kind = Kind.TOKEN_SOURCE,
) -> SplitResult:
    """Parses ``given``, the value of the option ``option``, as an http or https URL. Returns the
    parts of the URL.

    Raises ConfigError in these cases:

    * ``given`` is not such a URL. The error has the hint ``hint``.
    * The URL contains a user name or password. The hint names ``credentials``, the options for
      them.
    * A secret would be sent to the URL without encryption. ``gets`` describes this secret, for the
      message. It is empty if no secret is sent.

    The error contains at most the host of the URL.
    """
    parts = url_parts(text_of(given))
    if parts is None:
        what = "is not a URL: its port, or a character of it (a space, one not of ASCII), is wrong"
    elif parts.scheme not in ("http", "https") or not parts.hostname:
        what = "is not a URL of https: it does not begin with https:// and a host"
    elif "@" in parts.netloc:
        what, hint = "must not hold a name or password", f"they go to {credentials}; {REPLACE_IT}"
    elif gets and is_in_the_clear(parts):
        host = f"{given}" if isinstance(given, Password) else f"{parts.hostname}"
        what = f"is http, so {gets} would be sent in the clear to {safe_text(host)}"
        hint = "use https; http is for tests on this machine (localhost)"
    else:
        return parts
    raise ConfigError(f"{option} {what}", hint=hint, kind=kind)


#: Java's ``Utils.HOST_PORT_PATTERN``, with brackets and an IPv6 address belonging together.
_ADDRESS = re.compile(
    r"(?:(?P<scheme>[0-9a-zA-Z\-%._]*)://)?"
    r"(?:\[(?P<ipv6>[0-9a-zA-Z\-%._:]+)\]|(?P<host>[0-9a-zA-Z\-%._]+))"
    r":(?P<port>[0-9]+)"
)
_SECURE_SCHEMES = frozenset({"SSL", "SASL_SSL", "SASL_PLAINTEXT"})


def parse_bootstrap_servers(
    items: Sequence[str], protocol: str, prefix: str
) -> tuple[tuple[str, int], ...]:
    """Parses bootstrap servers such as ``["broker1:9092"]`` to pairs such as ``("broker1", 9092)``.
    The order is kept, and duplicates are removed (Java's
    ``ClientUtils.parseAndValidateAddresses``).

    Raises ConfigError for an invalid item. Some items are an error here, but not in Java:

    * the port 0, or an empty host
    * an IPv6 address without brackets
    * a scheme such as ``SSL://`` or ``https://`` that differs from ``protocol``

    In hints, ``prefix`` is put before the names of options.
    """
    option = f"{prefix}bootstrap.servers"
    if not items:
        raise ConfigError(
            "Configuration 'bootstrap.servers' must not be empty. Valid values include: any"
            " non-empty value",
            hint=f"set {option} to host:port,host:port",
            kind=Kind.MISSING_BOOTSTRAP,
        )
    if "" in items:
        raise ConfigError(
            "Configuration 'bootstrap.servers' values must not be empty.",
            hint=f"item {list(items).index('') + 1} of {len(items)} in {option} is empty: remove"
            " the extra comma",
            kind=Kind.BOOTSTRAP_ADDRESS,
        )
    if any("@" in item for item in items):
        raise ConfigError(
            "bootstrap.servers holds a name or password (user:password@host), and is not shown",
            hint=f"an address is host:port; a name goes to {prefix}sasl.username, a password to"
            f" {prefix}sasl.password; {REPLACE_IT}",
            kind=Kind.BOOTSTRAP_ADDRESS,
        )
    return tuple(dict.fromkeys(_parse(item, protocol, prefix) for item in items))


def _parse(item: str, protocol: str, prefix: str) -> tuple[str, int]:
    shown = safe_text(item)
    match = _ADDRESS.fullmatch(item)
    if match is None:
        raise ConfigError(
            f"Invalid url in bootstrap.servers: {shown}",
            hint=_hint(item),
            kind=Kind.BOOTSTRAP_ADDRESS,
        )
    # More than nine digits are no port, and int() need not read them.
    port = int(match["port"]) if len(match["port"]) < 10 else 0
    if not 0 < port < 65536:
        raise ConfigError(
            f"Invalid port in bootstrap.servers: {shown}",
            hint="a port is 1 to 65535",
            kind=Kind.BOOTSTRAP_ADDRESS,
        )
    if match["ipv6"] is not None:
        try:
            ipaddress.IPv6Address(match["ipv6"])
        except ValueError:
            raise ConfigError(
                f"Invalid url in bootstrap.servers: {shown}",
                hint="brackets enclose an IPv6 address, like [::1]:9092",
                kind=Kind.BOOTSTRAP_ADDRESS,
            ) from None
    scheme = (match["scheme"] or "").upper()
    encrypts = scheme.endswith(("SSL", "TLS", "HTTPS")) and "SSL" not in protocol
    if encrypts or (scheme in _SECURE_SCHEMES and scheme != protocol):
        raise ConfigError(
            f"bootstrap.servers has {shown}, but security.protocol is {protocol}",
            hint=f"the part before :// does not set the protocol; {prefix}security.protocol does",
            kind=Kind.BOOTSTRAP_ADDRESS,
        )
    return match["ipv6"] or match["host"], port


def _hint(item: str) -> str:
    if " " in item or ";" in item:
        return "addresses are separated by commas"
    if item.count(":") > 1 and "[" not in item and "/" not in item:
        return "an IPv6 address needs brackets, like [::1]:9092"
    if ":" not in item:
        return f"the port is missing: {safe_text(item)}:9092?"
    return "an address is host:port"
