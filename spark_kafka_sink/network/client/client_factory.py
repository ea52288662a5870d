"""Creates the network client of a producer from its options.

:func:`new_network_client` creates the client. :func:`with_bootstrap_addresses` looks up the
bootstrap servers. The meaning and the default of an option are in ``config/producer_config.py``.
"""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from typing import Final

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.security.secret_references import resolve
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.bounded_lookup import resolve_within
from spark_kafka_sink.network.channel.channel_builder import ChannelBuilder
from spark_kafka_sink.network.channel.selectable import Selectable, SelectorMetrics
from spark_kafka_sink.network.channel.selector import Selector
from spark_kafka_sink.network.client.host_resolver import (
    HostResolver,
    bootstrap_addresses,
    numeric,
    resolve_host,
)
from spark_kafka_sink.network.client.kafka_client import MetadataStore
from spark_kafka_sink.network.client.lookup_threads import LookupThreads
from spark_kafka_sink.network.client.network_client import NetworkClient

#: The maximum connection setup timeout in ms of :func:`impatient`. The timeout of a connection
#: attempt rises after each failure.
_SILENT_MS: Final = 3_000


def new_network_client(
    config: ProducerConfig,
    metadata: MetadataStore,
    clock: Clock,
    *,
    selector: Selectable | None = None,
    metrics: SelectorMetrics | None = None,
) -> NetworkClient:
    """Creates a network client. It uses sockets, or ``selector`` if that is given. (Tests have a
    selector with a simulated network.)

    References to secrets in the options for TLS and SASL are resolved here, because this process
    makes the connections. Raises ConfigError for a reference that can't be resolved, and for
    invalid options of TLS and SASL.
    """
    resolve_name: HostResolver = resolve_host
    if selector is None:
        selector = Selector(
            ChannelBuilder.of(
                config.security_protocol, resolve(dict(config.security)), config.client_id, clock
            ),
            clock,
            connections_max_idle_ms=config.connections_max_idle_ms,
            metrics=metrics,
        )
        resolve_name = LookupThreads(selector.wakeup)
    return NetworkClient(
        config, selector=selector, metadata=metadata, clock=clock, resolve=resolve_name
    )


def with_bootstrap_addresses(config: ProducerConfig) -> ProducerConfig:
    """Looks up the bootstrap servers of ``config``. Returns ``config`` with the servers to use,
    which depend on client.dns.lookup:

    * ``use_all_dns_ips``: the same servers.
    * ``resolve_canonical_bootstrap_servers_only``: servers with canonical names.

    Raises ConfigError if no server name can be resolved within max.block.ms.
    """
    deadline = time.monotonic() + config.max_block_ms / 1000

    def resolve(host: str) -> list[str]:
        return numeric(host) or resolve_within(deadline - time.monotonic(), host, resolve_host)

    def canonical_name(address: str) -> str:
        try:
            return resolve_within(deadline - time.monotonic(), address, socket.getfqdn)
        except OSError:
            return address

    servers = bootstrap_addresses(
        config.bootstrap_servers,
        config.client_dns_lookup,
        resolve=resolve,
        canonical_name=canonical_name,
    )
    return replace(config, bootstrap_servers=servers)


def impatient(config: ProducerConfig) -> ProducerConfig:
    """Returns ``config`` with a short connection setup timeout, for commands for which a user
    waits.

    If a broker process is stopped but not dead, the operating system still accepts TCP connections
    for it. With a short timeout, the client soon tries another broker.
    """
    within_ms = min(config.socket_connection_setup_timeout_ms, _SILENT_MS)
    return replace(config, socket_connection_setup_timeout_ms=within_ms)
