"""The sender on a real Kafka: fresh topics, answers that never come.

What counts is in the log: every row once, and in order within its partition.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.record_columns import RecordColumns
from tests.real_kafka import Consumed, RealKafka


def config(bootstrap: str, **options: object) -> ProducerConfig:
    given = {"bootstrap.servers": bootstrap, "client.id": "sender-test"}
    return ProducerConfig.parse(given | {k.replace("_", "."): str(v) for k, v in options.items()})


def rows(topic: str, first: int, count: int, partitions: int) -> RecordColumns:
    """Row i goes to partition i % partitions, its value is i."""
    numbers = np.arange(first, first + count)
    return RecordColumns(
        rows=count,
        topic=topic,
        partition=(numbers % partitions).astype(np.int32),
        value=pa.array([b"%d" % i for i in numbers.tolist()], pa.binary()),
    )


def check(found: Consumed, count: int, partitions: int) -> None:
    by_partition = found.by_partition()
    for partition in range(partitions):
        expected = [b"%d" % i for i in range(partition, count, partitions)]
        assert by_partition.get(partition, []) == expected


def create_and_return_at_once(bootstrap: str, partitions: int) -> str:
    """Make a topic; return when the controller has answered, with leaders that do not know yet."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"fresh-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=partitions)])[name].result(60)
    return name


@pytest.mark.parametrize("seeded", [False, True], ids=["asks for metadata", "shipped metadata"])
def test_a_topic_written_right_after_its_creation_has_every_row(
    kafka: RealKafka, consume: Callable[..., Consumed], seeded: bool
) -> None:
    """The case in which kafka-clients 3.9 loops on OUT_OF_ORDER_SEQUENCE_NUMBER (1 in 10)."""
    partitions, count = 13, 2_600
    for _ in range(10):
        topic = create_and_return_at_once(kafka.bootstrap, partitions)
        cluster = None
        if seeded:
            with KafkaProducer(config(kafka.bootstrap)) as scout:
                cluster = scout._metadata.await_topics([topic], scout._clock.now_ms() + 10_000)
        # Small batches: each partition has several in line behind the first.
        with KafkaProducer(config(kafka.bootstrap, batch_size=300), cluster=cluster) as producer:
            producer.start_attempt()
            for first in range(0, count, 650):
                producer.send_columns(rows(topic, first, 650, partitions))
            report = producer.finish_attempt()
        assert report.rows == count
        assert report.batches >= 3 * partitions
        check(consume(topic), count, partitions)
