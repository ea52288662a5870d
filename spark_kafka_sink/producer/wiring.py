"""Creates the components of a producer, in the order of their dependencies.

:class:`ProducerOptions` has the checked options of a ``KafkaProducer``, and its serializer and
interceptor objects. :class:`ProducerParts` creates the components, such as the accumulator and the
sender, and passes to each component the other components that it uses.
``config/producer_config.py`` describes the options.
"""

from __future__ import annotations

import itertools
import logging
import random as _random
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import warn_once
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client.kafka_client import KafkaClient
from spark_kafka_sink.network.client.metadata import Metadata
from spark_kafka_sink.producer.accumulator.batch_drainer import BatchDrainer
from spark_kafka_sink.producer.accumulator.batch_filler import BatchFiller
from spark_kafka_sink.producer.accumulator.batch_returns import BatchReturns
from spark_kafka_sink.producer.accumulator.partition_load import PartitionLoad
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.column_appender import ColumnAppender, WaitingForInput
from spark_kafka_sink.producer.interceptors import OPTION as INTERCEPTORS
from spark_kafka_sink.producer.interceptors import Interceptors, close_plugin, configure_plugin
from spark_kafka_sink.producer.lifecycle import Lifecycle, NetworkLink, StartThread
from spark_kafka_sink.producer.metrics.produce_recorder import ProduceRecorder
from spark_kafka_sink.producer.metrics.producer_metrics import Gauge, Measurement, ProducerMetrics
from spark_kafka_sink.producer.metrics.sensors import Windows
from spark_kafka_sink.producer.send.record_appender import RecordAppender, RecordFiller
from spark_kafka_sink.producer.send.record_partitioner import ColumnsPartitioner, RecordPartitioner
from spark_kafka_sink.producer.send.serialization import Serializer, serializer
from spark_kafka_sink.producer.sender.sender import Sender
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.records.partitioning.key_rules import JAVA_RULE, key_rule
from spark_kafka_sink.records.partitioning.own_partitioner import OwnPartitioner
from spark_kafka_sink.records.partitioning.partitioners import Partitioner, all_alike, partitioner

_log = logging.getLogger(__name__)

_KEY, _VALUE = "key.serializer", "value.serializer"

#: The numbers in the names of producers without client.id. As in Java, the names in a process are
#: producer-1, producer-2, and so on.
_numbers = itertools.count(1)

NewClient = Callable[[ProducerConfig, Metadata, Clock], KafkaClient]


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """The checked options of a producer, with its serializers and interceptors as objects.

    ``serializers`` has the serializer of keys and the serializer of values. ``interceptors`` is
    None if the producer has no interceptors.
    """

    config: ProducerConfig
    serializers: tuple[Serializer, Serializer]
    interceptors: Interceptors | None

    @classmethod
    def of(cls, given: ProducerConfig | Mapping[str, object]) -> ProducerOptions:
        """Creates the options of a producer from ``given``. A mapping is checked, and its warnings
        are logged. A ProducerConfig was checked earlier, and is used unchanged.

        Also creates the serializers and interceptors, and calls their ``configure``. If one of
        these steps fails, the serializers and interceptors that were already created are closed.
        Raises ConfigError for invalid options.
        """
        objects: dict[str, object] = {}
        if isinstance(given, ProducerConfig):
            config = given
        else:
            texts: dict[str, object] = {}
            for name, value in given.items():
                key = name.lower()
                is_object = (key in (_KEY, _VALUE) and not isinstance(value, str)) or (
                    key == INTERCEPTORS and _has_objects(value)
                )
                (objects if is_object else texts)[key if is_object else name] = value
            # Tasks have a config, and need none of the modules that parse.
            from spark_kafka_sink.config.parsing import parse_producer_config

            config = parse_producer_config(texts)
            warn_once(_log, config.warnings)
        named = objects.get(INTERCEPTORS)
        with ExitStack() as undo:
            interceptors = Interceptors.of(
                config.interceptor_classes if named is None else _listed(named)
            )
            if interceptors is not None:
                undo.callback(interceptors.close)
                interceptors.configure(config)
            serializers = (
                _serializer(objects.get(_KEY, config.key_serializer), _KEY, config, undo),
                _serializer(objects.get(_VALUE, config.value_serializer), _VALUE, config, undo),
            )
            undo.pop_all()
        return cls(config, serializers, interceptors)


def _serializer(given: object, option: str, config: ProducerConfig, undo: ExitStack) -> Serializer:
    """Returns the serializer object for ``option``, which is key.serializer or value.serializer.
    ``given`` is the value of the option: a serializer object, a class, a name or None.

    A serializer object is used unchanged, as in Java. For any other value, this function creates or
    imports the serializer, and calls its ``configure(configs, is_key)``. ``undo`` closes the
    serializer if the producer can't be created.
    """
    made = serializer(given, option)
    undo.callback(close_plugin, made, "serializer")
    if made is not given:
        configure_plugin(made, option, config, option == _KEY)
    return made


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _has_objects(value: object) -> bool:
    return not all(isinstance(one, str) for one in _listed(value))


class ProducerParts:
    """Creates and holds all components of a producer. If a component can't be created, the network
    client and the user's interceptors, serializers and partitioners are closed.
    """

    def __init__(
        self,
        options: ProducerOptions,
        cluster: Cluster | None,
        clock: Clock,
        client: KafkaClient | None,
        new_client: NewClient | None,
        start_thread: StartThread,
        random: Callable[[], float] = _random.random,
    ) -> None:
        """Creates the components, and starts the network thread.

        * ``cluster``: metadata that is already known, or None.
        * ``client``: an existing network client, or None.
        * ``new_client``: a function that creates the network client, or None. If both ``client``
          and ``new_client`` are None, a client that uses sockets is created.
        * ``start_thread``: ``start_thread(run, name)`` starts the network thread.
        * ``random``: returns numbers from 0 to 1, for the random part of the retry backoffs of
          metadata and batches.
        """
        self.interceptors = options.interceptors
        self._plugins: list[tuple[object, str]] = [
            (one, "serializer") for one in options.serializers
        ]
        self.clock = clock
        self.lifecycle = Lifecycle()
        self.link = NetworkLink()
        self._client = client
        self._random = random
        config = options.config
        if not config.client_id:
            name = next(_numbers) if config.transactional_id is None else config.transactional_id
            config = replace(config, client_id=f"producer-{name}")
        try:
            if client is None and new_client is None:
                config = _with_bootstrap_addresses(config, cluster)
            self.config = config
            self._make_stores(cluster)
            self._make_accumulator()
            self._make_appenders(options.serializers)
            self._make_sender(new_client)
            self.thread = start_thread(
                self.sender.run, f"kafka-producer-network-thread | {config.client_id}"
            )
        except BaseException:
            # Interceptors may hold files and connections, too.
            if self._client is not None:
                self._client.close()
            self.close_plugins()
            raise

    def wakeup(self) -> None:
        """Ends the current poll of the network thread. Thread-safe."""
        self.link.wakeup()

    @property
    def appended_records(self) -> int:
        """The number of rows and single records that were added to batches so far."""
        return self.filler.appended_records + self._record_filler.appended_records

    def _make_stores(self, cluster: Cluster | None) -> None:
        """Creates three components that the other components use: the metrics, the metadata and the
        BufferPool.
        """
        config, clock = self.config, self.clock
        self.metrics = ProducerMetrics(
            clock,
            client_id=config.client_id,
            windows=Windows(config.metrics_sample_window_ms, config.metrics_num_samples),
        )
        self.metadata = Metadata(
            config,
            clock,
            cluster,
            wakeup=self.link.wakeup,
            connection_failures=self.link.connection_failures,
            on_wait=partial(self.metrics.record, Measurement.METADATA_WAIT),
            random=self._random,
        )
        if self.interceptors is not None:
            for listener in self.interceptors.cluster_listeners:
                self.metadata.add_cluster_listener(listener)
        self.pool = BufferPool(config.buffer_memory, clock, self.metrics)

    def _make_accumulator(self) -> None:
        """Creates the transaction manager, the recorder of the counts, the accumulator, and the
        components that fill, drain and return batches.
        """
        config, clock = self.config, self.clock
        self.accumulator = RecordAccumulator(config, clock, self.lifecycle, self.pool)
        self.transaction_manager = (
            TransactionManager(
                self.lifecycle,
                self.accumulator.incomplete,
                self.link.wakeup,
                transactional_id=config.transactional_id,
                transaction_timeout_ms=config.transaction_timeout_ms,
                max_in_flight=config.max_in_flight_requests_per_connection,
            )
            if config.enable_idempotence
            else None
        )
        manager = self.transaction_manager
        self.transactional = manager if manager is not None and manager.is_transactional else None
        self.recorder = ProduceRecorder(
            clock,
            self.metrics,
            self.accumulator,
            self.interceptors,
            transactional=self.transactional is not None,
        )
        self.filler = BatchFiller(config, self.accumulator, self.recorder, self.link.wakeup)
        self._drainer = BatchDrainer(config, self.accumulator, self.filler, manager)
        self.returns = BatchReturns(
            config, self.accumulator, self.filler.limits, manager, random=self._random
        )
        self.load = PartitionLoad(config, lambda: self.metadata.cluster, self.accumulator, clock)

    def _make_appenders(self, serializers: tuple[Serializer, Serializer]) -> None:
        """Creates the components that add the rows of ``send_columns`` and the records of ``send``
        to batches.
        """
        config, wakeup = self.config, self.link.wakeup
        self.waiting = WaitingForInput(self.accumulator, self.clock, wakeup)
        self.columns = ColumnAppender(
            config,
            self.clock,
            self.metadata,
            self.filler,
            self.pool,
            self._new_partitioner(),
            self.transactional,
            self.recorder,
            wakeup,
        )
        self._record_filler = RecordFiller(
            config, self.clock, self.accumulator, self.filler, wakeup
        )
        self.records = RecordAppender(
            config,
            self.clock,
            self.metadata,
            self.lifecycle,
            self.pool,
            self._record_filler,
            self._new_record_partitioner(),
            self.transactional,
            self.interceptors,
            serializers,
            wakeup,
        )

    def _new_partitioner(self) -> Partitioner:
        config, load = self.config, self.load
        made = partitioner(
            config.partitioner_class,
            ignore_keys=config.partitioner_ignore_keys,
            candidates=load.candidates if load.matters else all_alike,
        )
        if isinstance(made, OwnPartitioner):
            self._plugins.append((made.own, "partitioner"))
            configure_plugin(made.own, "partitioner.class", config)
        return made

    def _new_record_partitioner(self) -> RecordPartitioner:
        config, load = self.config, self.load
        rule = key_rule(config.partitioner_class, ignore_keys=config.partitioner_ignore_keys)
        return RecordPartitioner(
            lambda: self.metadata.cluster,
            self.filler.limits.raw_limit,
            next_partition=load.next_partition if load.matters else None,
            own=None
            if rule is not None
            else ColumnsPartitioner(self._new_partitioner(), self.filler),
            rule=rule or JAVA_RULE,
        )

    def _make_sender(self, new_client: NewClient | None) -> None:
        """Creates the network client, and the sender that uses it."""
        client = self._client
        if client is None:
            if new_client is None:
                from spark_kafka_sink.network.client.client_factory import new_network_client

                new_client = partial(new_network_client, metrics=self.metrics)
            client = self._client = new_client(self.config, self.metadata, self.clock)
        self.link.connect(client)
        pool, metadata, metrics = self.pool, self.metadata, self.metrics
        metrics.gauge(Gauge.BUFFER_TOTAL, lambda _: pool.total)
        metrics.gauge(Gauge.BUFFER_AVAILABLE, lambda _: pool.available)
        metrics.gauge(Gauge.WAITING_THREADS, lambda _: pool.waiters)
        metrics.gauge(Gauge.METADATA_AGE, lambda now: (now - metadata.last_success_ms) / 1000)
        metrics.gauge(Gauge.REQUESTS_IN_FLIGHT, lambda _: client.in_flight_request_count())
        self.sender = Sender(
            client,
            self.link,
            metadata,
            self.accumulator,
            self._drainer,
            self.returns,
            self.load,
            self.transaction_manager,
            self.config,
            self.clock,
            self.recorder,
        )

    def close_plugins(self) -> None:
        """Closes the user's interceptors, serializers and partitioners."""
        if self.interceptors is not None:
            self.interceptors.close()
        for plugin, what in self._plugins:
            close_plugin(plugin, what)


def _with_bootstrap_addresses(config: ProducerConfig, cluster: Cluster | None) -> ProducerConfig:
    """Returns ``config`` with the bootstrap servers resolved to addresses. Raises ConfigError if no
    server name can be resolved.

    If ``cluster`` has brokers, ``config`` is returned unchanged. The only exception is
    client.dns.lookup=resolve_canonical_bootstrap_servers_only.
    """
    from spark_kafka_sink.network.client.client_factory import with_bootstrap_addresses
    from spark_kafka_sink.network.client.host_resolver import CANONICAL

    # So the tasks of a Spark write usually need no name resolution.
    if cluster is not None and cluster.nodes and config.client_dns_lookup != CANONICAL:
        return config
    return with_bootstrap_addresses(config)
