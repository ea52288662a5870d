"""The configuration of one producer: the effective values of all producer options, after all
checks.

``parsing`` creates a :class:`ProducerConfig`. The caller of ``parsing`` logs the ``warnings`` of
the configuration once. Tasks unpickle the configuration, so they do not import ``parsing``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_kafka_sink.config.option import OptionValue


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The configuration of one producer.

    The field for ``batch.size`` is ``batch_size``, and so on. Times are in milliseconds, and sizes
    in bytes, as integers. These effects of other options are already applied:

    * ``enable_idempotence`` is false if acks or retries make idempotence impossible.
    * ``delivery_timeout_ms`` is at least linger.ms + request.timeout.ms.
    * ``batch_size`` is at least 1 and at most ``buffer_memory``.
    * ``reconnect_backoff_max_ms`` equals ``reconnect_backoff_ms`` if the user has set only
      ``reconnect.backoff.ms``.
    * ``connections_max_idle_ms`` is 2**63-1 if idle connections are never closed.

    Two configurations are equal, and have the same hash, if all fields except ``warnings`` are
    equal. So a Python worker of Spark finds the producer of an earlier task by its configuration.
    ``security`` has the ``sasl.`` and ``ssl.`` options that the user has set, sorted by name. A
    secret in ``security`` has the type Password.
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    acks: int
    enable_idempotence: bool
    retries: int
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_block_ms: int
    #: The longest wait for room in buffer.memory: max.block.ms if the user has set this option,
    #: otherwise delivery.timeout.ms.
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
    #: Empty if the user has not set client.id. The producer then creates a client id, as Java's
    #: producer does.
    client_id: str
    client_rack: str
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    #: A name of ``records.partitioning.partitioners``, or an import path. None means the built-in
    #: partitioner.
    partitioner_class: str | None
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    partitioner_rack_aware: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    #: The sink's option maxLeadersPerTask, which is not an option of Kafka's producer. None means
    #: no limit.
    max_leaders_per_task: int | None = field(default=None, kw_only=True)
    metrics_sample_window_ms: int
    metrics_num_samples: int
    #: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, in upper case.
    security_protocol: str
    #: Names or import paths of serializers. Only ``send`` uses them. Without a serializer (None),
    #: keys and values must be bytes or text.
    key_serializer: str | None = None
    value_serializer: str | None = None
    #: Import paths of interceptors.
    interceptor_classes: tuple[str, ...] = ()
    security: tuple[tuple[str, OptionValue], ...] = ()
    warnings: tuple[str, ...] = field(default=(), compare=False, repr=False)
