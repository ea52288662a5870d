"""Columns: refused on the driver, with Spark's own sentences, before any task or connection."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.bad_input.conftest import Consume, Fails, Write
from tests.real_kafka import RealKafka

#: Nobody listens there: what asks a broker fails with other words.
NOBODY = "127.0.0.1:1"


# A few: what each column may be is in tests/datasource/test_schema.py, without a Spark.
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["'v' AS Value"], ("Required attribute 'value' not found", "rename Value to value")),
        (
            ["'v' AS value", "interval '1-2' year to month AS age"],
            ("column age is of type interval year", "or drop it before writing"),
        ),
    ],
    ids=["no value", "an interval"],
)
def test_a_column_that_no_sink_takes_is_refused_before_any_task(
    spark: SparkSession, fails: Fails, columns: list[str], words: tuple[str, ...]
) -> None:
    failure = fails(spark.range(1).selectExpr(*columns), "t", bootstrap=NOBODY)
    assert failure.on_the_driver
    assert "SchemaError" in failure.line
    failure.says(*words)


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
