"""A commit ends the transaction with the report after the transactions with the rows."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import CommitError, KafkaError, PartialCommitError
from spark_kafka_sink.datasource.foreach_batch import foreach_batch, transaction
from spark_kafka_sink.protocol.request import ApiKey
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation import scene_reports
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.scene_reports import (
    REPORTS,
    ends_a_report,
    ends_rows,
    reports,
    time_out_unended,
)
from tests.simulation.scene_requests import of_data

pytestmark = [VERSIONS, pytest.mark.life(tasks=2, rows=2, new_worker=1.0)]
topic, local = scene_reports.topic, scene_reports.local


def ended(scene: Scene) -> list[str]:
    """Notes the transactional ids of all EndTxn, in the order of their arrival."""
    ids: list[str] = []

    def note(request: Request) -> bool:
        if of_data(request):
            ids.append(str(request.body.transactional_id))
        return False

    scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=note)
    return ids


def test_the_report_is_committed_after_the_rows(scene: Scene) -> None:
    ids = ended(scene)
    foreach_batch("orders", **scene.options(reportTopic=REPORTS))(
        scene.frame(scene.run("driver"), 0), 0
    )
    assert [".report" in one for one in ids] == [False, False, True]
    assert reports(scene) == [(4, "committed")]


def test_the_reports_of_a_block_are_committed_after_its_rows(scene: Scene) -> None:
    run, ids = scene.run("driver"), ended(scene)
    with transaction("sinks", 0, **scene.options(reportTopic=REPORTS)) as t:
        t.write(scene.frame(run, 0))
        t.write(scene.frame(run, 100))
    assert [".report" in one for one in ids] == [False] * 4 + [True] * 2
    assert reports(scene) == [(4, "committed")] * 2


def test_a_block_without_rows_commits_its_report(scene: Scene) -> None:
    """The decision has only the transaction of the report."""
    run, ids = scene.run("driver"), ended(scene)
    with transaction("sinks", 0, **scene.options(reportTopic=REPORTS)) as t:
        t.write(scene.frame(run, 0, rows=0))
    assert [".report" in one for one in ids] == [True]
    assert reports(scene) == [(0, "committed")]


def test_a_report_is_not_visible_before_its_rows(scene: Scene) -> None:
    """The coordinators of the tasks' transactions do not respond. The next start commits them."""
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=ends_rows)
    with pytest.raises(KafkaError, match="is not known"):
        write(scene.frame(scene.run("driver"), 0), 0)
    assert scene.visible() == set()
    assert "committed" not in [outcome for _, outcome in reports(scene)]
    scene.control.clear()
    write(scene.frame(scene.run("driver 2"), 0), 0)
    scene.ends_with(0)
    assert (4, "committed") in reports(scene)


def test_a_report_does_not_keep_a_batch_from_its_undo(scene: Scene) -> None:
    """The transactions of all tasks time out after the decision. The report was committed before,
    so the batch was PARTIAL with no row visible, and needed an operator.
    """
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    lost = time_out_unended(scene, ends_rows, 2)
    with pytest.raises(CommitError, match="is undone"):
        write(scene.frame(scene.run("driver"), 0), 0)
    assert (len(lost), scene.visible()) == (2, set())
    assert reports(scene) == [(4, "failed")]
    write(scene.frame(scene.run("driver 2"), 0), 0)
    scene.ends_with(0)
    assert reports(scene) == [(4, "failed"), (4, "committed")]


def test_a_batch_that_lacks_only_its_report_says_so(scene: Scene) -> None:
    """All rows are visible, so a replay would double them."""
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    lost = time_out_unended(scene, ends_a_report, 1)
    with pytest.raises(PartialCommitError, match="its report is missing") as failed:
        write(scene.frame(scene.run("driver"), 0), 0)
    assert failed.value.transactional_ids == tuple(lost)
    assert "no rows are known to be missing" in failed.value.message
    assert len(scene.visible()) == 4
    with scene.by_hand() as commands:
        commands.resolve(commands.plan_resolve("orders~orders", 0, done=True))
    write(scene.frame(scene.run("driver 2"), 0), 0)
    scene.ends_with(0)
