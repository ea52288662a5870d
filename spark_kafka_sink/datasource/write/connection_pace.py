"""Limits the rate at which the tasks of a write open connections (``connectionsPerSecond``).

All tasks of a stage begin at the same time, and each task connects to each broker that it writes
to. Some brokers accept only a limited number of new connections per second: Amazon MSK with IAM
accepts 100. So a task waits before it creates its producer (:func:`paced`).

If T tasks run at the same time, and R may connect per second, the task with number n waits (n
modulo T) / R seconds. A task opens at most one connection to a broker, so each broker gets at most
R new connections per second. The tasks need no communication for this.

A task that gets the producer of an earlier task does not wait: this producer is already connected.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from spark_kafka_sink.base.clock import Clock, Latch, SystemClock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.protocol.cluster import Cluster

if TYPE_CHECKING:
    from spark_kafka_sink.datasource.write.producer_cache import ProducerFactory
    from spark_kafka_sink.producer.kafka_producer import KafkaProducer

_log = logging.getLogger(__name__)


def wait_ms(number: int, tasks: int, per_second: int) -> int:
    """The time in milliseconds that a task waits before it connects. ``number`` is the task's
    number, from 0. ``tasks`` is the number of tasks that run at the same time. ``per_second`` is
    the option connectionsPerSecond.
    """
    return number % tasks * 1000 // per_second


def paced(factory: ProducerFactory, delay_ms: int, clock: Clock | None = None) -> ProducerFactory:
    """Returns a producer factory that waits ``delay_ms`` before it creates its first producer. It
    does not wait before it creates later producers. An interrupt ends the wait.
    """
    waits = [delay_ms] if delay_ms else []

    def made(config: ProducerConfig, cluster: Cluster | None) -> KafkaProducer:
        if waits:
            delay, own = waits.pop(), clock or SystemClock()
            _log.info("waiting for %d ms before it connects (connectionsPerSecond)", delay)
            own.wait(Latch(), own.now_ms() + delay)
        return factory(config, cluster)

    return made
