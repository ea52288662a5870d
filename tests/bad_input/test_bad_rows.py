"""Rows: found when they are encoded, or by the broker; the error names column, row and topic."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_sink.base.errors import DataError
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.records.record_columns import from_record_batch
from tests.bad_input.conftest import SLACK_S, Consume, Fails, Write
from tests.real_kafka import RealKafka

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def topic(kafka: RealKafka) -> str:
    return kafka.unique_topic("rows", partitions=2)


def five_rows(spark: SparkSession, *columns: str) -> DataFrame:
    """Values "0" to "4" in one partition, and ``columns``, in which ``id`` is the row."""
    frame = spark.range(0, 5, 1, 1)
    return frame.selectExpr("cast(id AS string) AS value", *columns)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (
            "if(id = 3, 7, 0) AS partition",
            ("Partition 7 of topic {topic} with partition count 2", "below the topic's"),
        ),
        ("if(id = 3, null, '{topic}') AS topic", ("contains a null topic", "`topic` option")),
    ],
    ids=["partition", "topic"],
)
def test_a_row_that_cannot_be_sent_is_named_and_nothing_is_sent(
    spark: SparkSession,
    fails: Fails,
    topic: str,
    consume: Consume,
    column: str,
    words: tuple[str, ...],
) -> None:
    """A few: the others are in tests/records, and what they say below. A Spark job each is dear."""
    rows = five_rows(spark, column.replace("{topic}", topic))
    failure = fails(rows, None if column.endswith("topic") else topic)
    assert failure.jobs == 1
    assert "DataError" in failure.line
    where = "while sending rows 0 to 4 of partition 0 of the DataFrame"
    failure.says(
        *(word.replace("{topic}", topic) for word in words), "row 3 of the Arrow batch", where
    )
    assert failure.seconds < SLACK_S
    assert len(consume(topic)) == 0


@pytest.mark.parametrize(
    ("column", "cells", "hint"),
    [
        ("partition", pa.array([0, -1], pa.int32()), "null lets the partitioner decide"),
        ("headers", pa.array([[], [None]], HEADERS), "filter null elements out of the headers"),
        ("headers", pa.array([[], [(None, b"")]], HEADERS), "not a null key"),
        ("timestamp", pa.array([0, -1]), "null lets the producer take the time of sending"),
    ],
    ids=["partition", "header", "header's key", "timestamp"],
)
def test_an_error_of_a_row_says_what_to_do(column: str, cells: pa.Array, hint: str) -> None:
    batch = pa.record_batch({"value": pa.array(["0", "1"]), column: cells})
    columns = {"value_column": 0, f"{column}_column": 1}
    with pytest.raises(DataError, match="row 1 of the Arrow batch") as caught:
        from_record_batch(batch, ColumnPlan(topic="t", **columns), 1_000)
    assert hint in caught.value.hint


def test_a_refused_timestamp_names_the_record_and_the_unit(
    spark: SparkSession, fails: Fails, kafka: RealKafka, consume: Consume
) -> None:
    topic = kafka.unique_topic("future")
    far = "if(id = 4, 9223372036854775807L, null)"
    micros = "unix_micros(current_timestamp())"
    failure = fails(five_rows(spark, f"if(id = 3, {micros}, {far}) AS timestamp"), topic)
    failure.says(
        f"DeliveryError: {topic}-0: 5 rows were not acknowledged",
        "INVALID_TIMESTAMP (32)",
        "record 3 of the batch (and 1 more)",
        "a bigint timestamp column holds milliseconds",
        "message.timestamp.after.max.ms",
    )
    assert failure.seconds < SLACK_S
    assert len(consume(topic)) == 0


def test_a_compacted_topic_takes_no_row_without_a_key(
    spark: SparkSession, fails: Fails, write: Write, kafka: RealKafka, consume: Consume
) -> None:
    topic = kafka.unique_topic("compacted", configs={"cleanup.policy": "compact"})
    rows = five_rows(spark, "if(id IN (2, 4), null, 'k') AS key")
    failure = fails(rows, topic)
    failure.says(
        f"column 'key', row 2 of the Arrow batch (topic {topic}): a null key, and the topic is "
        "compacted (cleanup.policy): brokers refuse a record without one",
        "give each row a key",
        "while sending rows 0 to 4 of partition 0",
    )
    assert "[KP0215]" in failure.line
    failure = fails(rows, topic, preflight="off")
    failure.says(
        f"DeliveryError: {topic}-0: 5 rows were not acknowledged",
        "INVALID_RECORD (87)",
        "record 2 of the batch (and 1 more): Compacted topic cannot accept message without key",
        "A compacted topic accepts no record without a key",
    )
    assert failure.seconds < SLACK_S
    assert len(consume(topic)) == 0
    # The worker that failed left nothing behind that hurts the next write.
    write(five_rows(spark, "'k' AS key"), topic)
    assert consume(topic).values == [b"0", b"1", b"2", b"3", b"4"]
