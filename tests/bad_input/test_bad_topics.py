"""Topics that are not there, or are gone, or may not be written to."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_sink.admin.admin_client import MISSING_TOPIC_TIMEOUT_MS
from spark_kafka_sink.local_kafka import KafkaCluster
from tests.bad_input.conftest import BLOCK_MS, IMPATIENT, SLACK_S, Consume, Fails, Write
from tests.real_kafka import RealKafka

if TYPE_CHECKING:
    import pyarrow as pa


def missing() -> str:
    return f"missing-{uuid.uuid4().hex[:12]}"


def test_a_missing_topic_is_one_error_on_the_driver(one_row: DataFrame, gives_up: Fails) -> None:
    topic = missing()
    failure = gives_up(one_row, topic)
    assert failure.on_the_driver
    failure.says(
        f"Topic {topic} not found: not present in metadata after {BLOCK_MS} ms",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "create the topic first, or check its name",
    )
    assert failure.seconds < BLOCK_MS / 1000 + SLACK_S


@pytest.mark.long
def test_a_misspelt_topic_fails_after_ten_seconds(one_row: DataFrame, fails: Fails) -> None:
    topic, believed_s = missing(), MISSING_TOPIC_TIMEOUT_MS / 1000
    failure = fails(one_row, topic)
    assert failure.on_the_driver
    failure.says(
        f"Topic {topic} not found: not present in metadata after {MISSING_TOPIC_TIMEOUT_MS} ms"
    )
    assert believed_s <= failure.seconds < believed_s + SLACK_S


def test_a_missing_topic_of_a_row_is_named_by_the_task(
    spark: SparkSession, gives_up: Fails, kafka: RealKafka, consume: Consume
) -> None:
    here, gone = kafka.unique_topic("here"), missing()
    frame = spark.range(0, 5, 1, 1).selectExpr(
        "cast(id AS string) AS value", f"if(id = 3, '{gone}', '{here}') AS topic"
    )
    failure = gives_up(frame)
    assert failure.jobs == 1
    missing_after = f"Topic {gone} not present in metadata after {BLOCK_MS} ms"
    failure.says(missing_after, "create the topic first")
    assert failure.seconds < BLOCK_MS / 1000 + SLACK_S
    assert len(consume(here)) == 0


def test_a_deleted_topic_fails_within_delivery_timeout(
    one_row: DataFrame, fails: Fails, kafka: RealKafka
) -> None:
    """The deletion happens in the task, before its first row: the driver has seen the topic."""
    topic, bootstrap = kafka.unique_topic("deleted"), kafka.bootstrap

    # Nested, so that it travels to the worker by value: workers don't know the tests.
    def delete_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_topics([topic])[topic].result(60)
        while topic in admin.list_topics(timeout=10).topics:
            time.sleep(0.05)
        yield from batches

    limits = {name: ms for name, ms in IMPATIENT.items() if name != "kafka.max.block.ms"}
    failure = fails(one_row.mapInArrow(delete_first, "value string"), topic, **limits)
    assert failure.jobs == 1
    failure.says(
        f"DeliveryError: {topic}-0: 1 rows were not acknowledged",
        "Expiring 1 record(s)",
        "was UNKNOWN_TOPIC_OR_PARTITION",
        "create the topic first",
    )
    assert failure.seconds < 3 * BLOCK_MS / 1000 + SLACK_S


@pytest.mark.long
def test_brokers_that_create_topics_create_those_of_rows(
    spark: SparkSession, write: Write, consume: Consume
) -> None:
    """That of the option, too: tests/security/test_check_topics.py."""
    frame = spark.range(0, 4, 1, 1).selectExpr(
        "cast(id AS string) AS value", "concat('made-', id % 2) AS topic"
    )
    with KafkaCluster(overrides={"auto.create.topics.enable": "true"}) as cluster:
        write(frame, bootstrap=cluster.bootstrap)
        made = [consume(f"made-{n}", bootstrap=cluster.bootstrap).values for n in (0, 1)]
    assert made == [[b"0", b"2"], [b"1", b"3"]]
