"""Modes, triggers and tables that a Kafka sink can't serve; the same mistakes in a stream."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_sink.errors import ConfigError
from tests.bad_input.conftest import (
    BLOCK_MS,
    IMPATIENT,
    SLACK_S,
    Consume,
    Failure,
    Jobs,
    failure_of,
    read_failure,
)
from tests.real_kafka import RealKafka

NOBODY = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    name = f"t_{uuid.uuid4().hex}"
    spark.sql(f"CREATE TABLE {name} (value string) USING kprod")
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def refused(run: Callable[[], object], jobs: Jobs) -> Failure:
    failure = failure_of(run, jobs)
    assert failure.on_the_driver
    return failure


def test_overwrite_is_refused(one_row: DataFrame, jobs: Jobs) -> None:
    writer = one_row.write.format("kprod").mode("overwrite").options(**NOBODY)
    refused(writer.save, jobs).says(
        "ConfigError: Save mode Overwrite not allowed for Kafka", '.mode("append")'
    )


def test_insert_overwrite_is_refused(spark: SparkSession, table: str, jobs: Jobs) -> None:
    options = ", ".join(f"'{name}' = '{value}'" for name, value in NOBODY.items())
    failure = refused(
        lambda: spark.sql(f"INSERT OVERWRITE {table} WITH ({options}) SELECT 'v'"), jobs
    )
    failure.says("Save mode Overwrite not allowed for Kafka", "INSERT INTO in place of")


def test_insert_into_loses_its_options_and_says_where_they_go(
    spark: SparkSession, one_row: DataFrame, table: str, jobs: Jobs
) -> None:
    for insert in (
        lambda: one_row.write.options(**NOBODY).insertInto(table),
        lambda: spark.sql(f"INSERT INTO {table} SELECT 'v'"),
    ):
        refused(insert, jobs).says("no option reached the kprod sink", "INSERT INTO table WITH (")


# ---- streams -------------------------------------------------------------------------------------


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream of one micro-batch with two rows."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text('{"value": "1"}\n{"value": "2"}\n')
    return spark.readStream.schema("value string").json(str(tmp_path / "in"))


def end_of_stream(df: DataFrame, tmp_path: Path, mode: str = "append", **options: str) -> str:
    """Runs the stream, which must fail; what Spark's StreamingQueryException says."""
    query = (
        df.writeStream.format("kprod")
        .outputMode(mode)
        .options(**(IMPATIENT | NOBODY | options))
        .option("checkpointLocation", str(tmp_path / f"checkpoint-{uuid.uuid4().hex}"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination()
    return str(raised.value)


def stream_fails(df: DataFrame, tmp_path: Path, mode: str = "append", **options: str) -> Failure:
    start = time.monotonic()
    text = end_of_stream(df, tmp_path, mode, **options)
    return read_failure(text, time.monotonic() - start)


def test_a_streams_wrong_options_are_found_at_planning(stream: DataFrame, tmp_path: Path) -> None:
    """Which there are is in tests/config and test_transaction_plan.py."""
    for options, word in (
        ({"kafka.liner.ms": "1"}, "did you mean kafka.linger.ms?"),
        ({"deliveryGuarantee": "exactly-once"}, "needs the option transactionalIdPrefix"),
    ):
        failure = stream_fails(stream, tmp_path, **options)
        assert "Failed to initialize Python data source writer" in failure.text
        failure.says(word)


@pytest.mark.parametrize("mode", ["complete", "update"])
def test_a_mode_without_meaning_is_refused_before_the_query_starts(
    stream: DataFrame, tmp_path: Path, mode: str
) -> None:
    counts = stream.groupBy("value").count().selectExpr("value")
    with pytest.raises(ConfigError, match=f"does not support {mode} output mode") as raised:
        end_of_stream(counts, tmp_path, mode=mode)
    assert "foreach_batch" in str(raised.value.hint)
    assert not list(tmp_path.glob("checkpoint-*"))


def test_a_stream_to_a_missing_topic_warns_and_fails_in_time(
    stream: DataFrame, tmp_path: Path, kafka: RealKafka
) -> None:
    servers = {"kafka.bootstrap.servers": kafka.bootstrap}
    failure = stream_fails(stream, tmp_path, topic="missing-of-a-stream", **servers)
    failure.says("Topic missing-of-a-stream not present", "create the topic first")
    assert failure.seconds < 2 * BLOCK_MS / 1000 + SLACK_S, "the driver's advice, then the task"


def test_a_corrected_bad_row_of_a_stream_loses_nothing(
    stream: DataFrame, tmp_path: Path, kafka: RealKafka, consume: Consume
) -> None:
    """The failed micro-batch stays uncommitted: the same checkpoint writes it whole, once."""
    topic = kafka.unique_topic("mended")

    def run(partition: str) -> None:
        query = (
            stream.selectExpr("value", f"{partition} AS partition")
            .writeStream.format("kprod")
            .options(**{"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic})
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(StreamingQueryException, match="Partition 7 of topic"):
        run("if(value = '2', 7, 0)")
    assert len(consume(topic)) == 0
    run("0")
    run("0")
    assert consume(topic).values == [b"1", b"2"]
