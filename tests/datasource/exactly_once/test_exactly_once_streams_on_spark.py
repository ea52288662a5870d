"""Streams, exactly-once into a real Kafka: restarts, checkpoints, what is refused."""

from __future__ import annotations

import pickle

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.datasource.source import KprodDataSource
from tests.datasource.exactly_once.queries import lose_commit, shows


def test_a_batch_whose_spark_record_is_lost_is_dropped_on_replay(
    source, options, stream, topic, consume, tmp_path, reports
):
    """The driver dies between our DONE and Spark's own commit record: Spark runs it again."""
    frame, add = source
    add(["0a", "0b"])
    add(["1a"])
    stream(frame, **options).awaitTermination()
    lose_commit(tmp_path, 1)
    add(["2a"])
    stream(frame, **options).awaitTermination()
    shows(consume, topic, ["0a", "0b", "1a", "2a"])
    assert len(consume(topic)) == 4, "the tasks of the second run wrote nothing"
    assert [(r["batchId"], r["outcome"]) for r in reports()] == [
        (0, "committed"), (1, "committed"), (1, "done before"), (2, "committed"),
    ]  # fmt: skip


def test_a_writer_planned_without_the_commit_log_writes_no_row(spark, options, topic, consume):
    """What a data source out of a pickle plans is for commit and abort, not for tasks. A Spark that
    plans so, too, would have the rows written without a transaction.
    """
    schema = StructType([StructField("value", StringType())])
    travelled = pickle.loads(cloudpickle.dumps(KprodDataSource(CaseInsensitiveDict(options))))
    writer = travelled.streamWriter(schema, overwrite=False)

    def write(_):
        import pyarrow as pa

        writer.write(iter([pa.RecordBatch.from_pydict({"value": ["a"]})]))

    with pytest.raises(Exception, match="planned without reading the commit log"):
        spark.sparkContext.parallelize([0], 1).foreachPartition(write)
    assert consume(topic).values == []
