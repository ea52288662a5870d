"""Which transport layer and authenticator a connection gets (Java's ``ChannelBuilders``).

Owns: the choice by ``security.protocol``. Never: an open connection. TLS and SASL get builders of
their own here; nothing above this file knows which one is in use.
"""

from __future__ import annotations

import socket
from typing import Protocol

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.network.authenticator import PlaintextAuthenticator
from spark_kafka_sink.network.frame_reader import FrameReader
from spark_kafka_sink.network.kafka_channel import KafkaChannel
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


def channel_builder(security_protocol: str) -> ChannelBuilder:
    """The builder for ``security.protocol``; ConfigError for one that is not supported yet."""
    if security_protocol.upper() == "PLAINTEXT":
        return PlaintextChannelBuilder()
    raise ConfigError(
        f"security.protocol={security_protocol} is not supported yet",
        hint="PLAINTEXT is; use a listener of the brokers that offers it",
    )
