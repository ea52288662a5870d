"""Creates a network client from a producer's configuration.

Owns: :func:`new_network_client`, and the first lookup of the bootstrap servers. Never: an option's
meaning or default (``config/producer_config.py``).
"""

from __future__ import annotations

from dataclasses import replace

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.secret_references import resolve
from spark_kafka_sink.network.channel.channel_builder import ChannelBuilder
from spark_kafka_sink.network.channel.selectable import Selectable, SelectorMetrics
from spark_kafka_sink.network.channel.selector import Selector
from spark_kafka_sink.network.client.host_resolver import bootstrap_addresses
from spark_kafka_sink.network.client.kafka_client import MetadataStore
from spark_kafka_sink.network.client.network_client import NetworkClient


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
            ChannelBuilder.of(
                config.security_protocol, resolve(dict(config.security)), config.client_id, clock
            ),
            clock,
            connections_max_idle_ms=config.connections_max_idle_ms,
            metrics=metrics,
        )
    return NetworkClient(config, selector=selector, metadata=metadata, clock=clock)


def with_bootstrap_addresses(config: ProducerConfig) -> ProducerConfig:
    """``config`` with the bootstrap servers resolved according to client.dns.lookup.

    ConfigError when none of them can be resolved.
    """
    servers = bootstrap_addresses(config.bootstrap_servers, config.client_dns_lookup)
    return replace(config, bootstrap_servers=servers)
