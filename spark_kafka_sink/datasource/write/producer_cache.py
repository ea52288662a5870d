"""Keeps producers open between the tasks of one worker process (rule R4 of DESIGN.md).

A Spark worker process runs one task after the other. A *warm* producer is kept open after a task,
for a later task. It has open connections, a producer id and metadata, so a micro-batch does not
request them again. Rules:

- The key of the cache is the whole effective ProducerConfig. Two writes that differ in one option
  never share a producer. With exactly-once, the config contains the transactional id.
- A producer in use is not in the cache. :meth:`ProducerCache.keep` takes a producer back only if it
  can be used again.
- The cache keeps at most two idle producers with transactions, and two without.
- Without transactions, the producer that was idle for the longest time is closed first.
- With transactions, the producer with the greatest number in its transactional id is closed first,
  because tasks take the smallest numbers first.

There is no timer: Spark stops workers that are idle for a minute.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_kafka_sink.base.process_local import ProcessLocal
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.transactions.transactional_ids import TransactionalId, parse

if TYPE_CHECKING:
    from spark_kafka_sink.producer.kafka_producer import KafkaProducer

#: The largest number of idle producers of a process, counted separately with and without
#: transactions. With two, a stream that writes to two clusters keeps both producers.
CAPACITY = 2

#: The time limit in ms for closing a producer that the cache does not keep after its task. All its
#: rows are acknowledged.
CLOSE_MS = 1_000

ProducerFactory = Callable[[ProducerConfig, Cluster | None], "KafkaProducer"]


class ProducerCache:
    """The idle producers of a process, by config. Thread-safe."""

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        # The lock guards ``_idle``, and is not held while a producer is closed.
        self._idle: dict[ProducerConfig, KafkaProducer] = {}  # longest idle first

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, config: ProducerConfig) -> KafkaProducer | None:
        """Removes a warm producer with exactly this config from the cache, and returns it. The
        caller then owns the producer. Returns None if there is none, or if it has failed in the
        cache.

        Also closes the cached producers that no task will use again:

        - other producers with the same transactional id
        - producers of an earlier run of the same query or job
        """
        wanted = _id_of(config)
        with self._lock:
            found = self._idle.pop(config, None)
            useless = [c for c in self._idle if wanted is not None and _replaces(wanted, _id_of(c))]
            closing = [self._idle.pop(c) for c in useless]
        for old in closing:
            close(old, 0)  # at most DescribeTransactions is in flight, whose response nobody needs
        if found is None or found.reusable:
            return found
        close(found, 0)  # it failed while it was idle (its sender ended): it had no rows
        return None

    def keep(self, config: ProducerConfig, producer: KafkaProducer) -> None:
        """Takes ``producer`` back after a task. If the producer is reusable, keeps it for a later
        task. If not, closes it. Also closes another idle producer if there are too many. Never
        raises.
        """
        if not producer.reusable or not _park(producer):
            close(producer)
            return
        with self._lock:
            closing = [self._idle.pop(config)] if config in self._idle else []
            self._idle[config] = producer
            alike = [c for c in self._idle if bool(_id_of(c)) == bool(_id_of(config))]
            if len(alike) > self._capacity:
                closing.append(self._idle.pop(max(alike, key=_number)))
        for old in closing:
            close(old, 0)  # at most DescribeTransactions is in flight, whose response nobody needs

    def close(self) -> None:
        """Closes every idle producer. Prepared transactions stay prepared. Used in tests only: when
        Spark ends a worker, no producer is closed.
        """
        with self._lock:
            idle = list(self._idle.values())
            self._idle.clear()
        for producer in idle:
            close(producer)


def _id_of(config: ProducerConfig) -> TransactionalId | None:
    return parse(config.transactional_id) if config.transactional_id else None


def _replaces(wanted: TransactionalId, other: TransactionalId | None) -> bool:
    """True if the transactional id ``other`` is out of use, because a task now takes the id
    ``wanted``. There are two cases:

    - Both ids are equal.
    - Both belong to one key of the commit log, but to different runs or different generations. A
      key's generation is a number that grows when a run takes over the key.
    """
    if other is None or other.key != wanted.key:
        return False
    # (The ids of a run's first batch have an earlier generation than those of its later batches.)
    is_alike = (other.run, other.planned) == (wanted.run, wanted.planned)
    return other == wanted or not is_alike


def _number(config: ProducerConfig) -> int:
    found = _id_of(config)
    return 0 if found is None else found.number


#: The cache of this worker process.
process_cache = ProcessLocal(ProducerCache)


def new_producer(config: ProducerConfig, cluster: Cluster | None) -> KafkaProducer:
    """Creates a producer that connects to brokers over the network."""
    from spark_kafka_sink.producer.kafka_producer import KafkaProducer

    return KafkaProducer(config, cluster=cluster)


@dataclass(frozen=True, slots=True)
class CachedProducers:
    """The :class:`ProducerSource` of one task. Takes a producer from the cache. If there is none,
    creates one with ``factory`` and the driver's cluster metadata.
    """

    cache: ProducerCache
    config: ProducerConfig
    cluster: Cluster | None
    factory: ProducerFactory = new_producer

    def begin(self) -> None:
        """Does nothing: :meth:`acquire` needs no response, so there is no request to send early."""

    def leave(self) -> None:
        """Does nothing, because :meth:`begin` has taken no producer."""

    def acquire(self) -> KafkaProducer:
        return self.cache.take(self.config) or self.factory(self.config, self.cluster)

    def prepare(self, producer: KafkaProducer) -> None:
        """Does nothing, because there is no transaction to prepare."""

    def release(self, producer: KafkaProducer) -> None:
        self.cache.keep(self.config, producer)

    def discard(self, producer: KafkaProducer) -> None:
        close(producer, 0)


def close(producer: KafkaProducer, timeout_ms: int = CLOSE_MS) -> None:
    """Closes a producer. Never raises."""
    # If the task succeeded, its rows are acknowledged. If the task failed, the caller raises the
    # cause.
    with contextlib.suppress(Exception):
        producer.close(timeout_ms)


def _park(producer: KafkaProducer) -> bool:
    try:
        producer.park()
    except Exception:  # noqa: BLE001 - every row is acknowledged: parking must not fail a task
        return False
    return True


def effective_config(config: ProducerConfig, app_id: str) -> ProducerConfig:
    """The config of a task's producer. If the user has not set client.id, it is
    ``spark-kafka-sink-<application id>``, so that broker quotas, metrics and request logs show the
    application.
    """
    if config.client_id:
        return config
    # Without the query or the partition: the config is the key of the cache, so each task would
    # have a key of its own, and no task would find a warm producer.
    return replace(config, client_id=f"spark-kafka-sink-{app_id}" if app_id else "spark-kafka-sink")
