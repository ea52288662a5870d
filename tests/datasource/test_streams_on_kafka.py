"""Streams into a real Kafka, at least once."""

from __future__ import annotations

import datetime as dt
import time

import pytest
from pyspark import cloudpickle
from pyspark.sql.functions import col, lit

from spark_kafka_sink.datasource.source import KprodDataSource
from tests.datasource.exactly_once.queries import run_with
from tests.datasource.rows import ROWS, values
from tests.waiting import PATIENCE


def test_a_stream_writes_each_batch_once_also_after_a_restart(source, stream, topic, consume):
    rows, add = source
    add(ROWS)
    add(["6", "7", "8"])
    query = stream(rows, topic)
    query.awaitTermination()
    assert sorted(p.sink.numOutputRows for p in query.recentProgress if p.numInputRows) == [3, 5]
    add(["9"])
    stream(rows, topic).awaitTermination()
    assert values(consume(topic)) == [*ROWS, "6", "7", "8", "9"]


def test_a_stream_from_the_rate_source(spark, stream, topic, consume):
    rate = spark.readStream.format("rate").option("rowsPerSecond", 200).load()
    query = stream(
        rate.selectExpr("cast(value AS string) AS value"),
        topic,
        trigger={"processingTime": "200 milliseconds"},
    )
    try:
        deadline = time.monotonic() + 60 * PATIENCE
        while sum(progress.numInputRows for progress in query.recentProgress) < 100:
            assert time.monotonic() < deadline
            assert query.exception() is None
            query.awaitTermination(0.1)
    finally:
        query.stop()
    # stop() comes in the middle of a micro-batch, of which some rows may be there.
    committed = sum(progress.numInputRows for progress in query.recentProgress)
    found = [int(v) for v in consume(topic).values]
    assert len(found) == len(set(found)), "no row twice"
    assert set(range(committed)) <= set(found), "no row lost"


def test_for_each_batch_writes_and_needs_no_mode_here(source, kafka, topic, tmp_path, consume):
    rows, add = source
    add(ROWS)

    def save(batch, _batch_id):
        options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
        batch.write.format("kprod").options(**options).save()

    run_with(rows, save, tmp_path, mode="update")
    assert values(consume(topic)) == ROWS


class RowSource(KprodDataSource):
    """The source as it is on pyspark 4.0, where streams have no Arrow writer."""

    @classmethod
    def name(cls):
        return "kprod_rows"

    def _has_arrow_stream_writer(self):
        return False


@pytest.mark.long
def test_rows_are_adapted_where_spark_has_no_arrow_stream_writer(
    spark, source, stream, topic, consume
):
    import test_streams_on_kafka as this_module

    # Workers don't see the tests: send the class along.
    cloudpickle.register_pickle_by_value(this_module)
    try:
        spark.dataSource.register(RowSource)
    finally:
        cloudpickle.unregister_pickle_by_value(this_module)
    rows, add = source
    add(ROWS)
    instant = dt.datetime.fromtimestamp(int(time.time()) - 60, dt.UTC)
    full = rows.select(
        lit("extra").alias("extra"),
        col("value").cast("binary").alias("value"),
        col("value").alias("key"),
        lit(1).alias("partition"),
        lit(instant).alias("timestamp"),
    ).selectExpr("*", "map('h', cast(key AS binary)) AS headers")
    stream(full, topic, fmt="kprod_rows").awaitTermination()
    found = consume(topic)
    assert values(found) == ROWS
    assert found.keys == found.values
    assert set(found.partitions) == {1}
    assert set(found.timestamps) == {int(instant.timestamp()) * 1000}
    assert [h[0][1] for h in found.headers] == found.values
