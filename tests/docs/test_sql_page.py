"""docs/sql.md: each statement of the page is run on Spark, and writes to a real Kafka."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.real_kafka import RealKafka

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sql.md").read_text("utf-8")
STATEMENTS = re.findall(r"^```sql\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
OLD = pytest.mark.skipif(pyspark.__version__ < "4.1", reason="an INSERT names each column there")
pytestmark = [pytest.mark.broker, pytest.mark.spark]

Statements = Callable[[str], list[str]]


@pytest.fixture
def orders(spark: SparkSession) -> Iterator[None]:
    """The page's source: three orders of a day."""
    rows = spark.range(3).selectExpr("cast(id as string) id", "date'2026-11-22' day")
    rows.createOrReplaceTempView("orders")
    yield
    spark.sql("DROP VIEW orders")
    spark.sql("DROP TABLE IF EXISTS kafka_orders")
    spark.sql("DROP VIEW IF EXISTS orders_sink")


@pytest.fixture
def topic(kafka: RealKafka) -> str:
    return kafka.unique_topic("sql")


@pytest.fixture
def written(kafka: RealKafka, topic: str) -> Statements:
    """The page's statements below a heading, for this broker and topic."""

    def of(heading: str) -> list[str]:
        section = PAGE.split(f"## {heading}\n")[1].partition("\n## ")[0]
        found = [statement for statement in STATEMENTS if statement in section]
        return [
            one.replace("host:9092", kafka.bootstrap)
            .replace("'topic' = 'orders'", f"'topic' = '{topic}'")
            .replace("'topic' 'orders'", f"'topic' '{topic}'")
            for one in found
        ]

    return of


def test_the_page_has_the_statements_that_are_run():
    assert len(STATEMENTS) == 5


@OLD
@pytest.mark.usefixtures("orders")
def test_an_insert_with_options_writes_each_row(spark, kafka, topic, written, consume):
    for statement in written("Insert into a table"):
        spark.sql(statement)
    assert sorted(consume(topic, bootstrap=kafka.bootstrap).keys) == [b"0", b"1", b"2"]


@OLD
@pytest.mark.usefixtures("orders")
def test_a_temporary_view_keeps_its_options(spark, kafka, topic, written, consume):
    for statement in written("Insert into a temporary view"):
        spark.sql(statement)
    assert sorted(consume(topic, bootstrap=kafka.bootstrap).keys) == [b"0", b"1", b"2"]


@OLD
@pytest.mark.usefixtures("orders")
def test_an_insert_that_runs_again_writes_nothing(spark, kafka, topic, written, consume):
    spark.sql(written("Insert into a table")[0])
    (insert,) = written("Write each row once")
    insert = insert.replace("daily-orders-2026-11-22", f"daily-{topic}")
    spark.sql(insert)
    spark.sql(insert)
    found = consume(topic, bootstrap=kafka.bootstrap, isolation="read_committed")
    assert sorted(found.keys) == [b"0", b"1", b"2"]


@OLD
@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INSERT INTO kafka_orders SELECT id, id FROM orders", "KP0108"),
        ("INSERT OVERWRITE kafka_orders WITH ({}) SELECT id, id FROM orders", r"KP\d{4}"),
        ("CREATE TABLE other USING kprod OPTIONS ({}) AS SELECT id value FROM orders", "KP0108"),
        ("INSERT OVERWRITE DIRECTORY USING kprod OPTIONS ({}) SELECT id FROM orders", "path"),
        ("SELECT * FROM kafka_orders", r"KP\d{4}"),
        ("DELETE FROM kafka_orders", "deletes"),
        ("UPDATE kafka_orders SET value = '1'", "UPDATE"),
        (
            "MERGE INTO kafka_orders t USING orders o ON t.key = o.id WHEN MATCHED THEN DELETE",
            "MERGE",
        ),
    ],
)
def test_what_the_page_says_is_an_error_is_one(spark, kafka, topic, written, statement, error):
    spark.sql(written("Insert into a table")[0])
    given = f"'kafka.bootstrap.servers' = '{kafka.bootstrap}', 'topic' = '{topic}'"
    with pytest.raises(PySparkException, match=error):
        spark.sql(statement.format(given)).collect()
