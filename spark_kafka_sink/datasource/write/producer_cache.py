"""Warm producers between the tasks of one worker process (design.md rule 5.4).

Owns: which idle producers a process keeps, under which key, and when one must go. Never: whether
a producer is fit for reuse (it says so itself), connections.

A Spark worker process runs one task after the other; with a warm producer a micro-batch pays no
connection, no InitProducerId and no metadata. Spark stops workers that are idle for a minute, so
nothing here needs a timer. Rules:

- the key is the whole effective ProducerConfig: two writes that differ in one option never share;
- a producer in use is not in the cache; :meth:`ProducerCache.release` takes it back only when it
  is reusable, and parks it (no buffers, no timers);
- at most two idle ones, the longest idle goes first;
- a forked child forgets its parent's: the sockets belong to the parent, and the sender's thread
  did not survive the fork.

**client.id.** Left to its default it becomes ``spark-kafka-sink-<application id>``
(:func:`effective_config`): the same for all tasks of an application, so that broker quotas, metrics
and request logs name the application, and tasks of different queries, micro-batches and
partitions still share a key. An id with query or partition in it would make every task cold.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.datasource.write.write_task import TaskProducer
from spark_kafka_sink.protocol.cluster import Cluster

#: Idle producers of one process. Two: a stream that writes to two clusters keeps both warm.
CAPACITY = 2

#: A producer that goes while it is idle has nothing in flight; this bounds a stuck socket.
EVICTION_CLOSE_MS = 1_000

ProducerFactory = Callable[[ProducerConfig, Cluster | None], TaskProducer]


class ProducerCache:
    """Idle producers by config. ``_lock`` guards ``_idle`` and ``_pid``; closing is outside of it.

    ``factory`` makes a producer of a config and the cluster metadata that the driver shipped.
    """

    def __init__(
        self,
        factory: ProducerFactory,
        *,
        capacity: int = CAPACITY,
        pid: Callable[[], int] = os.getpid,
    ) -> None:
        self._factory = factory
        self._capacity = capacity
        self._current_pid = pid
        self._lock = threading.Lock()
        self._idle: dict[ProducerConfig, TaskProducer] = {}  # oldest first
        self._pid = pid()

    def __len__(self) -> int:
        return len(self._idle)

    def acquire(self, config: ProducerConfig, cluster: Cluster | None) -> TaskProducer:
        """A warm producer of exactly this config, or a new one. The caller owns it now."""
        self._forget_after_fork()
        with self._lock:
            producer = self._idle.pop(config, None)
        if producer is not None:
            if producer.reusable:
                return producer
            # It failed while it was idle (its sender died): nobody's rows were in it.
            _close(producer, 0)
        return self._factory(config, cluster)

    def release(self, config: ProducerConfig, producer: TaskProducer) -> None:
        """Keeps ``producer`` warm when it is reusable, else closes it. Never raises."""
        self._forget_after_fork()
        if not producer.reusable or not self._park(producer):
            _close(producer, EVICTION_CLOSE_MS)
            return
        evicted: list[TaskProducer] = []
        with self._lock:
            previous = self._idle.pop(config, None)
            if previous is not None:
                evicted.append(previous)
            self._idle[config] = producer
            while len(self._idle) > self._capacity:
                evicted.append(self._idle.pop(next(iter(self._idle))))
        for old in evicted:
            _close(old, EVICTION_CLOSE_MS)

    def discard(self, producer: TaskProducer) -> None:
        """Closes a producer whose attempt failed, without waiting for anything. Never raises."""
        _close(producer, 0)

    def close(self) -> None:
        """Closes every idle producer (tests, and a process that ends in an orderly way)."""
        self._forget_after_fork()
        with self._lock:
            idle = list(self._idle.values())
            self._idle.clear()
        for producer in idle:
            _close(producer, EVICTION_CLOSE_MS)

    def _park(self, producer: TaskProducer) -> bool:
        try:
            producer.park()
        except Exception:  # noqa: BLE001 - every row is acknowledged: parking must not fail a task
            return False
        return True

    def _forget_after_fork(self) -> None:
        pid = self._current_pid()
        if pid != self._pid:
            self._pid = pid
            # A lock held by another thread at the fork would stay locked for ever.
            self._lock = threading.Lock()
            self._idle = {}


@dataclass(frozen=True, slots=True)
class CachedProducers:
    """The :class:`ProducerSource` of one task: this config, from this cache."""

    cache: ProducerCache
    config: ProducerConfig
    cluster: Cluster | None

    def acquire(self) -> TaskProducer:
        return self.cache.acquire(self.config, self.cluster)

    def prepare(self, producer: TaskProducer) -> None:
        """Nothing to prepare: no transaction."""

    def release(self, producer: TaskProducer) -> None:
        self.cache.release(self.config, producer)

    def discard(self, producer: TaskProducer) -> None:
        self.cache.discard(producer)


def effective_config(config: ProducerConfig, app_id: str) -> ProducerConfig:
    """``config`` with the default client.id of a task (see the module's docstring)."""
    if config.client_id:
        return config
    return replace(config, client_id=f"spark-kafka-sink-{app_id}" if app_id else "spark-kafka-sink")


_process_cache: ProducerCache | None = None


def process_cache() -> ProducerCache:
    """The cache of this worker process, made at first use."""
    global _process_cache
    if _process_cache is None:
        _process_cache = ProducerCache(_new_producer)
    return _process_cache


def _new_producer(config: ProducerConfig, cluster: Cluster | None) -> TaskProducer:
    from spark_kafka_sink.producer.kafka_producer import KafkaProducer

    return KafkaProducer(config, cluster=cluster)


def _close(producer: TaskProducer, timeout_ms: int) -> None:
    with contextlib.suppress(Exception):  # the rows are settled; the caller has its own error
        producer.close(timeout_ms)
