"""Batch jobs, exactly-once into a real Kafka: versions, SQL, what fails.

Which versions may come is in tests/transactions/test_batch_numbers.py, without a Spark.
"""

from __future__ import annotations

import uuid

import pytest

from tests.datasource.exactly_once.queries import numbers, save, shows
from tests.exactly_once.checker import transactions


def test_a_failed_job_shows_nothing_and_can_be_written_again(spark, options, topic, consume):
    app = {"txnAppId": "retried", "txnVersion": 7}
    servers = options["kafka.bootstrap.servers"]

    # Nested, so that it travels to the worker by value: workers don't know the tests.
    def fails_when_rows_are_in_the_log(batches):
        import time

        from confluent_kafka import Consumer, TopicPartition

        yield from batches
        reader = Consumer({"bootstrap.servers": servers, "group.id": "none"})
        partitions = reader.list_topics(topic, 60).topics[topic].partitions
        places = [TopicPartition(topic, number) for number in partitions]
        while not any(reader.get_watermark_offsets(place, 60)[1] for place in places):
            time.sleep(0.05)
        raise ValueError("told to fail")

    rows = numbers(spark, 0, 60_000).selectExpr("lpad(value, 100, '0') AS value")
    with pytest.raises(Exception, match="told to fail"):
        save(rows.mapInArrow(fails_when_rows_are_in_the_log, "value string"), options, **app)
    save(numbers(spark, 0, 10), options, **app)
    shows(consume, topic, range(10))
    assert len(consume(topic)) > 10, "rows of the failed job are in the log, aborted"


def test_a_version_that_is_done_writes_nothing(spark, options, topic, consume, reports):
    """By a DataFrame, and by SQL with the same options."""
    app = {"txnAppId": "nightly", "txnVersion": "1"}
    save(numbers(spark, 0, 1000), options, **app)
    given = ", ".join(f"'{name}' = '{value}'" for name, value in (options | app).items())
    table = f"t_{uuid.uuid4().hex}"
    spark.sql(f"CREATE TABLE {table} (value string) USING kprod")
    rows = "SELECT cast(id AS string) FROM range(1000)"
    spark.sql(f"INSERT INTO {table} WITH ({given}) {rows}")
    spark.sql(f"DROP TABLE {table}")
    save(numbers(spark, 0, 0), options, **(app | {"txnVersion": "2"}))
    shows(consume, topic, range(1000))
    assert len(consume(topic)) == 1000, "nothing was written and aborted either"
    first, second, third = reports()
    assert (first["deliveryGuarantee"], first["transactions"]) == ("exactly-once", 2)
    assert (first["outcome"], first["rows"]) == ("committed", 1000)
    assert (second["outcome"], second["rows"]) == ("done before", 0)
    assert (third["outcome"], third["rows"]) == ("no rows", 0)


def test_a_job_leaves_an_id_for_each_task_and_the_next_versions_none(spark, options, kafka):
    """As docs/exactly-once.md counts them, and one of the prefix, which tries the rights."""
    prefix = f"ids{uuid.uuid4().hex}"
    own = options | {"transactionalIdPrefix": prefix}

    def count() -> int:
        return len([i for i in transactions(kafka.bootstrap, prefix) if "~~check" not in i])

    save(numbers(spark, 0, 100, partitions=7), own)
    assert count() == 7 + 1
    for version in (1, 2, 3):
        save(numbers(spark, 0, 100, partitions=7), own, txnAppId="ids", txnVersion=version)
    assert 8 + 7 + 1 <= count() < 8 + 3 * 7 + 1


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


def test_a_version_that_is_not_known_any_more_is_an_error(spark, options, topic, consume):
    """Both ways on that the error names lead on: the rows are dropped, or written."""
    app = {"txnAppId": "days", "txnVersion": 2}
    save(numbers(spark, 0, 10), options, **app)
    earlier = numbers(spark, 10, 20)
    with pytest.raises(Exception, match="so whether it was written is not known") as raised:
        save(earlier, options, **(app | {"txnVersion": 1}))
    assert "KP0632" in str(raised.value)
    save(earlier, options, **(app | {"txnVersion": 1}), verifyReplays="false")
    shows(consume, topic, range(10))
    save(earlier, options, txnAppId="days-1", txnVersion=1)
    shows(consume, topic, range(20))
