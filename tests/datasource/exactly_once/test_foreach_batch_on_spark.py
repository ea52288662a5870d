"""foreach_batch into a real Kafka, also when it runs again and from a thread pool."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import StreamingQueryException

from spark_kafka_sink import foreach_batch
from tests.datasource.exactly_once.queries import lose_commit, run_with, shows


def test_foreach_batch_writes_each_batch_once_also_on_a_replay(
    source, options, topic, consume, tmp_path, reports
):
    frame, add = source
    write = foreach_batch(f"orders-{uuid.uuid4().hex[:6]}", **options)
    add(["a", "b"])
    add(["c"])
    run_with(frame, write, tmp_path)
    lose_commit(tmp_path, 1)
    add(["d"])
    run_with(frame, write, tmp_path)
    shows(consume, topic, ["a", "b", "c", "d"])
    assert [r["outcome"] for r in reports()] == [
        "committed", "committed", "done before", "committed",
    ]  # fmt: skip


def test_two_frames_of_one_name_in_a_batch_are_an_error(
    source, options, topic, kafka, consume, tmp_path, reports
):
    frame, add = source
    name = f"both-{uuid.uuid4().hex[:6]}"
    write = foreach_batch(name, **options)
    elsewhere = foreach_batch(name, **(options | {"topic": kafka.unique_topic("elsewhere")}))

    def again(batch, batch_id):
        for _ in range(2):
            write(batch.where("value > 'a'"), batch_id)

    def another(batch, batch_id):
        write(batch.where("value > 'a'"), batch_id)
        write(batch.where("value <= 'a'"), batch_id)

    def also_elsewhere(batch, batch_id):
        for one in (write, elsewhere):
            one(batch.where("value > 'a'"), batch_id)

    add(["a", "b"])
    run_with(frame, again, tmp_path)
    assert [r["outcome"] for r in reports()] == ["committed", "done before"]
    add(["a", "cc"])
    with pytest.raises(StreamingQueryException, match="wrote another DataFrame in micro-batch 1"):
        run_with(frame, another, tmp_path)
    with pytest.raises(StreamingQueryException, match="1 rows of 2 bytes to elsewhere"):
        run_with(frame, also_elsewhere, tmp_path)
    run_with(frame, again, tmp_path)  # another run: its first write is done already
    shows(consume, topic, ["b", "cc"])


def test_foreach_batch_serves_update_mode(source, options, topic, consume, tmp_path):
    frame, add = source
    write = foreach_batch(f"counts-{uuid.uuid4().hex[:6]}", **options)
    counts = frame.groupBy("value").count()
    add(["x", "x", "y"])
    counted = counts.selectExpr("concat(value, '=', count) AS value")
    run_with(counted, write, tmp_path, mode="update")
    shows(consume, topic, ["x=2", "y=1"])


def in_a_pool(write):
    """A foreachBatch function that writes from a thread of its own, which has none of Spark's local
    properties.
    """

    def function(batch, batch_id):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(write, batch, batch_id).result()

    return function


def test_foreach_batch_in_threads_sees_a_deleted_checkpoint(
    source, options, topic, consume, tmp_path, reports
):
    frame, add = source
    write = in_a_pool(foreach_batch(f"pool-{uuid.uuid4().hex[:6]}", **options))
    add(["a"])
    add(["b"])
    run_with(frame, write, tmp_path, "one")
    with pytest.raises(StreamingQueryException, match="is at batch 1 of query") as raised:
        run_with(frame, write, tmp_path, "two")
    assert "its checkpoint was deleted" in str(raised.value)
    assert "share a transactionalIdPrefix or a name of foreach_batch" in str(raised.value)
    shows(consume, topic, ["a", "b"])
    assert [r["outcome"] for r in reports()] == ["committed", "committed"], "none was dropped"


def test_two_queries_with_one_name_are_an_error_in_threads(
    source, options, topic, consume, tmp_path, reports
):
    """By number, rows and bytes the second one's batch is done; its session says whose it is."""
    frame, add = source
    write = in_a_pool(foreach_batch(f"rows-{uuid.uuid4().hex[:6]}", **options))
    add(["a"])
    run_with(frame, write, tmp_path, "one")
    with pytest.raises(StreamingQueryException, match="is at batch 0 of query"):
        run_with(frame.selectExpr("upper(value) AS value"), write, tmp_path, "two")
    add(["b"])
    run_with(frame, write, tmp_path, "one")
    shows(consume, topic, ["a", "b"])
    assert [r["outcome"] for r in reports()] == ["committed", "committed"]
