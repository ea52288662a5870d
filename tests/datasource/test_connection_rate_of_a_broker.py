"""connectionsPerSecond before a real broker that limits new connections of an address (KIP-612)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.write.connection_pace import paced, wait_ms
from spark_kafka_sink.datasource.write.producer_cache import (
    CachedProducers,
    ProducerCache,
    new_producer,
)
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.datasource.write.write_task import WriteTask
from spark_kafka_sink.local_kafka import KafkaCluster
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.column_plan import ColumnPlan
from tests.java_programs import java
from tests.real_kafka import RealKafka, consume_topic

TASKS, ROWS = 30, 20
#: New connections a second: the broker's limit, and the tasks' rate, as docs/tuning.md advises.
LIMIT, RATE = 10, 5

pytestmark = [pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def limited() -> Iterator[RealKafka]:
    """A broker that accepts ten new connections of this machine a second.

    By default the limit is an average of ten seconds, so a hundred connections at once would pass.
    """
    window = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
    with KafkaCluster(overrides=window) as cluster:
        kafka = RealKafka(cluster.bootstrap, cluster)
        java(
            "kafka.admin.ConfigCommand",
            *("--bootstrap-server", cluster.bootstrap, "--alter"),
            *("--entity-type", "ips", "--entity-name", "127.0.0.1"),
            *("--add-config", f"connection_creation_rate={LIMIT}"),
        )
        yield kafka


def run_at_once(kafka: RealKafka, topic: str, rate: int | None) -> list[int]:
    """The connections of each of thirty tasks, which all begin at the same time."""
    config = parse_sink_config(
        {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
    ).producer
    config = replace(config, delivery_timeout_ms=240_000, max_block_ms=240_000)
    with KafkaProducer({"bootstrap.servers": kafka.bootstrap}) as producer:
        producer.start_attempt()
        producer.send_batch(_rows(-1, 1), topic)
        producer.finish_attempt()
        cluster = producer._metadata.cluster
    begin, opened = threading.Barrier(TASKS), []

    def run(number: int) -> None:
        factory = new_producer
        if rate is not None:
            factory = paced(new_producer, wait_ms(number, TASKS, rate))
        with contextlib.closing(ProducerCache()) as cache:
            task = WriteTask(
                ColumnPlan(topic=topic, value_column=0),
                CachedProducers(cache, config, cluster, factory),
                TaskIdentity(partition_id=number),
            )
            begin.wait()
            opened.append(task.run(iter([_rows(number * ROWS, ROWS)])).produced.connections)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(TASKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return opened


def _rows(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([str(first + n) for n in range(count)])], ["value"])


def test_paced_tasks_are_not_refused_by_a_broker_with_a_limit(limited):
    """The broker accepts a connection above the limit, delays it, and closes it. So the number of
    connections that a task opened shows how often the broker refused it.
    """
    opened = {}
    for rate in (None, RATE):
        topic = limited.unique_topic("rate", partitions=2)
        opened[rate] = run_at_once(limited, topic, rate)
        values = sorted(map(int, consume_topic(limited.bootstrap, topic).values))
        assert values == list(range(-1, TASKS * ROWS))
    assert len(opened[None]) == len(opened[RATE]) == TASKS
    # The limit was at work: about 140 connections on a quiet machine.
    assert sum(opened[None]) >= 2 * TASKS
    # On a busy machine a few tasks may connect late, and so together.
    assert sum(opened[RATE]) <= 1.3 * TASKS
