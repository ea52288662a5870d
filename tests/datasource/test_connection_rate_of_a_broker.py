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


def refused(kafka: RealKafka, rate: int | None) -> int:
    """Runs the tasks, compares their rows, and returns how often the broker refused a connection.

    The broker accepts a connection above the limit, delays it, and closes it. So a task opens one
    connection more for each refusal.
    """
    topic = kafka.unique_topic("rate", partitions=2)
    opened = run_at_once(kafka, topic, rate)
    values = sorted(map(int, consume_topic(kafka.bootstrap, topic).values))
    assert values == list(range(-1, TASKS * ROWS))
    assert len(opened) == TASKS
    return sum(opened) - TASKS


def test_a_broker_with_a_limit_refuses_few_paced_tasks(limited):
    """On a quiet machine the broker refuses unpaced tasks about 110 times, and paced tasks never.

    A slow machine may connect the unpaced tasks one after another. If a machine stops for a moment,
    paced tasks connect together. So one of four rounds must show the difference.
    """
    rounds = []
    for _ in range(4):
        unpaced, with_rate = refused(limited, None), refused(limited, RATE)
        rounds.append((unpaced, with_rate))
        if unpaced >= TASKS // 2 and with_rate <= unpaced / 2:
            return
    pytest.fail(f"refused without and with a rate, in each round: {rounds}")
