"""Columns: refused on the driver, with Spark's own sentences, before any task or connection."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from tests.bad_input.conftest import Fails, Jobs, Write
from tests.real_kafka import Consumed, RealKafka

#: Nobody listens there: what asks a broker fails with other words.
NOBODY = "127.0.0.1:1"

Columns = list[str]
Row = tuple[Columns, str | None, tuple[str, ...]]

#: A few: what each column may be is in tests/datasource/test_schema.py, without a Spark.
SCHEMAS: list[Row] = [
    (["'v' AS Value"], "t", ("Required attribute 'value' not found", "rename Value to value")),
    (["null AS value"], "t", ("value attribute unsupported type void", "string or binary")),
    (["struct(id) AS value"], "t", ("unsupported type struct<id:bigint>", "string or binary")),
    (["'v' AS value", "1.5 AS key"], "t", ("key attribute unsupported type decimal(2,1)",)),
    (["'v' AS value", "'w' AS value"], "t", ("column value occurs twice", "drop or rename")),
    (
        ["'v' AS value", "interval '1-2' year to month AS age"],
        "t",
        ("column age", "interval year to month", "drop the column"),
    ),
]


@pytest.mark.parametrize(("columns", "topic", "words"), SCHEMAS, ids=[str(r[0]) for r in SCHEMAS])
def test_a_column_that_no_sink_takes_is_refused_before_any_task(
    spark: SparkSession, fails: Fails, columns: Columns, topic: str | None, words: tuple[str, ...]
) -> None:
    failure = fails(spark.range(1).selectExpr(*columns), topic, bootstrap=NOBODY)
    assert failure.on_the_driver
    assert "SchemaError" in failure.line
    failure.says(*words)


def test_spark_itself_refuses_a_calendar_interval(
    spark: SparkSession, write: Write, jobs: Jobs
) -> None:
    frame = spark.range(1).selectExpr("'v' AS value", "make_interval(1, 2, 3) AS i")

    def save() -> None:
        with pytest.raises(Exception, match='Cannot use "INTERVAL" type'):
            write(frame, "t", bootstrap=NOBODY)

    assert jobs.during(save) == 0


Consume = Callable[..., Consumed]


def test_columns_that_differ_by_case_alone_are_two_columns(
    spark: SparkSession, kafka: RealKafka, write: Write, consume: Consume
) -> None:
    """As in Spark's sink: the name counts as it is written, whichever comes first."""
    topic = kafka.unique_topic("case")
    frame = spark.range(1).selectExpr(
        "'no' AS VALUE", "'yes' AS value", "'no' AS Key", "'k' AS key"
    )
    write(frame, topic)
    found = consume(topic)
    assert (found.keys, found.values) == ([b"k"], [b"yes"])


def test_extra_columns_of_any_type_are_ignored(
    spark: SparkSession, kafka: RealKafka, write: Write, consume: Consume
) -> None:
    topic = kafka.unique_topic("extra")
    frame = spark.range(3).selectExpr(
        "array(array(id)) AS a", "struct(id, 'x' AS y) AS b", "cast(id AS decimal(38, 10)) AS c",
        "interval 1 day AS d", "map(id, 'x') AS e", "current_date() AS f", "id = 1 AS g",
        "cast(null AS void) AS h", "timestamp_ntz'2020-01-01' AS i", "parse_json('{}') AS j",
        "cast(id AS string) AS value", "cast('nan' AS double) AS k", "x'00ff' AS l",
        "cast('x' AS char(9)) AS m", "cast(null AS array<map<string, struct<z: int>>>) AS n",
    )  # fmt: skip
    write(frame, topic)
    assert sorted(v for v in consume(topic).values if v) == [b"0", b"1", b"2"]


@pytest.mark.long
def test_a_thousand_columns_and_no_rows_and_both(
    spark: SparkSession, kafka: RealKafka, write: Write, consume: Consume, jobs: Jobs
) -> None:
    topic = kafka.unique_topic("wide")
    wide = spark.range(5).select(
        *(lit(n).alias(f"c{n}") for n in range(999)), lit("v").alias("value")
    )
    assert jobs.during(lambda: write(wide, topic)) >= 1, "jobs are seen when there are any"
    write(wide.where("id > 9"), topic)
    assert consume(topic).values == [b"v"] * 5
