"""Which transport layer and authenticator a connection gets (Java's ``ChannelBuilders``).

Owns: the choice by ``security.protocol``. Never: an open connection. TLS and SASL get builders of
their own here; nothing above this file knows which one is in use.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Protocol

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.network.authenticator import PlaintextAuthenticator
from spark_kafka_sink.network.frame_reader import FrameReader
from spark_kafka_sink.network.kafka_channel import KafkaChannel
from spark_kafka_sink.network.ssl_context import ssl_context
from spark_kafka_sink.network.ssl_transport_layer import SslTransportLayer
from spark_kafka_sink.network.transport_layer import PlaintextTransportLayer


class ChannelBuilder(Protocol):
    """Makes the channel of one connection; holds what its connections share (a TLS context)."""

    def build_channel(
        self, node_id: int, host: str, remote: str, sock: socket.socket
    ) -> KafkaChannel:
        """``host`` is the advertised name, which a certificate must carry; ``sock`` connects."""
        ...

    def close(self) -> None: ...


class PlaintextChannelBuilder:
    """Bytes as they are, and nobody asks who we are."""

    __slots__ = ()

    def build_channel(
        self, node_id: int, host: str, remote: str, sock: socket.socket
    ) -> KafkaChannel:
        del host
        return KafkaChannel(
            node_id, remote, PlaintextTransportLayer(sock), PlaintextAuthenticator(), FrameReader()
        )

    def close(self) -> None:
        """Nothing is shared."""


class SslChannelBuilder:
    """TLS, and nobody asks who we are but by our certificate."""

    __slots__ = ("_context",)

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    def build_channel(
        self, node_id: int, host: str, remote: str, sock: socket.socket
    ) -> KafkaChannel:
        transport = SslTransportLayer(sock, self._context, host, remote)
        return KafkaChannel(node_id, remote, transport, PlaintextAuthenticator(), FrameReader())

    def close(self) -> None:
        """Nothing is shared that has an end."""


def channel_builder(security_protocol: str, options: Mapping[str, object]) -> ChannelBuilder:
    """The builder for ``security.protocol``; ``options`` are the ``ssl.`` and ``sasl.`` ones set.

    ConfigError for a protocol that is not supported yet, or options that make no sense.
    """
    protocol = security_protocol.upper()
    if protocol == "PLAINTEXT":
        return PlaintextChannelBuilder()
    if protocol == "SSL":
        return SslChannelBuilder(ssl_context(options))
    raise ConfigError(
        f"security.protocol={security_protocol} is not supported yet",
        hint="PLAINTEXT and SSL are; use a listener of the brokers that offers one of them",
    )
