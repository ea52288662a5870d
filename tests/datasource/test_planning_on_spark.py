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


@pytest.mark.parametrize("mode", ["errorifexists", "ErrorIfExists", "error", "default"])
def test_sparks_default_mode_appends_as_for_its_own_sink(no_rows, mode):
    save(no_rows, mode=mode)
    no_rows.write.format("kprod").options(**TOPIC).save(mode=mode)


def test_another_mode_that_the_user_gave_is_sparks_business(no_rows):
    with pytest.raises(AnalysisException, match="cannot be written in the"):
        save(no_rows, mode="ignore")
    with pytest.raises(AnalysisException, match="cannot be written in the"):
        no_rows.write.format("kprod").mode("append").options(**TOPIC).save(mode="ignore")


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


@pytest.mark.parametrize("mode", ["update", "Complete"])
def test_update_and_complete_mode_are_refused_at_start(spark, table, mode):
    """With the way out; Spark's own refusal of update came later, with a stack of the JVM."""
    spark.sql(f"CREATE TABLE {table} (value string) USING kprod")
    rate = spark.readStream.format("rate").load().groupBy("value").count()
    writer = rate.selectExpr("'v' AS value").writeStream.options(**TOPIC)
    of_mode = writer.outputMode(mode)
    for start in (
        lambda: of_mode.start(format="kprod"),
        lambda: of_mode.toTable(table),
        lambda: writer.outputMode("append").start(format="kprod", outputMode=mode),
        lambda: writer.format("kprod").outputMode(mode).start(),
    ):
        with pytest.raises(ConfigError, match=f"support {mode.lower()} output mode") as caught:
            start()
        assert f".outputMode('{mode.lower()}').foreachBatch(foreach_batch(" in caught.value.hint


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_the_way_out_of_a_refused_mode_may_follow_the_format(spark, tmp_path, mode):
    rate = spark.readStream.format("rate").load().groupBy("value").count()
    writer = rate.writeStream.format("kprod").outputMode(mode).options(**TOPIC)
    writer = writer.trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(ConfigError, match=f"support {mode} output mode"):
        writer.start()
    writer.foreachBatch(lambda batch, number: None).start().stop()
    with pytest.raises(ConfigError, match=f"support {mode} output mode"):
        writer.format("kprod").start()


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
