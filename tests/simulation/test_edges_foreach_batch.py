"""foreachBatch and named jobs lose no rows in silence: what protects them needs nothing that Spark
tells a task.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.datasource.foreach_batch import foreach_batch
from tests.simulation.edge_scene import EdgeScene, UntoldScene
from tests.simulation.spark_world import SparkLife

KINDS = pytest.mark.parametrize("kind", [EdgeScene, UntoldScene])


@KINDS
@pytest.mark.parametrize("first", [0, 2])
def test_a_name_under_another_checkpoint_is_an_error(kind: type[EdgeScene], first: int) -> None:
    """The checkpoint was deleted, or put back: the micro-batches' ids begin below what is done."""

    def play(scene: EdgeScene) -> None:
        write = foreach_batch("deleted", **scene.options())
        run = scene.run("driver 1")
        for number in range(5):
            scene.micro_batch(run, write, number)
        again = scene.run("driver 2")
        anew = foreach_batch("deleted", **scene.options())
        with pytest.raises(KafkaError, match=r"orders~deleted"):
            scene.micro_batch(again, anew, first)
        assert scene.open_ids() == []

    scene = kind.of(play)
    assert scene.batches() == set(range(5))


@KINDS
def test_a_micro_batch_that_spark_runs_again_is_dropped(kind: type[EdgeScene]) -> None:
    """It was committed, and Spark's own record of it is missing: the same query, started again."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("driver 1")
        write = foreach_batch("again", **scene.options())
        for number in range(3):
            scene.micro_batch(run, write, number)
        again = scene.run("driver 2")
        anew = foreach_batch("again", **scene.options())
        scene.micro_batch(again, anew, 2)
        scene.micro_batch(again, anew, 3)
        assert scene.open_ids() == []

    scene = kind.of(play)
    assert scene.batches() == set(range(4))


@pytest.mark.parametrize("alike", [False, True])
def test_two_live_queries_of_one_name_stop_and_lose_nothing(
    alike: bool,
) -> None:
    """Each has a checkpoint of its own, and its own rows. The newcomer's first micro-batch may look
    like one that Spark runs again; none after it may.
    """
    told: list[KafkaError] = []
    rows: dict[str, int] = {"one": 0, "two": 0}
    sizes = {"one": 3, "two": 3 if alike else 4}

    def play(scene: EdgeScene) -> None:
        runs = {name: scene.run(f"driver {name}") for name in rows}
        writes = {name: foreach_batch("shared", **scene.options()) for name in rows}
        for number in range(4):
            for name in list(runs):
                try:
                    scene.micro_batch(runs[name], writes[name], number, rows=sizes[name])
                    rows[name] += sizes[name]
                except KafkaError as error:
                    told.append(error)
                    del runs[name]

    scene = UntoldScene.of(play)
    assert told
    visible = sum(len(found) for found in scene.seen().values())
    assert visible >= sum(rows.values()) - sizes["two"]


@KINDS
def test_a_name_may_begin_at_any_micro_batch_and_leave_some_out(kind: type[EdgeScene]) -> None:
    """A query that turned to the sink later, whose function writes nothing for an empty batch."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")
        write = foreach_batch("late", **scene.options())
        for number in (57, 58, 61):
            scene.micro_batch(run, write, number)

    scene = kind.of(play)
    assert scene.batches() == {57, 58, 61}


@KINDS
def test_an_empty_micro_batch_stops_nothing(kind: type[EdgeScene]) -> None:
    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")
        write = foreach_batch("empty", **scene.options())
        scene.micro_batch(run, write, 0)
        scene.micro_batch(run, write, 1, rows=0)
        again, write = scene.run("driver 2"), foreach_batch("empty", **scene.options())
        scene.micro_batch(again, write, 1, rows=0)
        scene.micro_batch(again, write, 2)

    scene = kind.of(play, SparkLife(1, tasks=1))
    assert scene.batches() == {0, 2}


def test_an_empty_run_of_a_job_does_not_count_as_done() -> None:
    """It ran before its data was there; run again, with rows, it writes them."""

    def play(scene: EdgeScene) -> None:
        options = scene.options(txnAppId="nightly", txnVersion=20261121)
        run = scene.run("driver")
        scene.job(run, options, 7, rows=0)
        scene.job(run, options, 7)
        scene.job(run, options, 7)  # a re-run, which writes nothing

    scene = UntoldScene.of(play)
    assert scene.batches() == {7}


def test_an_empty_run_does_not_hide_an_older_version() -> None:
    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")
        scene.job(run, scene.options(txnAppId="nightly", txnVersion=1), 1)
        scene.job(run, scene.options(txnAppId="nightly", txnVersion=3), 3, rows=0)
        scene.job(run, scene.options(txnAppId="nightly", txnVersion=2), 2)

    scene = UntoldScene.of(play)
    assert scene.batches() == {1, 2}


def test_rows_of_another_topic_under_a_done_version_are_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two teams with one name under the default prefix: the second one's write goes elsewhere."""
    told: list[str] = []

    def play(scene: EdgeScene) -> None:
        scene.cluster.have("elsewhere", 1)
        run = scene.run("driver")
        scene.job(run, scene.options(txnAppId="orders", txnVersion=1), 1)
        caplog.clear()
        try:
            scene.job(run, scene.options(txnAppId="orders", txnVersion=1, topic="elsewhere"), 2)
        except KafkaError as error:
            told.append(error.message)

    scene = UntoldScene.of(play)
    told += [r.getMessage() for r in caplog.records if r.levelname in ("WARNING", "ERROR")]
    assert any("elsewhere" in text for text in told), told
    assert scene.batches() == {1}
