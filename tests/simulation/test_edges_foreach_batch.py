"""foreachBatch and named jobs lose no rows in silence: what protects them needs nothing that Spark
gives a task.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import KafkaError
from tests.simulation.scene import TOLD_OR_NOT, Scene


@TOLD_OR_NOT
@pytest.mark.parametrize("first", [0, 2])
def test_a_name_under_another_checkpoint_is_an_error(scene: Scene, first: int) -> None:
    """The checkpoint was deleted, or put back: the micro-batches' ids begin below what is done."""
    micro_batch = scene.foreach_batch("deleted")
    for number in range(5):
        micro_batch(number)
    with pytest.raises(KafkaError, match=r"orders~deleted"):
        scene.foreach_batch("deleted")(first)
    assert scene.open_ids() == []
    scene.ends_with(*range(5))


@TOLD_OR_NOT
def test_a_micro_batch_that_spark_runs_again_is_dropped(scene: Scene) -> None:
    """It was committed, and Spark's own record of it is missing: the same query, started again."""
    micro_batch = scene.foreach_batch("again")
    for number in range(3):
        micro_batch(number)
    anew = scene.foreach_batch("again")
    anew(2)
    anew(3)
    assert scene.open_ids() == []
    scene.ends_with(*range(4))


@pytest.mark.parametrize("alike", [False, True])
def test_two_live_queries_of_one_name_stop_and_lose_nothing(scene: Scene, alike: bool) -> None:
    """Each has a checkpoint of its own, and its own rows. The newcomer's first micro-batch may look
    like one that Spark runs again; none after it may.
    """
    told: list[KafkaError] = []
    rows: dict[str, int] = {"one": 0, "two": 0}
    sizes = {"one": 3, "two": 3 if alike else 4}
    scene.tells_query = False
    queries = {name: scene.foreach_batch("shared") for name in rows}
    for number in range(4):
        for name in list(queries):
            try:
                queries[name](number, rows=sizes[name])
                rows[name] += sizes[name]
            except KafkaError as error:
                told.append(error)
                del queries[name]
    assert told
    visible = sum(len(found) for found in scene.seen().values())
    assert visible >= sum(rows.values()) - sizes["two"]


@TOLD_OR_NOT
def test_a_name_may_begin_at_any_micro_batch_and_leave_some_out(scene: Scene) -> None:
    """A query that turned to the sink later, whose function writes nothing for an empty batch."""
    micro_batch = scene.foreach_batch("late")
    for number in (57, 58, 61):
        micro_batch(number)
    scene.ends_with(57, 58, 61)


@TOLD_OR_NOT
def test_an_empty_micro_batch_stops_nothing(scene: Scene) -> None:
    micro_batch = scene.foreach_batch("empty")
    micro_batch(0)
    micro_batch(1, rows=0)
    again = scene.foreach_batch("empty")
    again(1, rows=0)
    again(2)
    scene.ends_with(0, 2)


def test_an_empty_run_of_a_job_does_not_count_as_done(scene: Scene) -> None:
    """It ran before its data was there; run again, with rows, it writes them."""
    scene.tells_query = False
    run = scene.run("driver")
    scene.version_of_job(run, 7, rows=0)
    scene.version_of_job(run, 7)
    scene.version_of_job(run, 7)  # a re-run, which writes nothing
    scene.ends_with(7)


def test_an_empty_run_does_not_hide_an_older_version(scene: Scene) -> None:
    scene.tells_query = False
    run = scene.run("driver")
    scene.version_of_job(run, 1)
    scene.version_of_job(run, 3, rows=0)
    scene.version_of_job(run, 2)
    scene.ends_with(1, 2)


def test_rows_of_another_topic_under_a_done_version_are_an_error(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Two teams with one name under the default prefix: the second one's write goes elsewhere."""
    told: list[str] = []
    scene.tells_query = False
    scene.cluster.have("elsewhere", 1)
    run = scene.run("driver")
    scene.version_of_job(run, 1)
    caplog.clear()
    try:
        scene.job(run, scene.options(txnAppId="app", txnVersion=1, topic="elsewhere"), 2)
    except KafkaError as error:
        told.append(error.message)
    told += [r.getMessage() for r in caplog.records if r.levelname in ("WARNING", "ERROR")]
    assert any("elsewhere" in text for text in told), told
    scene.ends_with(1)
