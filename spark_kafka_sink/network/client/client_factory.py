"""Creates a network client from a producer's configuration.

Owns: :func:`new_network_client`, and the first lookup of the bootstrap servers. Never: an option's
meaning or default (``config/producer_config.py``).
"""

from __future__ import annotations

import re
from dataclasses import replace

from spark_kafka_sink import __version__
from spark_kafka_sink.clock import Clock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.secret_references import resolve
from spark_kafka_sink.network.channel.channel_builder import channel_builder
from spark_kafka_sink.network.channel.selectable import Selectable, SelectorMetrics
from spark_kafka_sink.network.channel.selector import Selector
from spark_kafka_sink.network.client.host_resolver import bootstrap_addresses
from spark_kafka_sink.network.client.kafka_client import MetadataStore
from spark_kafka_sink.network.client.network_client import NetworkClient, NetworkClientConfig


def new_network_client(
    config: ProducerConfig,
    metadata: MetadataStore,
    clock: Clock,
    *,
    selector: Selectable | None = None,
    metrics: SelectorMetrics | None = None,
) -> NetworkClient:
    """A client over real sockets, unless a ``selector`` is given (a simulated network's).

    Secret references are resolved here, in the process that connects. ConfigError when one can't
    be resolved, or for invalid security options.
    """
    if selector is None:
        selector = Selector(
            channel_builder(
                config.security_protocol, resolve(dict(config.security)), config.client_id, clock
            ),
            clock,
            connections_max_idle_ms=config.connections_max_idle_ms,
            metrics=metrics,
        )
    return NetworkClient(
        NetworkClientConfig(
            client_id=config.client_id,
            max_in_flight_requests_per_connection=config.max_in_flight_requests_per_connection,
            request_timeout_ms=config.request_timeout_ms,
            reconnect_backoff_ms=config.reconnect_backoff_ms,
            reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
            socket_connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
            socket_connection_setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
            metadata_recovery_rebootstrap_trigger_ms=config.metadata_recovery_rebootstrap_trigger_ms,
            send_buffer_bytes=config.send_buffer_bytes,
            receive_buffer_bytes=config.receive_buffer_bytes,
            software_version=_software_version(),
        ),
        selector=selector,
        metadata=metadata,
        clock=clock,
    )


def with_bootstrap_addresses(config: ProducerConfig) -> ProducerConfig:
    """``config`` with the bootstrap servers resolved according to client.dns.lookup.

    ConfigError when none of them can be resolved.
    """
    servers = bootstrap_addresses(config.bootstrap_servers, config.client_dns_lookup)
    return replace(config, bootstrap_servers=servers)


def _software_version() -> str:
    """The version in KIP-511's form: letters, digits, dots and dashes, starting and ending with a
    letter or digit.
    """
    return re.sub(r"[^a-zA-Z0-9.-]", "-", __version__).strip(".-") or "0"
