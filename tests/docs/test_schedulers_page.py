"""docs/schedulers.md: its job writes each day once, in any order."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.real_kafka import RealKafka

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "schedulers.md").read_text("utf-8")
(JOB,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
MONDAY, TUESDAY = datetime.date(2026, 3, 2), datetime.date(2026, 3, 3)


@pytest.fixture
def orders(spark: SparkSession) -> DataFrame:
    """The job's table: an order on each of two days."""
    rows = [(MONDAY, "monday", "1"), (TUESDAY, "tuesday", "2")]
    return spark.createDataFrame(rows, "day date, key string, value string")


@pytest.mark.broker
@pytest.mark.spark
def test_the_job_writes_each_day_once_and_a_late_day_too(
    spark: SparkSession, kafka: RealKafka, orders: DataFrame, consume
) -> None:
    """A day, its retry, and then the day before, which was left out."""
    topic = kafka.unique_topic("schedulers")
    orders.createOrReplaceTempView("orders")
    job: dict[str, object] = {"__name__": "job"}
    exec(JOB.replace('"topic", "orders"', f'"topic", "{topic}"'), job)
    write_day = job["write_day"]
    assert callable(write_day)
    options = {"kafka.bootstrap.servers": kafka.bootstrap}
    for day in (TUESDAY, TUESDAY, MONDAY):
        write_day(spark, day, topic, options)
    spark.sql("DROP VIEW orders")
    found = consume(topic, bootstrap=kafka.bootstrap, isolation="read_committed")
    assert sorted(found.keys) == [b"monday", b"tuesday"]


def test_the_job_refuses_a_day_that_is_not_over() -> None:
    job: dict[str, object] = {"__name__": "job"}
    exec(JOB, job)
    write_day = job["write_day"]
    assert callable(write_day)
    with pytest.raises(SystemExit, match="is not over"):
        write_day(None, datetime.datetime.now(datetime.UTC).date(), "prod", {})
