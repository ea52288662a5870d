"""Topics that are not there, or are gone, or may not be written to."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_sink.datasource.checks.preflight import MISSING_TOPIC_TIMEOUT_MS
from spark_kafka_sink.local_kafka import KafkaCluster
from tests.bad_input.conftest import SLACK_S, Fails, Write
from tests.real_kafka import Consumed, RealKafka

if TYPE_CHECKING:
    import pyarrow as pa

Consume = Callable[..., Consumed]


def missing() -> str:
    return f"missing-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def one_row(spark: SparkSession) -> DataFrame:
    return spark.range(0, 1, 1, 1).selectExpr("'v' AS value")


def test_a_missing_topic_is_one_error_on_the_driver(one_row: DataFrame, gives_up: Fails) -> None:
    topic = missing()
    failure = gives_up(one_row, topic)
    assert failure.on_the_driver
    failure.says(
        f"Topic {topic} not found: not present in metadata after 1000 ms",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "create the topic first, or check its name",
    )
    assert failure.seconds < 1 + SLACK_S


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
    failure.says(f"Topic {gone} not present in metadata after 1000 ms", "create the topic first")
    assert failure.seconds < 1 + SLACK_S
    assert len(consume(here)) == 0


def test_a_deleted_topic_fails_within_delivery_timeout(
    spark: SparkSession, fails: Fails, kafka: RealKafka
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

    frame = spark.range(0, 1, 1, 1).selectExpr("'v' AS value")
    limits = {"kafka.request.timeout.ms": "1000", "kafka.delivery.timeout.ms": "3000"}
    failure = fails(frame.mapInArrow(delete_first, "value string"), topic, **limits)
    assert failure.jobs == 1
    failure.says(
        f"DeliveryError: {topic}-0: 1 rows were not acknowledged",
        "Expiring 1 record(s)",
        "was UNKNOWN_TOPIC_OR_PARTITION",
        "create the topic first",
    )
    assert failure.seconds < 3 + SLACK_S


@pytest.fixture(scope="module")
def willing() -> Iterator[str]:
    """The address of a broker that creates topics it is asked for."""
    with KafkaCluster(overrides={"auto.create.topics.enable": "true"}) as cluster:
        yield cluster.bootstrap


@pytest.mark.long
def test_auto_creating_brokers_create_the_named_topics(
    spark: SparkSession, one_row: DataFrame, write: Write, willing: str, consume: Consume
) -> None:
    option, *column = (f"made-{n}" for n in range(3))
    start = time.monotonic()
    write(one_row, option, bootstrap=willing)
    assert time.monotonic() - start < MISSING_TOPIC_TIMEOUT_MS / 1000 + SLACK_S
    frame = spark.range(0, 4, 1, 1).selectExpr(
        "cast(id AS string) AS value", "concat('made-', 1 + id % 2) AS topic"
    )
    write(frame, bootstrap=willing)
    assert consume(option, bootstrap=willing).values == [b"v"]
    assert [consume(t, bootstrap=willing).values for t in column] == [
        [b"0", b"2"],
        [b"1", b"3"],
    ]


@pytest.mark.long
def test_auto_creating_brokers_are_not_asked_for_illegal_topics(
    one_row: DataFrame, fails: Fails, willing: str
) -> None:
    failure = fails(one_row.selectExpr("value", "'not a topic' AS topic"), bootstrap=willing)
    failure.says("column 'topic'", "row 0 of the Arrow batch", "(topic not a topic)")
