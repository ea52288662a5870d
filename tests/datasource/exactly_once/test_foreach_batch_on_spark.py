"""foreach_batch into a real Kafka, also when it runs again and from a thread pool."""

from __future__ import annotations

import uuid

import pytest
from pyspark.errors import StreamingQueryException

from spark_kafka_sink import foreach_batch
from tests.datasource.exactly_once.queries import in_a_thread, lose_commit, run_with, shows


def test_foreach_batch_writes_each_batch_once_also_on_a_replay(
    source, options, topic, consume, tmp_path, reports
):
    """In update mode, which the format itself does not support."""
    frame, add = source
    write = foreach_batch(f"orders-{uuid.uuid4().hex[:6]}", **options)
    counts = frame.groupBy("value").count().selectExpr("concat(value, '=', count) AS value")
    add(["x", "x", "y"])
    add(["x"])
    run_with(counts, write, tmp_path, mode="update")
    lose_commit(tmp_path, 1)
    add(["z"])
    run_with(counts, write, tmp_path, mode="update")
    shows(consume, topic, ["x=2", "y=1", "x=3", "z=1"])
    assert [r["outcome"] for r in reports()] == [
        "committed", "committed", "done before", "committed",
    ]  # fmt: skip


def test_two_frames_of_one_name_in_a_batch_are_an_error(
    source, options, topic, consume, tmp_path, reports
):
    """Rows of another topic: simulation/test_edges_foreach_batch.py."""
    frame, add = source
    write = foreach_batch(f"both-{uuid.uuid4().hex[:6]}", **options)

    def again(batch, batch_id):
        for _ in range(2):
            write(batch.where("value > 'a'"), batch_id)

    def another(batch, batch_id):
        write(batch.where("value > 'a'"), batch_id)
        write(batch.where("value <= 'a'"), batch_id)

    def with_other_names(batch, batch_id):
        xy = batch.where("value > 'a'").selectExpr("value AS x", "value AS y")
        write(xy.selectExpr("x AS key", "y AS value"), batch_id)
        write(xy.selectExpr("x AS value", "y AS key"), batch_id)

    add(["a", "b"])
    run_with(frame, again, tmp_path)
    assert [r["outcome"] for r in reports()] == ["committed", "done before"]
    add(["a", "cc"])
    with pytest.raises(StreamingQueryException, match="wrote another DataFrame in micro-batch 1"):
        run_with(frame, another, tmp_path)
    run_with(frame, again, tmp_path)  # another run: its first write is done already
    add(["dd"])
    with pytest.raises(StreamingQueryException, match="wrote another DataFrame in micro-batch 2"):
        run_with(frame, with_other_names, tmp_path)
    shows(consume, topic, ["b", "cc", "dd"])


def test_foreach_batch_in_threads_sees_a_deleted_checkpoint(
    source, options, topic, consume, tmp_path, reports
):
    """The session of the thread's frames names the query."""
    frame, add = source
    write = in_a_thread(foreach_batch(f"pool-{uuid.uuid4().hex[:6]}", **options))
    add(["a"])
    add(["b"])
    run_with(frame, write, tmp_path, "one")
    with pytest.raises(StreamingQueryException, match="is at batch 1 of query") as raised:
        run_with(frame, write, tmp_path, "two")
    assert "its checkpoint was deleted" in str(raised.value)
    assert "share a transactionalIdPrefix or a name of foreach_batch" in str(raised.value)
    shows(consume, topic, ["a", "b"])
    assert [r["outcome"] for r in reports()] == ["committed", "committed"], "none was dropped"
