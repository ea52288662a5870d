"""Batch jobs, exactly-once into a real Kafka: versions, SQL, what fails."""

from __future__ import annotations

import uuid

import pytest

from tests.datasource.exactly_once.queries import fails_at, numbers, save, shows


def test_a_batch_job_is_visible_once_and_its_report_says_so(
    spark, options, topic, consume, reports
):
    save(numbers(spark, 0, 1000), options)
    shows(consume, topic, range(1000))
    (report,) = reports()
    assert report["deliveryGuarantee"] == "exactly-once"
    assert (report["transactions"], report["outcome"], report["rows"]) == (2, "committed", 1000)


def test_a_failed_job_shows_nothing_and_can_be_written_again(spark, options, topic, consume):
    app = {"txnAppId": "retried", "txnVersion": 7}
    with pytest.raises(Exception, match="told to fail"):
        save(fails_at(numbers(spark, 0, 60_000), 45_000), options, **app)
    save(numbers(spark, 0, 10), options, **app)
    shows(consume, topic, range(10))
    assert len(consume(topic)) > 10, "rows of the failed job are in the log, aborted"


def test_a_version_that_is_done_writes_nothing(spark, options, topic, consume, reports):
    app = {"txnAppId": "nightly"}
    save(numbers(spark, 0, 10), options, txnVersion=1, **app)
    save(numbers(spark, 0, 10), options, txnVersion=1, **app)
    save(numbers(spark, 10, 20), options, txnVersion=2, **app)
    save(numbers(spark, 0, 10), options, txnVersion=0, **app)
    shows(consume, topic, range(20))
    assert len(consume(topic)) == 20, "nothing was written and aborted either"
    assert [(r["outcome"], r["rows"]) for r in reports()] == [
        ("committed", 10),
        ("done before", 0),
        ("committed", 10),
        ("done before", 0),
    ]


def test_a_version_without_rows_does_not_count_as_written(spark, options, topic, consume, reports):
    """Its rows may not have been there yet."""
    app = {"txnAppId": "early", "txnVersion": 1}
    save(numbers(spark, 0, 0), options, **app)
    save(numbers(spark, 0, 10), options, **app)
    shows(consume, topic, range(10))
    assert [r["outcome"] for r in reports()] == ["no rows", "committed"]


def test_other_rows_under_a_done_version_are_an_error_by_default(
    spark, options, topic, consume, reports
):
    app = {"txnAppId": "other", "txnVersion": 1}
    save(numbers(spark, 0, 10), options, **app)
    with pytest.raises(Exception, match="done with 10 rows of 10 bytes to ") as raised:
        save(numbers(spark, 0, 20), options, **app)
    assert "20 rows of 30 bytes" in str(raised.value)
    assert "verifyReplays=false" in str(raised.value)
    save(numbers(spark, 0, 10, partitions=1), options, **app)
    save(numbers(spark, 0, 20), options, **app, verifyReplays="false")
    shows(consume, topic, range(10))
    assert len(consume(topic)) == 10, "nothing was written and aborted either"
    assert [r["outcome"] for r in reports()] == [
        *("committed", "failed", "done before", "done before"),
    ]


def test_a_skipped_version_that_comes_late_is_an_error(spark, options, topic, consume):
    app = {"txnAppId": "backfill"}
    save(numbers(spark, 0, 10), options, txnVersion=1, **app)
    save(numbers(spark, 10, 20), options, txnVersion=3, **app)
    with pytest.raises(Exception, match=r"version 2 of .* was never written") as raised:
        save(numbers(spark, 20, 30), options, txnVersion=2, **app)
    assert "Failed to initialize Python data source writer" in str(raised.value)
    shows(consume, topic, range(20))


def test_an_sql_insert_is_exactly_once_with_the_same_options(
    spark, options, topic, consume, reports
):
    table = f"t_{uuid.uuid4().hex}"
    spark.sql(f"CREATE TABLE {table} (value string) USING kprod")
    given = ", ".join(
        f"'{name}' = '{value}'"
        for name, value in (options | {"txnAppId": "sql", "txnVersion": "3"}).items()
    )
    try:
        for _ in range(2):  # the second one is a version that is done
            spark.sql(
                f"INSERT INTO {table} WITH ({given}) SELECT cast(id AS string) FROM range(50)"
            )
    finally:
        spark.sql(f"DROP TABLE {table}")
    shows(consume, topic, range(50))
    assert [(r["outcome"], r["rows"]) for r in reports()] == [("committed", 50), ("done before", 0)]


def test_a_timeout_above_the_brokers_limit_fails_before_tasks(spark, options, topic):
    with pytest.raises(Exception, match=r"transaction\.max\.timeout\.ms") as raised:
        save(numbers(spark, 0, 1), options, **{"kafka.transaction.timeout.ms": str(2**31 - 1)})
    assert "Failed to initialize Python data source writer" in str(raised.value)
