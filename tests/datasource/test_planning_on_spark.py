"""What Spark does with the data source before a row is sent. A real Spark, no broker.

No broker listens at port 1: whatever gets past the driver's checks here opens no connection.
"""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.functions import col

import spark_kafka_sink
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.datasource.write.schema import plan_columns

pytestmark = pytest.mark.spark

NOBODY = {"kafka.bootstrap.servers": "127.0.0.1:1", "preflight": "off", "kafka.max.block.ms": "300"}
TOPIC = NOBODY | {"topic": "t"}


@pytest.fixture
def no_rows(spark):
    return spark.createDataFrame([], "key string, value string")


def save(df, mode="append", **options):
    df.write.format("kprod").mode(mode).options(**(TOPIC | options)).save()


def test_an_empty_dataframe_is_written_without_mode_and_connection(no_rows):
    no_rows.write.format("kprod").options(**TOPIC).save()
    no_rows.repartition(3).write.options(**TOPIC).save(format="KPROD")


def test_a_mode_that_the_user_gave_is_sparks_business(no_rows):
    for mode in ("errorifexists", "ignore"):
        with pytest.raises(AnalysisException, match="cannot be written in the"):
            save(no_rows, mode=mode)
        with pytest.raises(AnalysisException, match="cannot be written in the"):
            no_rows.write.format("kprod").options(**TOPIC).save(mode=mode)


def test_other_formats_keep_their_default_mode(no_rows, tmp_path):
    path = str(tmp_path / "out")
    no_rows.write.format("json").save(path)
    with pytest.raises(AnalysisException, match="already exists"):
        no_rows.write.format("json").save(path)
    writer = no_rows.write.format("kprod")
    with pytest.raises(AnalysisException, match="already exists"):
        writer.format("json").save(path)


def test_the_default_mode_can_be_turned_off_and_on_again(spark, no_rows):
    spark_kafka_sink.register(spark, default_mode=False)
    with pytest.raises(AnalysisException, match="cannot be written in the"):
        no_rows.write.format("kprod").options(**TOPIC).save()
    spark_kafka_sink.register(spark)
    spark_kafka_sink.register(spark)
    no_rows.write.format("kprod").options(**TOPIC).save()


def test_the_canonical_schema_is_one_that_the_sink_takes(spark, table):
    spark.sql(f"CREATE TABLE {table} USING kprod")
    columns = spark.table(table).schema
    plan = plan_columns(columns, None)
    assert (plan.key_column, plan.value_column, plan.topic_column) == (0, 1, 2)
    assert (plan.partition_column, plan.headers_column, plan.timestamp_column) == (3, 4, 5)


def test_the_continuous_trigger_is_refused_at_start(spark, table):
    spark.sql(f"CREATE TABLE {table} (value string) USING kprod")
    rate = spark.readStream.format("rate").load().select(col("value").cast("string"))
    writer = rate.writeStream.options(**TOPIC).trigger(continuous="1 second")
    for start in (
        lambda: writer.start(format="KProd"),
        lambda: writer.toTable(table),
        lambda: writer.toTable(f"{table}_new", format="kprod"),
        lambda: writer.format("kprod").start(),
    ):
        with pytest.raises(ConfigError, match="does not support the continuous trigger") as caught:
            start()
        assert "trigger(processingTime=" in str(caught.value.hint)


def test_a_later_trigger_takes_the_continuous_one_back(spark, tmp_path):
    rate = spark.readStream.format("rate").load().select(col("value").cast("string"))
    writer = rate.writeStream.format("kprod").options(**TOPIC).trigger(continuous="1 second")
    query = (
        writer.trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    query.stop()


def test_the_continuous_trigger_of_other_formats_is_left_alone(spark, tmp_path):
    rate = spark.readStream.format("rate").load()
    query = (
        rate.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(continuous="1 second")
        .start()
    )
    assert query.isActive
    query.stop()
