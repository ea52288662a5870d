"""Rows: found when they are encoded, or by the broker; the error names column, row and topic."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.bad_input.conftest import SLACK_S, Fails, Write
from tests.real_kafka import Consumed, RealKafka

Consume = Callable[..., Consumed]

ROWS = 5


@pytest.fixture
def topic(kafka: RealKafka) -> str:
    return kafka.unique_topic("rows", partitions=2)


def five_rows(spark: SparkSession, *columns: str) -> DataFrame:
    """Values "0" to "4" in one partition, and ``columns``, in which ``id`` is the row."""
    frame = spark.range(0, ROWS, 1, 1)
    return frame.selectExpr("cast(id AS string) AS value", *columns)


IN_ROW_3 = "row 3 of the Arrow batch"
WHERE = "while sending rows 0 to 4 of partition 0 of the DataFrame"

BAD_ROWS = [
    (
        "if(id = 3, -1, cast(null AS int)) AS partition",
        ("column 'partition'", IN_ROW_3, "Invalid partition: -1", "null lets the partitioner"),
    ),
    (
        "if(id = 3, 7, 0) AS partition",
        ("Partition 7 of topic {topic} with partition count 2", IN_ROW_3, "below the topic's"),
    ),
    (
        "array(named_struct('key', if(id = 3, null, 'k'), 'value', x'00')) AS headers",
        ("column 'headers'", IN_ROW_3, "null key", "topic {topic}"),
    ),
    (
        "array(if(id = 3, null, named_struct('key', 'k', 'value', x'00'))) AS headers",
        ("column 'headers'", IN_ROW_3, "a null header", "filter null elements"),
    ),
    (
        "if(id = 3, -1L, null) AS timestamp",
        ("column 'timestamp'", IN_ROW_3, "before 1970-01-01", "null lets the producer"),
    ),
    (
        "if(id = 3, timestamp'0001-01-01', null) AS timestamp",
        ("column 'timestamp'", IN_ROW_3, "topic {topic}", "before 1970-01-01"),
    ),
]


@pytest.mark.parametrize(("column", "words"), BAD_ROWS, ids=[r[0] for r in BAD_ROWS])
def test_a_row_that_cannot_be_sent_is_named_and_nothing_is_sent(
    spark: SparkSession,
    fails: Fails,
    write: Write,
    topic: str,
    consume: Consume,
    column: str,
    words: tuple[str, ...],
) -> None:
    failure = fails(five_rows(spark, column), topic)
    assert failure.jobs == 1
    assert "DataError" in failure.line
    failure.says(*(word.replace("{topic}", topic) for word in words), WHERE)
    assert failure.seconds < SLACK_S
    assert len(consume(topic)) == 0


# More of them are in tests/records: a Spark job each is dear.
BAD_TOPICS = [
    ("if(id = 3, null, '{topic}')", ("contains a null topic", "`topic` option", IN_ROW_3)),
    ("if(id = 3, 'a b', '{topic}')", ("column 'topic'", IN_ROW_3, "(topic a b)", "alphanumerics")),
    ("if(id = 3, 'a\\nb', '{topic}')", ("(topic a\\nb)", IN_ROW_3, "alphanumerics")),
    ("if(id = 3, cast(x'ff' AS string), '{topic}')", ("column 'topic'", IN_ROW_3, "not UTF-8")),
]


@pytest.mark.parametrize(("column", "words"), BAD_TOPICS, ids=[r[0] for r in BAD_TOPICS])
def test_an_illegal_topic_of_a_row_is_named_and_nothing_is_sent(
    spark: SparkSession,
    fails: Fails,
    topic: str,
    consume: Consume,
    column: str,
    words: tuple[str, ...],
) -> None:
    failure = fails(five_rows(spark, f"{column.replace('{topic}', topic)} AS topic"))
    assert "DataError" in failure.line
    failure.says(*words, WHERE)
    assert failure.seconds < SLACK_S
    assert len(consume(topic)) == 0


def test_what_may_be_null_or_strange_is_sent_as_it_is(
    spark: SparkSession, write: Write, topic: str, consume: Consume
) -> None:
    before = int(time.time() * 1000)
    frame = spark.range(0, 1, 1, 1).selectExpr(
        "cast(null AS string) AS value",
        "cast(x'ff' AS string) AS key",
        "cast(null AS int) AS partition",
        "cast(null AS timestamp) AS timestamp",
        "array(named_struct('key', 'k', 'value', cast(null AS binary)),"
        " named_struct('key', '', 'value', x'')) AS headers",
    )
    write(frame, topic)
    found = consume(topic)
    assert (found.values, found.keys) == ([None], [b"\xff"])
    assert found.headers == [[("k", None), ("", b"")]]
    assert before <= found.timestamps[0] <= int(time.time() * 1000)


@pytest.mark.parametrize(
    "far", ["unix_micros(current_timestamp())", "9223372036854775807L"], ids=["micros", "max"]
)
def test_a_refused_timestamp_names_the_record_and_the_unit(
    spark: SparkSession, fails: Fails, kafka: RealKafka, consume: Consume, far: str
) -> None:
    topic = kafka.unique_topic("future")
    failure = fails(five_rows(spark, f"if(id = 3, {far}, null) AS timestamp"), topic)
    failure.says(
        f"DeliveryError: {topic}-0: 5 rows were not acknowledged",
        "INVALID_TIMESTAMP (32)",
        "record 3 of the batch",
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
    at_planning = fails(five_rows(spark), topic)
    at_planning.says(
        f"topic {topic} is compacted (cleanup.policy), so brokers reject every row without a key",
        "add a column key, or set keyColumns; preflight=off",
    )
    assert at_planning.on_the_driver
    failure = fails(rows, topic, preflight="off")
    failure.says(
        f"DeliveryError: {topic}-0: 5 rows were not acknowledged",
        "INVALID_RECORD (87)",
        "record 2 of the batch (and 1 more): Compacted topic cannot accept message without key",
        "a compacted topic accepts no record without a key",
    )
    assert failure.seconds < SLACK_S
    assert len(consume(topic)) == 0
    # The worker that failed left nothing behind that hurts the next write.
    write(five_rows(spark, "'k' AS key"), topic)
    assert consume(topic).values == [b"0", b"1", b"2", b"3", b"4"]
