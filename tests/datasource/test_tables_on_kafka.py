"""SQL and tables into a real Kafka."""

from __future__ import annotations

import pyspark
import pytest

from tests.datasource.rows import ROWS, frame, values


@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="an INSERT must name every column there")
def test_a_table_without_columns_has_the_canonical_ones(spark, kafka, topic, table, consume):
    spark.sql(f"CREATE TABLE {table} USING kprod")
    spark.sql(
        f"INSERT INTO {table} WITH ('kafka.bootstrap.servers' = '{kafka.bootstrap}', "
        f"'topic' = '{topic}') (value) SELECT cast('v' AS binary)"
    )
    assert consume(topic).values == [b"v"]


def test_a_table_is_saved_and_written_to(spark, kafka, topic, table, consume):
    rows = frame(spark, [(v,) for v in ROWS], "value string")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
    rows.write.format("kprod").options(**options).saveAsTable(table)
    rows.writeTo(table).options(**options).append()
    assert values(consume(topic)) == sorted(ROWS * 2)


def test_a_stream_to_a_table(source, kafka, topic, table, tmp_path, spark, consume):
    spark.sql(f"CREATE TABLE {table} (value string) USING kprod")
    rows, add = source
    add(ROWS)
    query = (
        rows.writeStream.options(**{"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic})
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .toTable(table)
    )
    query.awaitTermination()
    assert values(consume(topic)) == ROWS
