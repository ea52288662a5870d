"""Streams, exactly-once into a real Kafka: restarts, checkpoints, what is refused."""

from __future__ import annotations

import pickle

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.datasource.source import KprodDataSource
from tests.datasource.exactly_once.queries import lose_commit, run, shows


def test_a_batch_whose_spark_record_is_lost_is_dropped_on_replay(
    source, options, topic, consume, tmp_path, reports
):
    """The driver dies between our DONE and Spark's own commit record: Spark runs it again."""
    frame, add = source
    add(["0a", "0b"])
    add(["1a"])
    run(frame, options, tmp_path)
    lose_commit(tmp_path, 1)
    add(["2a"])
    run(frame, options, tmp_path)
    shows(consume, topic, ["0a", "0b", "1a", "2a"])
    assert len(consume(topic)) == 4, "the tasks of the second run wrote nothing"
    assert [(r["batchId"], r["outcome"]) for r in reports()] == [
        (0, "committed"), (1, "committed"), (1, "done before"), (2, "committed"),
    ]  # fmt: skip


def test_a_deleted_checkpoint_is_an_error_with_both_queries(
    source, options, topic, consume, tmp_path
):
    frame, add = source
    add(["a"])
    add(["b"])
    run(frame, options, tmp_path)
    (tmp_path / "checkpoint").rename(tmp_path / "gone")
    with pytest.raises(StreamingQueryException) as raised:
        run(frame, options, tmp_path)
    text = str(raised.value)
    assert "is at batch 1 of query" in text
    assert "is about to write batch 0" in text
    assert "two queries share a transactionalIdPrefix" in text, "that looks the same from here"
    assert f"kprod txn reset {options['transactionalIdPrefix']}" in text
    shows(consume, topic, ["a", "b"])
    assert len(consume(topic)) == 2, "raised before anything was written"


def test_a_stream_without_a_prefix_or_with_a_version_is_refused(source, options, tmp_path):
    frame, add = source
    add(["a"])
    bare = {k: v for k, v in options.items() if k != "transactionalIdPrefix"}
    with pytest.raises(StreamingQueryException, match="needs the option transactionalIdPrefix"):
        run(frame, bare, tmp_path)
    with pytest.raises(StreamingQueryException, match="foreach_batch"):
        run(frame, options, tmp_path, txnAppId="a", txnVersion=1)


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
