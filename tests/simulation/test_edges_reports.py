"""The reports of writes without rows: the topic of ``reportTopic`` gets them, too."""

from __future__ import annotations

import json

import pytest

from spark_kafka_sink.datasource.foreach_batch import foreach_batch, transaction
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.spark_checkpoints import SOURCE, Checkpoints
from tests.simulation.spark_world import QUERY

pytestmark = [VERSIONS, pytest.mark.life(tasks=2, rows=2, new_worker=1.0)]
REPORTS = "reports"


@pytest.fixture(autouse=True)
def topic(scene: Scene) -> None:
    scene.cluster.create_topic(REPORTS, 1)


def reports(scene: Scene) -> list[tuple[int, str]]:
    """The rows and the outcome of each report, as read_committed shows them."""
    (log,) = scene.cluster.topics[REPORTS].partitions
    found = [json.loads(value or b"") for value in log.values(committed=True)]
    return [(report["rows"], report["outcome"]) for report in found]


def test_a_write_of_a_block_without_rows_has_a_report(scene: Scene) -> None:
    run = scene.run("driver")
    with transaction("sinks", 0, **scene.options(reportTopic=REPORTS)) as t:
        t.write(scene.frame(run, 0))
        t.write(scene.frame(run, 100, rows=0))
        assert reports(scene) == [], "the block is not committed yet"
    assert reports(scene) == [(4, "committed"), (0, "committed")]
    assert scene.open_ids() == []
    scene.ends_with(0)


def test_an_aborted_block_has_one_report_and_its_writes_have_none(scene: Scene) -> None:
    run = scene.run("driver")

    def block() -> None:
        with transaction("sinks", 0, **scene.options(reportTopic=REPORTS)) as t:
            t.write(scene.frame(run, 0))
            t.write(scene.frame(run, 100, rows=0))
            raise ValueError("planned")

    with pytest.raises(ValueError, match="planned"):
        block()
    assert reports(scene) == [(0, "aborted")]
    assert scene.open_ids() == []
    scene.ends_with()


def test_a_micro_batch_with_offsets_and_without_rows_has_one_report(scene: Scene) -> None:
    checkpoints, run = Checkpoints(), scene.run("driver")
    scene.cluster.create_topic(SOURCE, 1)
    path = checkpoints.path("orders")
    options = scene.options(offsetsGroup="readers", checkpointLocation=path, reportTopic=REPORTS)
    write = foreach_batch("orders", **options)
    for number in range(2):
        checkpoints.begin("orders", QUERY, number)
        write(scene.frame(run, number, rows=2 * number), number)
    assert reports(scene) == [(0, "committed"), (4, "committed")]
    write(scene.frame(run, 1), 1)  # Spark runs the micro-batch again
    assert reports(scene) == [(0, "committed"), (4, "committed")]
    assert scene.open_ids() == []
    scene.ends_with(1)


def test_a_micro_batch_that_commits_nothing_has_one_report(scene: Scene) -> None:
    run = scene.run("driver")
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    write(scene.frame(run, 0, rows=0), 0)
    write(scene.frame(run, 1), 1)
    assert reports(scene) == [(0, "no rows"), (4, "committed")]
    scene.ends_with(1)
