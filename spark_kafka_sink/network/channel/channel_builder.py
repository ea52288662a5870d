"""Creates the transport layer and the authenticator of a connection (Java's ``ChannelBuilders``).

This module chooses their classes by ``security.protocol``. It also creates the TLS context and the
login from the options. The selector opens and uses the connections.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

from spark_kafka_sink.base.clock import Clock, SystemClock
from spark_kafka_sink.network.auth.authenticator import (
    Authenticator,
    PlaintextAuthenticator,
    SaslAuthenticator,
)
from spark_kafka_sink.network.channel.kafka_channel import KafkaChannel
from spark_kafka_sink.network.frame_reader import FrameReader
from spark_kafka_sink.network.transport_layer import PlaintextTransportLayer, TransportLayer

if TYPE_CHECKING:
    import ssl

    from spark_kafka_sink.network.auth.login import Login


class ChannelBuilder:
    """Creates a ``KafkaChannel`` for each connection, and holds the objects that all connections of
    a client share. The modules for TLS and SASL are imported only if they are needed.

    * ``context()`` returns the TLS context for a new connection. Without TLS, ``context`` is None.
    * ``login``: the source of SASL credentials. Without SASL, it is None.
    """

    __slots__ = ("_client_id", "_context", "_login")

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext] | None = None,
        login: Login | None = None,
        client_id: str | None = None,
    ) -> None:
        self._context = context
        self._login = login
        self._client_id = client_id

    @classmethod
    def of(
        cls,
        security_protocol: str,
        options: Mapping[str, object],
        client_id: str | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """Creates the builder for a value of ``security.protocol``. ``options`` are the options
        that begin with ``ssl.`` and ``sasl.``.

        Raises ConfigError for invalid options, or if a required package is not installed.
        """
        protocol = security_protocol.upper()
        context = login = None
        if protocol.endswith("SSL"):
            from spark_kafka_sink.network.tls.renewed_context import RenewedContext

            context = RenewedContext(options)
        if protocol.startswith("SASL_"):
            from spark_kafka_sink.config.logins.sasl_settings import sasl_settings
            from spark_kafka_sink.network.auth.login_factory import new_login

            login = new_login(sasl_settings(options), clock or SystemClock())
        return cls(context, login, client_id)

    def build_channel(
        self, node_id: int, host: str, remote: str, sock: socket.socket
    ) -> KafkaChannel:
        """Creates the channel for a connection to the node ``node_id``. ``sock`` is the socket,
        which is not connected yet. ``host`` is the broker's advertised name. The broker's
        certificate must contain this name. ``remote`` is the broker's address as a text for error
        and log messages.
        """
        transport: TransportLayer
        if self._context is None:
            transport = PlaintextTransportLayer(sock)
        else:
            from spark_kafka_sink.network.tls.ssl_transport_layer import SslTransportLayer

            transport = SslTransportLayer(sock, self._context(), host, remote)
        authenticator: Authenticator = PlaintextAuthenticator()
        if self._login is not None:
            from spark_kafka_sink.network.auth.sasl_authenticator import SaslClientAuthenticator

            encrypted = self._context is not None
            machine = SaslClientAuthenticator(remote, self._client_id, encrypted=encrypted)
            authenticator = SaslAuthenticator(machine, self._login, host, transport)
        return KafkaChannel(node_id, remote, transport, authenticator, FrameReader())

    def attach(self, wakeup: Callable[[], None]) -> None:
        """Sets the function that the login calls when a credential has been fetched, so that a
        waiting channel can continue. The login may call ``wakeup`` on any thread.
        """
        if self._login is not None:
            self._login.attach(wakeup)

    def close(self) -> None:
        if self._login is not None:
            self._login.close()
