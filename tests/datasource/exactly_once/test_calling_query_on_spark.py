"""Which query a write belongs to whose DataFrame is of another session than the query's."""

from __future__ import annotations

import uuid

import pytest
from pyspark.errors import StreamingQueryException

from spark_kafka_sink import foreach_batch, transaction
from tests.datasource.exactly_once.queries import in_a_thread, lose_commit, run_with, shows


@pytest.mark.parametrize("way", ["foreach_batch", "transaction"])
def test_frames_of_the_outer_session_are_the_querys(
    spark, source, options, topic, consume, tmp_path, way
):
    """As those of the batch's session: another one under a number that is done is an error, a
    replay with another one is dropped, with the offsets of the checkpoint.
    """
    frame, add = source
    name = f"outer-{uuid.uuid4().hex[:6]}"
    given = options | {"checkpointLocation": str(tmp_path / "checkpoint")}

    def writes(*values):
        def function(_, batch_id):
            for value in values:
                rows = spark.createDataFrame([(value,)], "value string")
                if way == "foreach_batch":
                    foreach_batch(name, **given)(rows, batch_id)
                else:
                    with transaction(name, batch_id, **given) as block:
                        block.write(rows)

        return function

    add(["x"])
    with pytest.raises(StreamingQueryException, match="wrote another DataFrame in micro-batch 0"):
        run_with(frame, writes("first", "other"), tmp_path)
    run_with(frame, writes("again"), tmp_path)
    add(["y"])
    run_with(frame, writes("second"), tmp_path)
    lose_commit(tmp_path, 1)
    run_with(frame, writes("second, with a random value"), tmp_path)
    shows(consume, topic, ["first", "second"])


def test_frames_of_both_sessions_may_come_from_any_thread(
    spark, source, options, topic, consume, tmp_path
):
    """A user's thread does not know its query; the run of the name stays the same."""
    frame, add = source
    write = foreach_batch(f"outer-{uuid.uuid4().hex[:6]}", **options)

    def function(batch, batch_id):
        session = spark if batch_id in (1, 2) else batch.sparkSession
        rows = session.createDataFrame([(f"row {batch_id}",)], "value string")
        (in_a_thread(write) if batch_id >= 2 else write)(rows, batch_id)

    for name in "abcd":
        add([name])
    run_with(frame, function, tmp_path)
    shows(consume, topic, [f"row {n}" for n in range(4)])
