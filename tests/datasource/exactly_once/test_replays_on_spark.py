"""A micro-batch that runs again is known by its query, number and offsets, not by its rows."""

from __future__ import annotations

import shutil
import uuid

import pytest
from pyspark.errors import StreamingQueryException

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.datasource.foreach_batch import transaction
from tests.datasource.exactly_once.queries import COMMITTED, lose_commit, run_with, shows

pytestmark = pytest.mark.long

OTHER = "repeat(uuid(), 1 + cast(rand() * 20 as int))"


@pytest.fixture(params=["stream", "foreach_batch", "transaction"])
def write(request, options, stream, tmp_path):
    """Runs a query that writes ``frame`` from a checkpoint, by one of the three ways."""
    name = f"replayed-{uuid.uuid4().hex[:6]}"

    def write(frame, checkpoint="checkpoint", column="value"):
        given = options | {"checkpointLocation": str(tmp_path / checkpoint)}

        def in_block(batch, batch_id):
            with transaction(name, batch_id, **given) as t:
                for half in ("<", ">="):
                    t.write(batch.where(f"value {half} 'b'").selectExpr(f"{column} AS value"))

        def in_function(batch, batch_id):
            rows = batch.selectExpr(f"{column} AS value")
            foreach_batch(name, **given)(rows, batch_id)

        if request.param == "stream":
            rows = frame.selectExpr(f"{column} AS value")
            stream(rows, **given).awaitTermination()
        else:
            function = in_block if request.param == "transaction" else in_function
            run_with(frame, function, tmp_path, checkpoint)

    return write


def test_a_replay_with_other_rows_is_dropped(source, topic, consume, tmp_path, reports, write):
    """With rows and bytes compared the query failed at each start: the driver died between the
    commit and Spark's record, and uuid() and rand() give other rows.
    """
    frame, add = source
    add(["a", "b", "c"])
    write(frame, column=OTHER)
    before = sorted(consume(topic, isolation=COMMITTED).values)
    assert len(before) == 3
    lose_commit(tmp_path, 0)
    add(["d"])
    write(frame)
    shows(consume, topic, [value.decode() for value in before] + ["d"])
    assert "done before" in [r["outcome"] for r in reports()]


def test_other_files_under_a_done_number_are_an_error(source, topic, consume, tmp_path, write):
    """A copied checkpoint that goes another way: with rows and bytes compared, equal ones were
    dropped without an error. (The offset of a file source is the same: only its list differs.)
    """
    frame, add = source
    add(["a", "b"])
    write(frame)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    add(["c", "d"])
    write(frame)
    for file in (tmp_path / "source").iterdir():
        if "c" in file.read_text():
            file.unlink()
    add(["e", "f"])
    with pytest.raises(StreamingQueryException, match="other rows under a done number"):
        write(frame, "copy")
    shows(consume, topic, ["a", "b", "c", "d"])
