"""Creates the transport layer and authenticator of a connection (Java's ``ChannelBuilders``).

Owns: the choice by ``security.protocol``, and applying a mechanism's settings. Never: an open
connection. Callers do not depend on the builder in use.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Protocol

from spark_kafka_sink.clock import Clock, SystemClock
from spark_kafka_sink.config.sasl_settings import sasl_settings
from spark_kafka_sink.network.auth.authenticator import PlaintextAuthenticator, SaslAuthenticator
from spark_kafka_sink.network.auth.login import Login
from spark_kafka_sink.network.auth.login_factory import new_login
from spark_kafka_sink.network.auth.sasl_authenticator import SaslClientAuthenticator
from spark_kafka_sink.network.channel.kafka_channel import KafkaChannel
from spark_kafka_sink.network.frame_reader import FrameReader
from spark_kafka_sink.network.tls.ssl_context import ssl_context
from spark_kafka_sink.network.tls.ssl_transport_layer import SslTransportLayer
from spark_kafka_sink.network.transport_layer import PlaintextTransportLayer, TransportLayer


class ChannelBuilder(Protocol):
    """Creates the channel of a connection; holds the state shared by connections (TLS context)."""

    def build_channel(
        self, node_id: int, host: str, remote: str, sock: socket.socket
    ) -> KafkaChannel:
        """``host`` is the advertised name, which a certificate must carry; ``sock`` connects."""
        ...

    def attach(self, wakeup: Callable[[], None]) -> None:
        """Set the wakeup (called from any thread) for when a channel can continue."""
        ...

    def close(self) -> None: ...


class PlaintextChannelBuilder:
    """Unencrypted, without client authentication."""

    __slots__ = ()

    def build_channel(
        self, node_id: int, host: str, remote: str, sock: socket.socket
    ) -> KafkaChannel:
        del host
        return KafkaChannel(
            node_id, remote, PlaintextTransportLayer(sock), PlaintextAuthenticator(), FrameReader()
        )

    def attach(self, wakeup: Callable[[], None]) -> None:
        """Unused: these channels never wait for a credential."""

    def close(self) -> None:
        """Nothing is shared."""


class SslChannelBuilder:
    """TLS, with client authentication only by certificate."""

    __slots__ = ("_context",)

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    def build_channel(
        self, node_id: int, host: str, remote: str, sock: socket.socket
    ) -> KafkaChannel:
        transport = SslTransportLayer(sock, self._context, host, remote)
        return KafkaChannel(node_id, remote, transport, PlaintextAuthenticator(), FrameReader())

    def attach(self, wakeup: Callable[[], None]) -> None:
        """Unused: these channels never wait for a credential."""

    def close(self) -> None:
        """The shared TLS context needs no close."""


class SaslChannelBuilder:
    """SASL over TLS, or unencrypted without a ``context``."""

    __slots__ = ("_client_id", "_context", "_login")

    def __init__(self, login: Login, context: ssl.SSLContext | None, client_id: str | None) -> None:
        self._login = login
        self._context = context
        self._client_id = client_id

    def build_channel(
        self, node_id: int, host: str, remote: str, sock: socket.socket
    ) -> KafkaChannel:
        transport: TransportLayer = (
            PlaintextTransportLayer(sock)
            if self._context is None
            else SslTransportLayer(sock, self._context, host, remote)
        )
        machine = SaslClientAuthenticator(
            remote, self._client_id, encrypted=self._context is not None
        )
        authenticator = SaslAuthenticator(machine, self._login, host, transport)
        return KafkaChannel(node_id, remote, transport, authenticator, FrameReader())

    def attach(self, wakeup: Callable[[], None]) -> None:
        self._login.attach(wakeup)

    def close(self) -> None:
        self._login.close()


def channel_builder(
    security_protocol: str,
    options: Mapping[str, object],
    client_id: str | None = None,
    clock: Clock | None = None,
) -> ChannelBuilder:
    """The builder for ``security.protocol``; ``options`` are the ``ssl.`` and ``sasl.`` ones set.

    ConfigError for invalid options, or for a required package that is not installed.
    """
    protocol = security_protocol.upper()
    context = ssl_context(options) if protocol.endswith("SSL") else None
    if protocol.startswith("SASL_"):
        login = new_login(sasl_settings(options), clock or SystemClock())
        return SaslChannelBuilder(login, context, client_id)
    return PlaintextChannelBuilder() if context is None else SslChannelBuilder(context)
