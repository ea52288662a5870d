"""The configuration of one producer: the checked, effective value of every producer option.

Owns: the value :class:`ProducerConfig`. Never: how it is made from options (``parsing``), a
log line, a clock, an environment variable. Warnings are in ``warnings``; the caller of the parser
logs them once (``errors.warn_once``).

A task unpickles the driver's parsed values, so it need not import the modules that parse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_kafka_sink.config.option import OptionValue


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The whole effective configuration of one producer.

    An attribute is Java's name with ``_`` for ``.``. Times are integer milliseconds, and sizes are
    bytes. Consequences of other options are already applied:

    * ``enable_idempotence`` is false if acks or retries rule idempotence out.
    * ``delivery_timeout_ms`` is at least the sum of linger and request timeout.
    * ``batch_size`` is at least 1 and at most ``buffer_memory``.
    * ``reconnect_backoff_max_ms`` equals the base if the user has set only the base.
    * ``connections_max_idle_ms`` is 2**63-1 if idle connections are never closed.

    Configurations with the same options compare as equal and have the same hash, without regard to
    ``warnings``. So a warm producer can be found by its configuration. ``security`` holds the
    ``sasl.`` and ``ssl.`` options that were set, sorted by name. Secrets in it have the type
    Password.
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    acks: int
    enable_idempotence: bool
    retries: int
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_block_ms: int
    #: The wait for room in buffer.memory: max.block.ms if it was set, else delivery.timeout.ms.
    buffer_wait_ms: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    #: "rebootstrap" or "none".
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    connections_max_idle_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    client_dns_lookup: str
    #: Empty when none was given; the producer then makes one up, as Java's does.
    client_id: str
    client_rack: str
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    #: None: the built-in partitioner; else a name of ``records.partitioning.partitioners``, or
    #: an import path.
    partitioner_class: str | None
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_rack_aware: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    #: Not an option of the producer: the sink's maxLeadersPerTask. None: no limit.
    max_leaders_per_task: int | None = field(default=None, kw_only=True)
    metrics_sample_window_ms: int
    metrics_num_samples: int
    #: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, in upper case.
    security_protocol: str
    #: Names or import paths, for ``send`` only; None: bytes and text.
    key_serializer: str | None = None
    value_serializer: str | None = None
    #: Import paths.
    interceptor_classes: tuple[str, ...] = ()
    security: tuple[tuple[str, OptionValue], ...] = ()
    warnings: tuple[str, ...] = field(default=(), compare=False, repr=False)
