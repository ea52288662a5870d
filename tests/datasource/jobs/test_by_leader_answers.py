"""by_leader's request: what the driver answers, and what it refuses before it asks a broker."""

from __future__ import annotations

from typing import Any, cast

import pytest
from asked_in_process import SessionInProcess
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, KafkaTimeoutError, SchemaError
from spark_kafka_sink.datasource.jobs.by_leader import Places
from spark_kafka_sink.datasource.process.asked_of_driver import text_or_error
from tests.real_kafka import RealKafka

ROWS = StructType([StructField("id", LongType()), StructField("value", StringType())])
IMAGE = StructType([StructField("id", LongType())])
FEED = StructType(
    [
        StructField("op", StringType()),
        StructField("before", IMAGE),
        StructField("after", IMAGE),
        StructField("source", StructType([StructField("lsn", LongType())])),
    ]
)
NOWHERE = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}


def answer(schema: StructType, **options: Any) -> str:
    session = cast("SparkSession", SessionInProcess())
    return text_or_error(session, {**options, "byleader": schema.json()}, "by_leader")


def test_the_answer_has_the_topics_leaders_and_the_key(kafka: RealKafka) -> None:
    topic = kafka.unique_topic("leaders", partitions=5)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "keyColumns": "id",
        "kafka.partitioner.ignore.keys": "true",
    }
    found = Places.decode(answer(ROWS, **options))
    assert found.topic == topic
    assert len(found.leaders) == 5
    assert min(found.leaders) >= 0
    assert found.key is not None
    assert [(one.name, one.index) for one in found.key.columns] == [("id", 0)]
    assert (found.key_column, found.partition_column, found.ignore_keys) == (None, None, True)


def test_a_topic_that_does_not_exist_is_an_error_of_the_caller(kafka: RealKafka) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.max.block.ms": "500"}
    with pytest.raises(KafkaTimeoutError, match="not-there"):
        answer(ROWS, topic="not-there", **options)


@pytest.mark.parametrize(
    ("schema", "options", "says"),
    [
        (ROWS, {"topic": ""}, "topic"),
        (ROWS, {"kafka.partitioner.class": "shop:ByRegion"}, "the partitioner shop:ByRegion"),
        (FEED, {"changelog": "debezium", "keyColumns": "id", "valueColumns": "id"},
         "a feed with the row before and after a change"),
        (ROWS, {"keyColumns": "id", "keyFormat": "avro", "schema.registry.url": "http://r:1"},
         "a key with a schema"),
    ],
    ids=["topic", "partitioner", "images", "schema"],
)  # fmt: skip
def test_what_it_cannot_place_is_refused_without_a_broker(
    schema: StructType, options: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        answer(schema, **NOWHERE | options)
    assert says in raised.value.message


def test_a_column_topic_is_refused_with_a_hint() -> None:
    schema = StructType([*ROWS, StructField("topic", StringType())])
    with pytest.raises(ConfigError) as raised:
        answer(schema, **{"kafka.bootstrap.servers": "127.0.0.1:1"})
    assert raised.value.message == "by_leader can't take a column topic"
    assert raised.value.hint == "write each topic by itself: set topic"
    assert raised.value.kind is Kind.UNSUPPORTED_WRITE


def test_errors_of_planning_keep_their_class_and_kind() -> None:
    with pytest.raises(SchemaError, match="'value' not found"):
        answer(IMAGE, **NOWHERE)


class OlderDriver(SessionInProcess):
    """Its package does not know the request, and answers with the columns of a table."""

    @property
    def schema(self) -> StructType:
        return ROWS


def test_an_older_driver_is_named_in_the_error() -> None:
    session = cast("SparkSession", OlderDriver())
    with pytest.raises(ConfigError, match="older, and has no by_leader"):
        text_or_error(session, {"byleader": ROWS.json()}, "by_leader")
